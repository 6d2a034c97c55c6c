//! `[mcpl]`: what servers may do besides being called.

pub(crate) mod inference;
pub(crate) mod push;
pub(crate) mod scopes;
pub(crate) mod state;

use mgp_mcpl_engine::policy::{CapabilityPattern, McplServerRules, SetPattern};
use mgp_mcpl_engine::rules::McplRules;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::feature_sets::is_valid_name;

use super::DAY;
use crate::config::parsing::{ReadSection, Section};
use inference::read_inference;
use push::{read_hooks, read_push};
use state::{read_channels, read_state};

/// A server of a stronger file replaces that of a weaker one.
impl ReadSection for McplRules {
    fn read(&mut self, section: &mut Section<'_, '_, '_>) {
        section.secs("scope_timeout_secs", 1..=DAY, &mut self.scope_patience);
        section.subsection("push", |push| read_push(push, &mut self.push));
        section.subsection("hooks", |hooks| read_hooks(hooks, &mut self.hooks));
        let servers = section.named_tables("servers", ServerId::parse_local_or_remote, read_server);
        self.servers.extend(servers);
        read_inference(section, &mut self.inference);
        section.subsection("state", |state| read_state(state, &mut self.state));
        section.subsection("channels", |channels| {
            read_channels(channels, &mut self.channels)
        });
    }
}

fn read_server(section: &mut Section<'_, '_, '_>) -> McplServerRules {
    let mut server = McplServerRules::default();
    // Names of sets, or patterns: `memory.*`.
    section.parse_all("enable", SetPattern::parse, &mut server.enable);
    section.parse_all("disable", SetPattern::parse, &mut server.disable);
    // Capability paths, or patterns: `contextHooks.beforeInference.inject.*`.
    section.parse_all("deny", CapabilityPattern::parse, &mut server.deny);
    for (tool, set) in section.text_map("tools") {
        if is_valid_name(set.get_ref()) {
            server
                .tools
                .insert(tool.to_owned(), (*set.get_ref()).to_owned());
        } else {
            let why = format!(": {:?} is no name of a feature set", set.get_ref());
            section.reject_key(set.span(), &format!("tools.{tool}"), &why);
        }
    }
    server.scopes = scopes::read_scopes(section);
    server
}
