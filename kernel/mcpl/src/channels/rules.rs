//! `[mcpl.channels]` of the configuration.

use mgp_protocol::ids::AgentId;

use super::moderation::ModerationRule;

/// `[mcpl.channels]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelRules {
    /// The default channel of agents that name none: `SERVER:CHANNEL`. Appears only in hooks (MCPL-147).
    pub default_outgoing: Option<String>,
    /// The agents that are offered incoming messages, in this order; empty for all.
    pub incoming_to: Vec<String>,
    /// The agents that have publishing as a tool, `*` for all.
    pub tool_for: Vec<String>,
    /// Moderation rules, in order.
    pub moderation: Vec<ModerationRule>,
}

impl ChannelRules {
    /// The agent's position in the order of offers; `None` if it is offered none.
    #[must_use]
    pub fn incoming_position(&self, agent: &AgentId) -> Option<usize> {
        if self.incoming_to.is_empty() {
            return Some(0);
        }
        self.incoming_to
            .iter()
            .position(|name| matches_agent(name, agent))
    }

    /// True when this agent has publishing as a tool.
    #[must_use]
    pub fn has_tool(&self, agent: &AgentId) -> bool {
        self.tool_for.iter().any(|name| matches_agent(name, agent))
    }
}

/// True when a configured name matches this agent: with or without `agent.`, or `*`.
fn matches_agent(word: &str, agent: &AgentId) -> bool {
    let bare = agent.as_str().strip_prefix(AgentId::PREFIX);
    word == "*" || word == agent.as_str() || bare == Some(word)
}
