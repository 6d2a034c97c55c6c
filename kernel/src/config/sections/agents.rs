//! `[agents.*]`: what holds for one agent.

use std::collections::BTreeSet;

use mgp_engine::callers::agent_asks::{AnsweredAgents, AnsweringAgents};
use mgp_engine::policy::access::ToolSets;
use mgp_protocol::ids::{AgentId, BadAgentName, SetName};

use crate::config::reading::Section;

/// Every agent.
const ALL: &str = "*";

/// Reads `[agents.NAME]` of all names.
pub(crate) fn read_agents(
    root: &mut Section<'_, '_, '_>,
    answering: &mut AnsweringAgents,
    sets: &mut ToolSets,
) {
    root.each("agents", "agents.*", |name, section| {
        let answered = read_answered(section);
        let held = read_held(section);
        match AgentId::written(name) {
            Ok(agent) => {
                held.map(|set| sets.held.insert(agent.clone(), set));
                answered.map(|answered| answering.0.insert(agent, answered));
            }
            // Those without a name of their own can be held to a set, and answer nobody.
            Err(BadAgentName::Taken(taken @ ("local" | "anonymous"))) if answered.is_none() => {
                let agent = AgentId::new(format!("{}{taken}", AgentId::PREFIX));
                held.map(|set| sets.held.insert(agent, set));
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

/// `set`: the one it is held to.
fn read_held(section: &mut Section<'_, '_, '_>) -> Option<SetName> {
    let name = section.text("set")?;
    match SetName::parse(name.get_ref()) {
        Ok(name) => Some(name),
        Err(why) => {
            let words = format!("`set` in {}: {why}", section.name());
            section.refuse(name.span(), words);
            None
        }
    }
}

/// `answers`: whom it answers; nobody where it says nothing.
fn read_answered(section: &mut Section<'_, '_, '_>) -> Option<AnsweredAgents> {
    let mut agents = BTreeSet::new();
    for name in section.texts("answers")? {
        if *name.get_ref() == ALL {
            return Some(AnsweredAgents::All);
        }
        match AgentId::written(name.get_ref()) {
            Ok(agent) => drop(agents.insert(agent)),
            Err(why) => {
                let words = format!("`answers` in {}: {why}", section.name());
                section.refuse(name.span(), words);
            }
        }
    }
    (!agents.is_empty()).then_some(AnsweredAgents::These(agents))
}
