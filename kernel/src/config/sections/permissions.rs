//! How permissions of servers are decided and their tools pinned: `[permissions]`, `[pins]`, and the
//! keys of one server.

use std::collections::BTreeSet;

use mgp_engine::doors::permission_names::nearest_standard;
use mgp_engine::policy::permissions::PermissionRules;
use mgp_engine::policy::pins::{PinMode, PinRules, can_ignore_member};
use mgp_protocol::mgp::permission::{PermissionType, Policy};

use crate::config::parsing::{ReadSection, Section};

const POLICIES: [(&str, Policy); 4] = [
    ("interactive", Policy::Interactive),
    ("auto_approve", Policy::AutoApprove),
    ("deny_all", Policy::DenyAll),
    ("config_only", Policy::ConfigOnly),
];
const MODES: [(&str, PinMode); 3] = [
    ("off", PinMode::Off),
    ("warn", PinMode::Warn),
    ("block", PinMode::Block),
];

impl ReadSection for PermissionRules {
    fn read(&mut self, section: &mut Section<'_, '_, '_>) {
        section.choice("policy", &POLICIES, &mut self.policy);
        read_set(section, "always_ask", &mut self.exceptions);
        section.flag("all_or_nothing", &mut self.all_or_nothing);
    }
}

impl ReadSection for PinRules {
    fn read(&mut self, section: &mut Section<'_, '_, '_>) {
        section.choice("mode", &MODES, &mut self.mode);
    }
}

/// Their keys in a server's entry.
pub(crate) fn read_server_permissions(
    entry: &mut Section<'_, '_, '_>,
    rules: &mut PermissionRules,
    pin: &mut PinRules,
) {
    entry.choice("permission_policy", &POLICIES, &mut rules.policy);
    read_set(entry, "permissions", &mut rules.configured);
    entry.flag("all_or_nothing", &mut rules.all_or_nothing);
    entry.choice("pin", &MODES, &mut pin.mode);
    entry.strings("pin_ignore", &mut pin.ignored);
    let span = entry.span("pin_ignore");
    if let Some((span, name)) = span.zip(pin.ignored.iter().find(|name| !can_ignore_member(name))) {
        let words = format!(
            "`pin_ignore`: {name:?} decides what a tool is, so a change of it always asks; members like \"_meta.updatedAt\" can be left out"
        );
        entry.reject(span, words);
    }
}

/// Permission types by any of their names.
fn read_set(
    section: &mut Section<'_, '_, '_>,
    key: &'static str,
    into: &mut BTreeSet<PermissionType>,
) {
    let mut names = Vec::new();
    section.strings(key, &mut names);
    let near = names
        .iter()
        .find_map(|name| Some((name, nearest_standard(name)?)));
    if let Some((span, (name, near))) = section.span(key).zip(near) {
        let words = format!("`{key}`: there is no permission {name:?}; did you mean \"{near}\"?");
        section.reject(span, words);
    }
    if !names.is_empty() {
        *into = names
            .iter()
            .flat_map(|name| PermissionType::parse_all(name))
            .collect();
    }
}
