//! `[mcpl]`: what servers may do besides being called.

pub(crate) mod inference;
pub(crate) mod push;
pub(crate) mod scopes;
pub(crate) mod state;

use std::path::Path;

use mgp_mcpl_engine::policy::{McplServerRules, SetPattern};
use mgp_mcpl_engine::rules::McplRules;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcpl::feature_sets::is_valid_name;

use super::DAY;
use crate::config::parsing::{Env, SecretsConfig, Section};

/// Reads `[mcpl]`. A server of a stronger file replaces that of a weaker one.
pub(crate) fn read_mcpl(
    mut section: Section<'_, '_, '_>,
    folder: &Path,
    env: &Env<'_>,
    secrets: &SecretsConfig,
    rules: &mut McplRules,
) {
    section.secs("scope_timeout_secs", 1..=DAY, &mut rules.scope_patience);
    push::read_push(section.subsection("push", "mcpl.push"), &mut rules.push);
    push::read_hooks(section.subsection("hooks", "mcpl.hooks"), &mut rules.hooks);
    section.for_each_table("servers", "mcpl.servers.*", |name, section| {
        let mut server = McplServerRules {
            enable: read_set_patterns(section, "enable"),
            disable: read_set_patterns(section, "disable"),
            ..McplServerRules::default()
        };
        for (tool, set) in section.text_map("tools") {
            if is_valid_name(set.get_ref()) {
                drop(
                    server
                        .tools
                        .insert(tool.to_owned(), (*set.get_ref()).to_owned()),
                )
            } else {
                let words = format!(
                    "`tools.{tool}` in {}: {:?} is no name of a feature set",
                    section.name(),
                    set.get_ref()
                );
                section.reject(set.span(), words);
            }
        }
        server.scopes = scopes::read_scopes(section);
        match ServerId::parse_local_or_remote(name) {
            Ok(id) => drop(rules.servers.insert(id, server)),
            // `each` reads an absent table, so that its keys are known.
            Err(_) if name.is_empty() => {}
            Err(why) => {
                let whole = section.start_span();
                section.reject(whole, format!("[mcpl.servers]: {why}"));
            }
        }
    });
    inference::read_inference(&mut section, folder, env, secrets, &mut rules.inference);
    state::read_state(section.subsection("state", "mcpl.state"), &mut rules.state);
    state::read_channels(
        section.subsection("channels", "mcpl.channels"),
        &mut rules.channels,
    );
    section.finish();
}

/// Names of sets, or patterns: `memory.*`.
fn read_set_patterns(section: &mut Section<'_, '_, '_>, key: &'static str) -> Vec<SetPattern> {
    let mut patterns = Vec::new();
    for text in section.texts(key).unwrap_or_default() {
        match SetPattern::parse(text.get_ref()) {
            Ok(pattern) => patterns.push(pattern),
            Err(why) => {
                let words = format!("`{key}` in {}: {why}", section.name());
                section.reject(text.span(), words);
            }
        }
    }
    patterns
}
