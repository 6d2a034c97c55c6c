//! Supervises the connections of all agents: a failing one does not affect the others.

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

/// Parent of every connection and session. Receives no messages.
#[derive(Debug)]
pub struct AgentsActor;

/// The address of the supervisor, for linking.
pub type Agents = ActorRef<()>;

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
