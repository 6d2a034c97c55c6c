//! The turns that agents have on one link: no agent of a node takes those of its others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_protocol::ids::AgentId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls that one agent has under way at one node: a quarter of those that all agents of its node have there together
/// ([`mgp_transports::quic::MAX_CALLS`]), so that a busy one leaves three quarters to the others. The next ones wait for
/// their turn, in the order in which they came, within their own time.
pub const CALLS_PER_AGENT: usize = 64;

/// Methods that have a turn: those by which a server works. What ends, answers or asks about a call never waits for
/// one.
const LIMITED_METHODS: [&str; 4] = [
    "tools/call",
    "prompts/get",
    "resources/read",
    "completion/complete",
];

/// One way over a link. Bounded by the calls of the link, for an agent without any is forgotten.
#[derive(Debug, Default)]
pub struct AgentLimits {
    agents: Mutex<HashMap<AgentId, Arc<Semaphore>>>,
}

/// A turn; it ends when this is dropped.
#[derive(Debug)]
pub struct AgentPermit {
    permit: Option<OwnedSemaphorePermit>,
    agent: AgentId,
    limits: Arc<AgentLimits>,
}

/// Whether a method takes a turn.
#[must_use]
pub fn needs_permit(method: &str) -> bool {
    LIMITED_METHODS.contains(&method)
}

impl AgentLimits {
    /// Waits for a turn of this agent.
    pub async fn acquire(self: &Arc<Self>, agent: &AgentId) -> AgentPermit {
        let turns = {
            let mut agents = self.lock_agents();
            let turns = agents.entry(agent.clone());
            Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(CALLS_PER_AGENT))))
        };
        // Made first: who gives up waiting leaves nothing behind.
        let mut turn = AgentPermit {
            permit: None,
            agent: agent.clone(),
            limits: Arc::clone(self),
        };
        turn.permit = turns.acquire_owned().await.ok();
        turn
    }

    /// Calls that are under way, of all agents.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let agents = self.lock_agents();
        let taken = agents
            .values()
            .map(|turns| CALLS_PER_AGENT.saturating_sub(turns.available_permits()));
        taken.sum::<usize>() as u64
    }

    fn lock_agents(&self) -> MutexGuard<'_, HashMap<AgentId, Arc<Semaphore>>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AgentPermit {
    fn drop(&mut self) {
        self.permit = None;
        let mut agents = self.limits.lock_agents();
        // Whoever waits for one holds it, too.
        let unused = |turns: &Arc<Semaphore>| {
            Arc::strong_count(turns) == 1 && turns.available_permits() == CALLS_PER_AGENT
        };
        if agents.get(&self.agent).is_some_and(unused) {
            agents.remove(&self.agent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;

    /// A busy agent waits for itself alone; who gives up leaves its turn to the next one.
    #[tokio::test]
    async fn one_agent_takes_no_turns_of_another() {
        let turns = Arc::new(AgentLimits::default());
        let (busy, other) = (AgentId::new("agent.busy"), AgentId::new("agent.other"));
        let mut held = Vec::new();
        for _ in 0..CALLS_PER_AGENT {
            held.push(turns.acquire(&busy).now_or_never().expect("a turn is free"));
        }
        assert_eq!(turns.in_flight(), CALLS_PER_AGENT as u64);
        assert!(
            turns.acquire(&busy).now_or_never().is_none(),
            "none is left"
        );
        assert!(turns.acquire(&other).now_or_never().is_some());
        let next = tokio::spawn({
            let (turns, busy) = (Arc::clone(&turns), busy.clone());
            async move { turns.acquire(&busy).await }
        });
        held.pop();
        let next = tokio::time::timeout(Duration::from_secs(5), next).await;
        let next = next.expect("the next one has its turn").unwrap();
        drop((held, next));
        assert!(turns.lock_agents().is_empty(), "nobody is remembered");
    }

    #[test]
    fn what_ends_or_answers_a_call_waits_for_no_turn() {
        for method in ["mgp/stream/cancel", "mgp/callback/respond", "tasks/cancel"] {
            assert!(!needs_permit(method), "{method}");
        }
        assert!(needs_permit("tools/call"));
    }
}
