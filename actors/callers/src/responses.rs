//! Responses that agents have not read: how many bytes of them the kernel buffers, in all and for each agent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mgp_protocol::ids::AgentId;
use mgp_transports::{ResponseBudget, UnreadBytes};

/// Bytes of all agents: four shares, so that three that read nothing leave room for the others.
const TOTAL_BYTES_MAX: u64 = 4 * AGENT_BYTES_MAX;

/// Bytes of one agent: eight of the longest responses, and as much as one line connection may queue.
const AGENT_BYTES_MAX: u64 = 64 << 20;

/// Agents remembered before those without anything under way are dropped.
const CLEANUP_THRESHOLD: usize = 64;

/// Something of each agent, for as long as anybody holds it.
#[derive(Debug)]
pub struct AgentTable<T>(Mutex<HashMap<AgentId, Weak<T>>>);

impl<T> Default for AgentTable<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> AgentTable<T> {
    /// That of this agent, made when there is none.
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

    /// How many are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// True when none is.
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
    /// What this agent's responses may take.
    #[must_use]
    pub fn budget(&self, agent: &AgentId) -> ResponseBudget {
        let own = self
            .agents
            .get_or_insert(agent, || self.total.share(AGENT_BYTES_MAX));
        ResponseBudget::new(self.total.clone(), own)
    }

    /// Bytes of all agents' responses that are not read.
    #[must_use]
    pub fn unread_bytes(&self) -> u64 {
        self.total.used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_has_one_share_and_is_forgotten_without_a_response() {
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
