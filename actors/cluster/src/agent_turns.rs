//! The turns that agents have on one link: no agent of a node takes those of its others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_protocol::ids::AgentId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls that one agent has under way at one node: a quarter of those that all agents of its node have there together
/// ([`mgp_transports::quic::CALLS`]), so that a busy one leaves three quarters to the others. The next ones wait for
/// their turn, in the order in which they came, within their own time.
pub const CALLS_OF_AGENT: usize = 64;

/// Methods that have a turn: those by which a server works. What ends, answers or asks about a call never waits for
/// one.
const WORK: [&str; 4] = [
    "tools/call",
    "prompts/get",
    "resources/read",
    "completion/complete",
];

/// One way over a link. Bounded by the calls of the link, for an agent without any is forgotten.
#[derive(Debug, Default)]
pub struct AgentTurns {
    agents: Mutex<HashMap<AgentId, Arc<Semaphore>>>,
}

/// A turn; it ends when this is dropped.
#[derive(Debug)]
pub struct AgentTurn {
    permit: Option<OwnedSemaphorePermit>,
    agent: AgentId,
    turns: Arc<AgentTurns>,
}

/// Whether a method takes a turn.
#[must_use]
pub fn takes_turn(method: &str) -> bool {
    WORK.contains(&method)
}

impl AgentTurns {
    /// Waits for a turn of this agent.
    pub async fn enter(self: &Arc<Self>, agent: &AgentId) -> AgentTurn {
        let turns = {
            let mut agents = self.agents();
            let turns = agents.entry(agent.clone());
            Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(CALLS_OF_AGENT))))
        };
        // Made first: who gives up waiting leaves nothing behind.
        let mut turn = AgentTurn {
            permit: None,
            agent: agent.clone(),
            turns: Arc::clone(self),
        };
        turn.permit = turns.acquire_owned().await.ok();
        turn
    }

    /// Calls that are under way, of all agents.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        let agents = self.agents();
        let taken = agents
            .values()
            .map(|turns| CALLS_OF_AGENT.saturating_sub(turns.available_permits()));
        taken.sum::<usize>() as u64
    }

    fn agents(&self) -> MutexGuard<'_, HashMap<AgentId, Arc<Semaphore>>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AgentTurn {
    fn drop(&mut self) {
        self.permit = None;
        let mut agents = self.turns.agents();
        // Whoever waits for one holds it, too.
        let unused = |turns: &Arc<Semaphore>| {
            Arc::strong_count(turns) == 1 && turns.available_permits() == CALLS_OF_AGENT
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
        let turns = Arc::new(AgentTurns::default());
        let (busy, other) = (AgentId::new("agent.busy"), AgentId::new("agent.other"));
        let mut held = Vec::new();
        for _ in 0..CALLS_OF_AGENT {
            held.push(turns.enter(&busy).now_or_never().expect("a turn is free"));
        }
        assert_eq!(turns.under_way(), CALLS_OF_AGENT as u64);
        assert!(turns.enter(&busy).now_or_never().is_none(), "none is left");
        assert!(turns.enter(&other).now_or_never().is_some());
        let next = tokio::spawn({
            let (turns, busy) = (Arc::clone(&turns), busy.clone());
            async move { turns.enter(&busy).await }
        });
        held.pop();
        let next = tokio::time::timeout(Duration::from_secs(5), next).await;
        let next = next.expect("the next one has its turn").unwrap();
        drop((held, next));
        assert!(turns.agents().is_empty(), "nobody is remembered");
    }

    #[test]
    fn what_ends_or_answers_a_call_waits_for_no_turn() {
        for method in ["mgp/stream/cancel", "mgp/callback/respond", "tasks/cancel"] {
            assert!(!takes_turn(method), "{method}");
        }
        assert!(takes_turn("tools/call"));
    }
}
