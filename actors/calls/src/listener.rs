//! The actor of one `subscriptions/listen` of a stateless client; it lives as long as that request. The directory and
//! the subscriptions actor send to its agent; the actor itself gets no messages.

use std::sync::Arc;

use mgp_protocol::ids::ConnectionId;
use mgp_protocol::refusal::Refusal;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinHandle;

use mgp_callers::Directory;
use mgp_callers::agent::Agent;
use mgp_callers::agent::supervisor::Agents;
use mgp_runtime::{ActorCountGuard, CountedKind};
use mgp_tools::{EventsHandle, SubscriptionsHandle};

/// Fixed at construction.
#[derive(Debug)]
struct ListenerActor {
    agent: Arc<Agent>,
    directory: Arc<Directory>,
    subscriptions: SubscriptionsHandle,
    events: EventsHandle,
}

/// Ends the subscription when it is dropped.
#[derive(Debug)]
pub struct Listener {
    actor: ActorRef<ListenerMsg>,
    ended: JoinHandle<()>,
}

impl Listener {
    /// Resolves when the actor was lost and nothing is received any more.
    pub async fn wait_until_lost(&mut self) {
        let _ = (&mut self.ended).await;
    }
}

/// There are no messages.
#[derive(Debug)]
pub enum ListenerMsg {}

impl Drop for Listener {
    fn drop(&mut self) {
        self.actor.stop(None);
    }
}

/// Starts the actor; from now on its agent receives events.
///
/// # Errors
/// [`Refusal::Internal`] when the kernel is ending.
pub async fn start(
    agents: &Agents,
    directory: &Arc<Directory>,
    (subscriptions, events): (&SubscriptionsHandle, &EventsHandle),
    agent: &Arc<Agent>,
) -> Result<Listener, Refusal> {
    let actor = ListenerActor {
        agent: agent.clone(),
        directory: directory.clone(),
        subscriptions: subscriptions.clone(),
        events: events.clone(),
    };
    let spawned = Actor::spawn_linked(None, actor, (), agents.get_cell()).await;
    let (actor, ended) = spawned.map_err(|_| Refusal::Internal("the kernel is stopping".into()))?;
    Ok(Listener { actor, ended })
}

impl Actor for ListenerActor {
    type Msg = ListenerMsg;
    type State = ListenerState;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<ListenerMsg>,
        (): (),
    ) -> Result<ListenerState, ActorProcessingErr> {
        self.directory.insert(self.agent.clone());
        Ok(ListenerState {
            connection: self.agent.connection,
            directory: self.directory.clone(),
            subscriptions: self.subscriptions.clone(),
            events: self.events.clone(),
            _alive: ActorCountGuard::new(CountedKind::Listener),
        })
    }
}

/// Its entry in the directory and among the subscribers; removed on drop, however the actor ends.
#[derive(Debug)]
struct ListenerState {
    connection: ConnectionId,
    directory: Arc<Directory>,
    subscriptions: SubscriptionsHandle,
    events: EventsHandle,
    _alive: ActorCountGuard,
}

impl Drop for ListenerState {
    fn drop(&mut self) {
        self.directory.remove(self.connection);
        self.subscriptions.remove_connection(self.connection);
        self.events.remove_connection(self.connection);
    }
}
