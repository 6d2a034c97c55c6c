//! Memory limits for unread responses: how many bytes the kernel buffers, in total and for each agent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mgp_protocol::ids::AgentId;
use mgp_transports::{ResponseBudget, UnreadBytes};

/// The limit for all agents: four shares, so that three agents that read nothing leave capacity for the
/// others.
const TOTAL_BYTES_MAX: u64 = 4 * AGENT_BYTES_MAX;

/// The limit for one agent: eight of the longest responses, and as much as one line connection may queue.
const AGENT_BYTES_MAX: u64 = 64 << 20;

/// Entries stored before those that are no longer used are removed.
const CLEANUP_THRESHOLD: usize = 64;

/// A shared value for each agent, alive as long as it is referenced.
#[derive(Debug)]
pub struct AgentTable<T>(Mutex<HashMap<AgentId, Weak<T>>>);

impl<T> Default for AgentTable<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> AgentTable<T> {
    /// The value of this agent, created by `make` when there is none.
    pub fn get_or_insert(&self, agent: &AgentId, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let mut agents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = agents.get(agent).and_then(Weak::upgrade) {
            return known;
        }
        if agents.len() >= CLEANUP_THRESHOLD {
            agents.retain(|_, own| own.strong_count() > 0);
        }
        let own = make();
        agents.insert(agent.clone(), Arc::downgrade(&own));
        own
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// True when there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The unread responses of all agents.
#[derive(Debug)]
pub struct UnreadResponses {
    total: Arc<UnreadBytes>,
    agents: AgentTable<UnreadBytes>,
}

impl Default for UnreadResponses {
    fn default() -> Self {
        Self {
            total: UnreadBytes::new(TOTAL_BYTES_MAX),
            agents: AgentTable::default(),
        }
    }
}

impl UnreadResponses {
    /// The budget for this agent's responses.
    #[must_use]
    pub fn budget(&self, agent: &AgentId) -> ResponseBudget {
        let own = self
            .agents
            .get_or_insert(agent, || self.total.share(AGENT_BYTES_MAX));
        ResponseBudget::new(self.total.clone(), own)
    }

    /// The unread bytes of all agents' responses.
    #[must_use]
    pub fn unread_bytes(&self) -> u64 {
        self.total.used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_has_one_share_until_its_last_response_is_read() {
        let responses = UnreadResponses::default();
        let agent = |n: usize| AgentId::new(format!("agent.a{n}"));
        let held = responses.budget(&agent(0)).admit(40 << 20).unwrap();
        assert!(responses.budget(&agent(0)).admit(40 << 20).is_none());
        assert!(responses.budget(&agent(1)).admit(40 << 20).is_some());
        for n in 1..1000 {
            drop(responses.budget(&agent(n)));
        }
        assert!(responses.agents.len() <= CLEANUP_THRESHOLD);
        assert_eq!(responses.unread_bytes(), held.len());
    }
}
