//! What the actors of connections and sessions share.

use std::sync::Arc;

use crate::bodies::Bodies;
use crate::stateless::Stateless;
use mgp_callers::agent::supervisor::Agents;
use mgp_callers::directory::Directory;
use mgp_callers::registered_agents::RegisteredAgents;
use mgp_callers::request::Routes;

/// What every agent's actor needs.
#[derive(Debug, Clone)]
pub struct Reception {
    /// The parent of connections and sessions.
    pub agents: Agents,
    /// Who answers what.
    pub routes: Arc<dyn Routes>,
    /// Answers requests that stand alone.
    pub stateless: Arc<Stateless>,
    /// Room for their messages.
    pub bodies: Arc<Bodies>,
    /// Which agents have a token.
    pub registered_agents: RegisteredAgents,
    /// Who is connected.
    pub directory: Arc<Directory>,
}
