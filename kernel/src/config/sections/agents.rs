//! `[agents.*]`: rules for single agents.

use mgp_engine::callers::agent_requests::{AllowedRequesters, RequestableAgents};
use mgp_engine::policy::access::ToolSets;
use mgp_protocol::ids::{AgentId, BadAgentName, SetName};
use toml::Spanned;

use crate::config::parsing::Section;

const ALL_AGENTS: &str = "*";

/// Reads all `[agents.NAME]`.
pub(crate) fn read_agents(
    root: &mut Section<'_, '_, '_>,
    answering: &mut RequestableAgents,
    sets: &mut ToolSets,
) {
    root.for_each_table("agents", |name, section| {
        let answered = read_answered_agents(section);
        let mut assigned_set = None;
        section.parse("set", SetName::parse, &mut assigned_set);
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
            Err(_) if name.is_empty() => {}
            Err(why) => {
                let whole = section.start_span();
                section.reject(whole, format!("[agents]: {why}"));
            }
        }
    });
}

/// `answers`: the agents whose requests it answers; none by default.
fn read_answered_agents(section: &mut Section<'_, '_, '_>) -> Option<AllowedRequesters> {
    let is_all = |name: &Spanned<&str>| *name.get_ref() == ALL_AGENTS;
    if section.texts("answers")?.iter().any(is_all) {
        return Some(AllowedRequesters::All);
    }
    let agents = section.parse_each("answers", AgentId::parse_or_from_subject)?;
    (!agents.is_empty()).then(|| AllowedRequesters::Only(agents.into_iter().collect()))
}
