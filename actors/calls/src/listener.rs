//! One event subscription of a stateless client, as long as its request is under way.
//! Asked by: nobody; the directory and the subscriptions actor speak to its agent.

use std::sync::Arc;

use mgp_protocol::refusal::Refusal;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use mgp_callers::agent::Agent;
use mgp_callers::agent::supervisor::Agents;
use mgp_callers::directory::Directory;
use mgp_runtime::mailbox::{Alive, Kind};
use mgp_tools::subscriptions::SubscriptionsHandle;

/// What never changes.
#[derive(Debug)]
struct ListenerActor {
    agent: Arc<Agent>,
    directory: Arc<Directory>,
    subscriptions: SubscriptionsHandle,
}

/// Ends the subscription when its request is over.
#[derive(Debug)]
pub struct Listener(ActorRef<()>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.stop(None);
    }
}

/// From now on the agent is among those who are told things.
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
    type Msg = ();
    type State = Alive;
    type Arguments = ();

    async fn pre_start(&self, _myself: ActorRef<()>, (): ()) -> Result<Alive, ActorProcessingErr> {
        self.directory.enter(self.agent.clone());
        Ok(Alive::new(Kind::Listener))
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<()>,
        _alive: &mut Alive,
    ) -> Result<(), ActorProcessingErr> {
        self.directory.leave(self.agent.connection);
        self.subscriptions.leave(self.agent.connection);
        Ok(())
    }
}
