//! The state shared by all connections and sessions.

use std::sync::Arc;

use crate::message_budgets::MessageBudgets;
use crate::stateless::Stateless;
use mgp_callers::agent::Agent;
use mgp_callers::agent::supervisor::Agents;
use mgp_callers::request::Routes;
use mgp_callers::{Directory, RegisteredAgents};
use mgp_runtime::task;

/// The context of the actor of a connection or session.
#[derive(Debug, Clone)]
pub struct EndpointContext {
    /// The supervisor of connections and sessions.
    pub agents: Agents,
    /// The table of all methods.
    pub routes: Arc<dyn Routes>,
    /// Handles stateless requests.
    pub stateless: Arc<Stateless>,
    /// Limits the memory for messages.
    pub message_budgets: Arc<MessageBudgets>,
    /// The agents that have a token.
    pub registered_agents: RegisteredAgents,
    /// The connected agents.
    pub directory: Arc<Directory>,
}

/// The directory entry of an agent, held by the state of the actor of its connection or session. However
/// the actor ends, even by a panic, dropping this disconnects the agent and removes the entry.
#[derive(Debug)]
pub(crate) struct AgentPresence {
    endpoint: EndpointContext,
    agent: Arc<Agent>,
}

impl AgentPresence {
    /// Adds an agent to the directory. Called by the actor itself, so that every entry is removed.
    #[must_use]
    pub(crate) fn enter(endpoint: &EndpointContext, agent: &Arc<Agent>) -> Self {
        endpoint.directory.insert(agent.clone());
        Self {
            endpoint: endpoint.clone(),
            agent: agent.clone(),
        }
    }
}

impl Drop for AgentPresence {
    fn drop(&mut self) {
        self.agent.disconnect();
        self.endpoint.directory.remove(self.agent.connection);
        // A second panic during unwinding would abort the process.
        let disconnect = || self.endpoint.routes.handle_disconnect(&self.agent);
        let _ = task::catch_panic_sync("connection.disconnect", disconnect);
    }
}
