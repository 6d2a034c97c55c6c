//! Requests between agents: consent, in-flight requests, and the connection that reaches an agent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::callers::agent_requests::{self, AgentRequestError, AgentRequestId};
use mgp_protocol::ids::AgentId;

/// The in-flight requests between agents.
#[derive(Debug, Clone, Default)]
pub struct AgentRequests(Arc<Mutex<agent_requests::AgentRequests>>);

/// One in-flight request. Dropping it ends the request.
#[derive(Debug)]
pub struct AgentRequestGuard {
    requests: AgentRequests,
    number: AgentRequestId,
}

impl AgentRequests {
    /// Begins a request from one agent to another.
    ///
    /// # Errors
    /// [`AgentRequestError`].
    pub fn begin(
        &self,
        asker: &AgentId,
        target: &AgentId,
    ) -> Result<AgentRequestGuard, AgentRequestError> {
        let number = self.lock_engine().begin(asker, target)?;
        let asks = self.clone();
        Ok(AgentRequestGuard {
            requests: asks,
            number,
        })
    }

    fn lock_engine(&self) -> MutexGuard<'_, agent_requests::AgentRequests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AgentRequestGuard {
    fn drop(&mut self) {
        self.requests.lock_engine().end(self.number);
    }
}
