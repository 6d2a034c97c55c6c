//! What an agent has under way in the kernel, to be ended when it may not go on.

use std::sync::{Arc, OnceLock};

use mgp_protocol::ids::AgentId;

use crate::session::Sessions;
use mgp_callers::directory::Directory;
use mgp_callers::request::suspended_calls::SuspendedCalls;
use mgp_callers::tasks::Tasks;

/// Where agents have things under way.
#[derive(Debug)]
pub struct Revocation {
    /// Connections, and what listens.
    pub directory: Arc<Directory>,
    /// Calls that wait for their clients.
    pub suspended: Arc<SuspendedCalls>,
    /// Calls that became tasks.
    pub tasks: Arc<Tasks>,
    /// Legacy sessions, once there is a door for them.
    pub sessions: OnceLock<Arc<Sessions>>,
}

impl Revocation {
    /// Ends everything of this agent: its sessions, connections, streams, suspended calls and tasks.
    /// What comes after this call is not ended: withdraw first what lets the agent in.
    pub async fn end(&self, agent: &AgentId) {
        if let Some(sessions) = self.sessions.get() {
            sessions.end_of(agent);
        }
        self.directory.end_of(agent);
        self.suspended.end_of(agent);
        self.tasks.end_of(agent).await;
    }
}
