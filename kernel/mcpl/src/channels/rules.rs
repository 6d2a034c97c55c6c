//! What the operator says of channels: `[mcpl.channels]` of the configuration.

use mgp_protocol::ids::AgentId;

use super::moderation::ModerationRule;

/// `[mcpl.channels]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelRules {
    /// Where agents publish that do not say where: `SERVER:CHANNEL`. Told to nobody but in hooks (MCPL-147).
    pub default_outgoing: Option<String>,
    /// The agents that incoming messages are offered to, the first one first; empty for all.
    pub incoming_to: Vec<String>,
    /// The agents that are given publishing as a tool, `*` for all.
    pub tool_for: Vec<String>,
    /// What is taken out or replaced, in their order.
    pub moderation: Vec<ModerationRule>,
}

impl ChannelRules {
    /// The place of this agent among those that incoming messages are offered to; `None` where it is none of them.
    #[must_use]
    pub fn incoming_position(&self, agent: &AgentId) -> Option<usize> {
        if self.incoming_to.is_empty() {
            return Some(0);
        }
        self.incoming_to
            .iter()
            .position(|one| matches_agent(one, agent))
    }

    /// True when this agent is given publishing as a tool.
    #[must_use]
    pub fn has_tool(&self, agent: &AgentId) -> bool {
        self.tool_for.iter().any(|one| matches_agent(one, agent))
    }
}

/// True when a word of the configuration names this agent: with or without `agent.`, or `*`.
fn matches_agent(word: &str, agent: &AgentId) -> bool {
    let bare = agent.as_str().strip_prefix(AgentId::PREFIX);
    word == "*" || word == agent.as_str() || bare == Some(word)
}
