//! `[agents.*]`: rules for single agents.

use std::collections::BTreeSet;

use mgp_engine::callers::agent_requests::{AllowedRequesters, RequestableAgents};
use mgp_engine::policy::access::ToolSets;
use mgp_protocol::ids::{AgentId, BadAgentName, SetName};

use crate::config::parsing::Section;

const ALL_AGENTS: &str = "*";

/// Reads all `[agents.NAME]`.
pub(crate) fn read_agents(
    root: &mut Section<'_, '_, '_>,
    answering: &mut RequestableAgents,
    sets: &mut ToolSets,
) {
    root.for_each_table("agents", "agents.*", |name, section| {
        let answered = read_answered_agents(section);
        let assigned_set = read_assigned_set(section);
        match AgentId::parse_or_from_subject(name) {
            Ok(agent) => {
                assigned_set.map(|set| sets.by_agent.insert(agent.clone(), set));
                answered.map(|answered| answering.0.insert(agent, answered));
            }
            // Agents without a name of their own can be assigned a set, but cannot answer requests.
            Err(BadAgentName::Reserved(reserved @ ("local" | "anonymous")))
                if answered.is_none() =>
            {
                let agent = AgentId::new(format!("{}{reserved}", AgentId::PREFIX));
                assigned_set.map(|set| sets.by_agent.insert(agent, set));
            }
            // `each` reads an absent table, so that its keys are known.
            Err(_) if name.is_empty() => {}
            Err(why) => {
                let whole = section.start_span();
                section.reject(whole, format!("[agents]: {why}"));
            }
        }
    });
}

/// `set`: the assigned tool set.
fn read_assigned_set(section: &mut Section<'_, '_, '_>) -> Option<SetName> {
    let name = section.text("set")?;
    match SetName::parse(name.get_ref()) {
        Ok(name) => Some(name),
        Err(why) => {
            let words = format!("`set` in {}: {why}", section.name());
            section.reject(name.span(), words);
            None
        }
    }
}

/// `answers`: the agents whose requests it answers; none by default.
fn read_answered_agents(section: &mut Section<'_, '_, '_>) -> Option<AllowedRequesters> {
    let mut agents = BTreeSet::new();
    for name in section.texts("answers")? {
        if *name.get_ref() == ALL_AGENTS {
            return Some(AllowedRequesters::All);
        }
        match AgentId::parse_or_from_subject(name.get_ref()) {
            Ok(agent) => drop(agents.insert(agent)),
            Err(why) => {
                let words = format!("`answers` in {}: {why}", section.name());
                section.reject(name.span(), words);
            }
        }
    }
    (!agents.is_empty()).then_some(AllowedRequesters::Only(agents))
}
