//! What all connections and sessions share.

use std::sync::Arc;

use crate::bodies::Bodies;
use crate::stateless::Stateless;
use mgp_callers::agent::supervisor::Agents;
use mgp_callers::directory::Directory;
use mgp_callers::registered_agents::RegisteredAgents;
use mgp_callers::request::Routes;

/// What the actor of a connection or session needs.
#[derive(Debug, Clone)]
pub struct Reception {
    /// The parent of connections and sessions.
    pub agents: Agents,
    /// The table of all methods.
    pub routes: Arc<dyn Routes>,
    /// Handles stateless requests.
    pub stateless: Arc<Stateless>,
    /// Limits the memory for messages.
    pub bodies: Arc<Bodies>,
    /// The agents that have a token.
    pub registered_agents: RegisteredAgents,
    /// The connected agents.
    pub directory: Arc<Directory>,
}
