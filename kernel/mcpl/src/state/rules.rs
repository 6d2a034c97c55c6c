//! `[mcpl.state]` of the configuration: who shares a state.

use std::collections::BTreeMap;
use std::time::Duration;

use mgp_protocol::ids::{AgentId, ServerId};

use crate::names;

/// Default time that the state of an ended session is kept: a person can still look and roll back the next day.
const KEEP_ENDED: Duration = Duration::from_secs(24 * 60 * 60);

/// Who shares a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedBy {
    /// Nobody: no state is stored or carried.
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
    /// Parses the configured value.
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
    /// The default.
    pub shared_by: SharedBy,
    /// By `SERVER.SET`.
    pub sets: BTreeMap<String, SharedBy>,
    /// How long the state of a session is kept after its end.
    pub keep_ended: Duration,
    /// The agents that have rollback as a tool, `*` for all.
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
    /// Who shares the states of this set.
    #[must_use]
    pub fn shared_by(&self, server: &ServerId, set: &str) -> SharedBy {
        let configured = self.sets.get(&names::set_name(&server.server(), set));
        configured.copied().unwrap_or(self.shared_by)
    }

    /// True when this agent has rollback as a tool.
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
