//! The actor of one `subscriptions/listen` of a stateless client; it lives as long as that request.
//! The directory and the subscriptions actor send to its agent; the actor itself gets no messages.

use std::sync::Arc;

use mgp_protocol::refusal::Refusal;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use mgp_callers::agent::Agent;
use mgp_callers::agent::supervisor::Agents;
use mgp_callers::directory::Directory;
use mgp_runtime::mailbox::{Alive, Kind};
use mgp_tools::subscriptions::SubscriptionsHandle;

/// Fixed at construction.
#[derive(Debug)]
struct ListenerActor {
    agent: Arc<Agent>,
    directory: Arc<Directory>,
    subscriptions: SubscriptionsHandle,
}

/// Dropped with the actor: ends the subscription.
#[derive(Debug)]
pub struct Listener(ActorRef<ListenerMsg>);

/// There are no messages.
#[derive(Debug)]
pub enum ListenerMsg {}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.stop(None);
    }
}

/// Starts the actor; from now on its agent receives events.
///
/// # Errors
/// [`Refusal::Broken`] when the kernel is ending.
pub async fn begin(
    agents: &Agents,
    directory: &Arc<Directory>,
    subscriptions: &SubscriptionsHandle,
    agent: &Arc<Agent>,
) -> Result<Listener, Refusal> {
    let actor = ListenerActor {
        agent: agent.clone(),
        directory: directory.clone(),
        subscriptions: subscriptions.clone(),
    };
    let spawned = Actor::spawn_linked(None, actor, (), agents.get_cell()).await;
    let (actor, _) = spawned.map_err(|_| Refusal::Broken("the kernel is stopping".into()))?;
    Ok(Listener(actor))
}

impl Actor for ListenerActor {
    type Msg = ListenerMsg;
    type State = Alive;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<ListenerMsg>,
        (): (),
    ) -> Result<Alive, ActorProcessingErr> {
        self.directory.enter(self.agent.clone());
        Ok(Alive::new(Kind::Listener))
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<ListenerMsg>,
        _alive: &mut Alive,
    ) -> Result<(), ActorProcessingErr> {
        self.directory.leave(self.agent.connection);
        self.subscriptions.leave(self.agent.connection);
        Ok(())
    }
}
