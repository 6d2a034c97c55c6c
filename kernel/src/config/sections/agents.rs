//! `[agents.*]`: what holds for one agent.

use std::collections::BTreeSet;

use mgp_engine::callers::agent_asks::{AnsweredAgents, AnsweringAgents};
use mgp_protocol::ids::AgentId;

use crate::config::reading::Section;

/// Every agent.
const ALL: &str = "*";

/// Reads `[agents.NAME]` of all names.
pub(crate) fn read_agents(root: &mut Section<'_, '_, '_>, answering: &mut AnsweringAgents) {
    root.each("agents", "agents.*", |name, section| {
        let answered = read_answered(section);
        match AgentId::parse(name) {
            Ok(agent) => {
                answered.map(|answered| answering.0.insert(agent, answered));
            }
            // `each` reads an absent table, so that its keys are known.
            Err(_) if name.is_empty() => {}
            Err(why) => {
                let whole = section.whole();
                section.refuse(whole, format!("[agents]: {why}"));
            }
        }
    });
}

/// `answers`: whom it answers; nobody where it says nothing.
fn read_answered(section: &mut Section<'_, '_, '_>) -> Option<AnsweredAgents> {
    let mut agents = BTreeSet::new();
    for name in section.texts("answers")? {
        if *name.get_ref() == ALL {
            return Some(AnsweredAgents::All);
        }
        match AgentId::parse(name.get_ref()) {
            Ok(agent) => drop(agents.insert(agent)),
            Err(why) => {
                let words = format!("`answers` in {}: {why}", section.name());
                section.refuse(name.span(), words);
            }
        }
    }
    (!agents.is_empty()).then_some(AnsweredAgents::These(agents))
}
