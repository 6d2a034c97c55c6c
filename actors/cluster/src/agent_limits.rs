//! Concurrency limits for the agents of a node on one link, so that no agent uses up the capacity of the
//! others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::calls::extensions::is_relayable_method;
use mgp_protocol::ids::AgentId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most in-flight calls of one agent at one node: a quarter of those that all agents of its node have
/// there together ([`mgp_transports::quic::MAX_CALLS`]), so that a busy agent leaves three quarters to the
/// others. Further calls wait in order of arrival, within their own deadlines.
pub const CALLS_PER_AGENT: usize = 64;

/// The methods that need a permit, besides those of extensions: those that make a server work. Methods that end, answer
/// or query a call never wait for one.
const LIMITED_METHODS: [&str; 4] = [
    "tools/call",
    "prompts/get",
    "resources/read",
    "completion/complete",
];

/// The limits for one direction of a link. Bounded by the calls of the link: an agent without calls is
/// removed.
#[derive(Debug, Default)]
pub struct AgentLimits {
    agents: Mutex<HashMap<AgentId, Arc<Semaphore>>>,
}

/// A permit of one agent; released on drop.
#[derive(Debug)]
pub struct AgentPermit {
    permit: Option<OwnedSemaphorePermit>,
    agent: AgentId,
    limits: Arc<AgentLimits>,
}

/// True if a method needs a permit.
#[must_use]
pub fn needs_permit(method: &str) -> bool {
    LIMITED_METHODS.contains(&method) || is_relayable_method(method)
}

impl AgentLimits {
    /// Waits for a permit of this agent.
    pub async fn acquire(self: &Arc<Self>, agent: &AgentId) -> AgentPermit {
        let permits = {
            let mut agents = self.lock_agents();
            let permits = agents.entry(agent.clone());
            Arc::clone(permits.or_insert_with(|| Arc::new(Semaphore::new(CALLS_PER_AGENT))))
        };
        // Created first, so that a cancelled wait leaves nothing behind.
        let mut permit = AgentPermit {
            permit: None,
            agent: agent.clone(),
            limits: Arc::clone(self),
        };
        permit.permit = permits.acquire_owned().await.ok();
        permit
    }

    /// The number of in-flight calls of all agents.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let agents = self.lock_agents();
        let in_flight = agents
            .values()
            .map(|permits| CALLS_PER_AGENT.saturating_sub(permits.available_permits()));
        in_flight.sum::<usize>() as u64
    }

    fn lock_agents(&self) -> MutexGuard<'_, HashMap<AgentId, Arc<Semaphore>>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AgentPermit {
    fn drop(&mut self) {
        self.permit = None;
        let mut agents = self.limits.lock_agents();
        // A waiting call holds a reference, too.
        let unused = |permits: &Arc<Semaphore>| {
            Arc::strong_count(permits) == 1 && permits.available_permits() == CALLS_PER_AGENT
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

    /// A busy agent delays only its own calls; a cancelled wait passes its permit on.
    #[tokio::test]
    async fn busy_agent_takes_no_permits_of_another() {
        let limits = Arc::new(AgentLimits::default());
        let (busy, other) = (AgentId::new("agent.busy"), AgentId::new("agent.other"));
        let mut held = Vec::new();
        for _ in 0..CALLS_PER_AGENT {
            held.push(
                limits
                    .acquire(&busy)
                    .now_or_never()
                    .expect("a permit is free"),
            );
        }
        assert_eq!(limits.in_flight(), CALLS_PER_AGENT as u64);
        assert!(
            limits.acquire(&busy).now_or_never().is_none(),
            "none is left"
        );
        assert!(limits.acquire(&other).now_or_never().is_some());
        let next = tokio::spawn({
            let (limits, busy) = (Arc::clone(&limits), busy.clone());
            async move { limits.acquire(&busy).await }
        });
        held.pop();
        let next = tokio::time::timeout(Duration::from_secs(5), next).await;
        let next = next.expect("the next one has its permit").unwrap();
        drop((held, next));
        assert!(limits.lock_agents().is_empty(), "nobody is remembered");
    }

    #[test]
    fn methods_that_end_or_answer_a_call_need_no_permit() {
        for method in ["mgp/stream/cancel", "mgp/callback/respond", "tasks/cancel"] {
            assert!(!needs_permit(method), "{method}");
        }
        assert!(needs_permit("tools/call"));
    }
}
