//! Whose a state is: `[mcpl.state]` of the configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use mgp_protocol::ids::{AgentId, ServerId};

use crate::names;

/// How long the state of a session is kept after its end, where the configuration says nothing: a person who
/// finds that something is wrong can still look and go back the next day.
const KEEP_ENDED: Duration = Duration::from_secs(24 * 60 * 60);

/// Who goes on from one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedBy {
    /// Nobody: nothing is kept, and calls carry nothing.
    Nobody,
    /// One session of one agent.
    #[default]
    Session,
    /// All sessions of one agent.
    Agent,
    /// All agents.
    Everyone,
}

impl SharedBy {
    /// Reads the word of the configuration.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "nobody" => Self::Nobody,
            "session" => Self::Session,
            "agent" => Self::Agent,
            "everyone" => Self::Everyone,
            _ => return None,
        })
    }
}

/// `[mcpl.state]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRules {
    /// Where nothing else is said.
    pub shared_by: SharedBy,
    /// By `SERVER.SET`.
    pub sets: BTreeMap<String, SharedBy>,
    /// How long the state of a session is kept after its end.
    pub keep_ended: Duration,
    /// The agents that are given rolling back as a tool, `*` for all.
    pub tool_for: Vec<String>,
}

impl Default for StateRules {
    fn default() -> Self {
        Self {
            shared_by: SharedBy::default(),
            sets: BTreeMap::new(),
            keep_ended: KEEP_ENDED,
            tool_for: Vec::new(),
        }
    }
}

impl StateRules {
    /// Who goes on from the states of this set.
    #[must_use]
    pub fn shared_by(&self, server: &ServerId, set: &str) -> SharedBy {
        let own = self.sets.get(&names::set_name(&server.server(), set));
        own.copied().unwrap_or(self.shared_by)
    }

    /// True when this agent is given rolling back as a tool.
    #[must_use]
    pub fn has_tool(&self, agent: &AgentId) -> bool {
        let is = |one: &String| {
            let full = one == agent.as_str();
            let bare = agent.as_str().strip_prefix(AgentId::PREFIX) == Some(one);
            one == "*" || full || bare
        };
        self.tool_for.iter().any(is)
    }
}
