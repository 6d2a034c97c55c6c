//! Supervises the connections of all agents: one that fails takes nobody along.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

/// Parent of every connection and session. Has nothing to be told.
#[derive(Debug)]
pub struct AgentsActor;

/// Its address, to be linked to.
pub type Agents = ActorRef<()>;

/// What every agent's actor needs.
#[derive(Debug, Clone)]
pub struct Reception {
    /// The parent of connections and sessions.
    pub agents: Agents,
    /// Who answers what.
    pub routes: Arc<dyn crate::request::Routes>,
    /// Answers requests that stand alone.
    pub stateless: Arc<crate::stateless::Stateless>,
    /// Room for their messages.
    pub bodies: Arc<crate::bodies::Bodies>,
    /// Which agents have a token.
    pub rostered: crate::roster::Rostered,
    /// Who is connected.
    pub directory: Arc<crate::directory::Directory>,
}

impl Actor for AgentsActor {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _myself: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<()>,
        event: SupervisionEvent,
        _state: &mut (),
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(who, error) = event {
            tracing::error!(actor = ?who.get_id(), %error, "an agent's actor failed");
        }
        Ok(())
    }
}
