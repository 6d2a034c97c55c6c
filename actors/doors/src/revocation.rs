//! Ends everything of an agent when its credential is revoked.

use std::sync::{Arc, OnceLock};

use mgp_protocol::ids::AgentId;

use crate::session::Sessions;
use mgp_callers::Directory;
use mgp_callers::request::suspended_calls::SuspendedCalls;
use mgp_callers::tasks::Tasks;

/// The places where an agent may have requests, connections or tasks.
#[derive(Debug)]
pub struct Revocation {
    /// Connections and listeners.
    pub directory: Arc<Directory>,
    /// Suspended calls.
    pub suspended: Arc<SuspendedCalls>,
    /// Tasks.
    pub tasks: Arc<Tasks>,
    /// Legacy sessions, once the HTTP endpoint is open.
    pub sessions: OnceLock<Arc<Sessions>>,
}

impl Revocation {
    /// Ends the agent's sessions, connections, streams, suspended calls and tasks. New ones are not ended,
    /// so the credential must be revoked first.
    pub async fn end_agent(&self, agent: &AgentId) {
        if let Some(sessions) = self.sessions.get() {
            sessions.close_agent_sessions(agent);
        }
        self.directory.disconnect_agent(agent);
        self.suspended.cancel_for_agent(agent);
        self.tasks.cancel_for_agent(agent).await;
    }
}
