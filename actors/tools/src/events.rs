//! Events: what servers and the kernel publish to subscribers (MGP §13).
//!
//! The events actor owns the feeds of all channels and the subscriptions at servers. Each subscription of an agent is
//! an actor below it, which reads the feeds itself. The `calls` crate, supervisors and links send to the events actor.

mod actor;
mod entry;
mod feeds;
mod last_events;
mod log;
mod node_following;
mod node_topics;
mod push_channel;
mod push_events;
mod resources;
mod subscribing;
mod subscription;
mod upstream;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mgp_engine::tools::events::SubscriptionNumber;
use mgp_engine::tools::events::Topic;
use mgp_engine::tools::events::channels::{KernelChannel, KernelEvent};
use mgp_protocol::ids::{ConnectionId, ServerId};
use mgp_protocol::mgp::events::{Channel, Replay, Replayed, Subscribe, Subscribed};
use mgp_protocol::refusal::{Denial, Refusal};
use mgp_sync::{Charge, Credit};
use ractor::{Actor, ActorCell, SpawnErr};
use tokio::sync::oneshot;

use self::actor::EventsActor;
pub(crate) use self::last_events::LastEvents;
pub use self::log::AuditEvents;
pub(crate) use self::node_topics::NodeTopicEvent;
pub use self::push_channel::{PushChannel, PushedEvent};
use mgp_callers::agent::Agent;
use mgp_callers::request::Caller;
use mgp_callers::{Directory, InFlightCall};
use mgp_runtime::{Mailbox, Reply};
use mgp_servers::link::ReportedEvent;
use mgp_servers::{ResourceMonitor, ResubscriptionGuard, ServerTable};

/// Bytes of servers' events that may wait in the mailbox, of all servers together. Further ones are dropped.
const QUEUED_BYTES_MAX: u64 = 16 << 20;

/// Handle of the events actor.
#[derive(Debug, Clone)]
pub struct EventsHandle {
    mailbox: Mailbox<EventsMsg>,
    /// The channels with subscribers, as bits: no events are built for the others.
    followed: Arc<AtomicU64>,
    queue_credit: Arc<Credit>,
    directory: Arc<Directory>,
    audit_events: AuditEvents,
}

/// Messages to the events actor.
#[derive(Debug)]
pub enum EventsMsg {
    /// An agent subscribes to channels; answered once the servers have reported their channels.
    Subscribe(Box<EventsRequest>, Reply<Result<Subscribed, Refusal>>),
    /// A connection subscribes to changes of a channel's resource.
    Watch(ConnectionId, String, Reply<Result<(), Refusal>>),
    /// A connection unsubscribes from a channel's resource.
    Unwatch(ConnectionId, String),
    /// `mgp/events/unsubscribe`.
    Unsubscribe(ConnectionId, String, Reply<Result<(), Refusal>>),
    /// `mgp/events/replay`; the subscription answers.
    Replay(ConnectionId, Replay, Reply<Result<Replayed, Refusal>>),
    /// Reads the last events of a channel's resource for a caller.
    Last(Arc<Caller>, String, Reply<Result<LastEvents, Refusal>>),
    /// Lists the channels that a caller may receive.
    Channels(Arc<Caller>, Reply<Vec<Channel>>),
    /// An agent disconnected.
    Leave(ConnectionId),
    /// A server or an instance is connected again.
    ServerUp(ServerId, ResubscriptionGuard),
    /// A server is disconnected.
    ServerDown(ServerId),
    /// A server was removed.
    Removed(ServerId),
    /// A server answered a subscription request: with its id of the subscription, if it has such a channel.
    ServerAnswered {
        /// The server.
        server: ServerId,
        /// The number of the link.
        connection: u64,
        /// The topic of the request.
        topic: Topic,
        /// The server's own id.
        id: Option<String>,
    },
    /// An event of a topic that is followed at another node.
    NodeFollowing(Box<NodeTopicEvent>),
    /// The time for answers is over: servers that have not answered count as without the channels.
    AnswersDue(SubscriptionNumber),
    /// An agent cancelled the request of a subscription: it never learns the id.
    Canceled(SubscriptionNumber),
    /// A server published an event.
    ServerEvent(ServerId, Box<ReportedEvent>, Charge),
    /// The kernel published an event that is not in the audit log.
    KernelEvent(Box<KernelEvent>),
    /// Records of the audit log, each with its number.
    Recorded(Vec<(u64, String)>, Reply<()>),
    /// The channels of a server's push events; none when it disconnected.
    PushChannels(ServerId, Vec<PushChannel>),
    /// A server pushed an event; answered with the number of its receivers.
    Push(Box<PushedEvent>, Reply<usize>),
    /// A subscription was too slow.
    TooSlow(SubscriptionNumber),
    /// The rights of agents have changed.
    AccessChanged,
}

/// `mgp/events/subscribe` of an agent.
#[derive(Debug)]
pub struct EventsRequest {
    /// The subscriber.
    pub caller: Arc<Caller>,
    /// The call: no event is sent before its response.
    pub call: Arc<InFlightCall>,
    /// The request.
    pub request: Subscribe,
    /// An agent of another node, whose request stays open.
    pub following: Option<FollowingAgent>,
}

/// An agent of another node that follows a channel.
#[derive(Debug)]
pub struct FollowingAgent {
    /// The recipient of the events.
    pub agent: Arc<Agent>,
    /// Receives the reason when the events end.
    pub end: oneshot::Sender<FollowingEnd>,
}

/// Why the events of an agent of another node end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowingEnd {
    /// The agent may no longer use the server.
    Closed,
    /// It read too slowly.
    TooSlow,
}

impl EventsHandle {
    /// Starts the events actor.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn start(
        directory: &Arc<Directory>,
        servers: &Arc<ServerTable>,
        audit_events: &AuditEvents,
        monitor: &Arc<ResourceMonitor>,
    ) -> Result<(Self, ActorCell), SpawnErr> {
        let followed = Arc::default();
        let actor = EventsActor {
            directory: directory.clone(),
            servers: servers.clone(),
            audit_events: audit_events.clone(),
            monitor: monitor.clone(),
            followed: Arc::clone(&followed),
        };
        let (actor, _) = Actor::spawn(None, actor, ()).await?;
        let cell = actor.get_cell();
        let handle = Self {
            mailbox: Mailbox::new(actor),
            followed,
            queue_credit: Credit::new(QUEUED_BYTES_MAX),
            directory: directory.clone(),
            audit_events: audit_events.clone(),
        };
        Ok((handle, cell))
    }

    /// `mgp/events/subscribe`.
    ///
    /// # Errors
    /// A bound, or params that cannot be read.
    pub async fn subscribe(&self, request: EventsRequest) -> Result<Subscribed, Refusal> {
        let request = Box::new(request);
        let ask = |reply| EventsMsg::Subscribe(request, reply);
        self.mailbox.ask(ask).await.map_err(unreachable)?
    }

    /// `mgp/events/unsubscribe`.
    ///
    /// # Errors
    /// The id is not one of this connection.
    pub async fn unsubscribe(&self, connection: ConnectionId, id: String) -> Result<(), Refusal> {
        let ask = |reply| EventsMsg::Unsubscribe(connection, id, reply);
        self.mailbox.ask(ask).await.map_err(unreachable)?
    }

    /// `mgp/events/replay`.
    ///
    /// # Errors
    /// The id is not one of this connection.
    pub async fn replay(
        &self,
        connection: ConnectionId,
        request: Replay,
    ) -> Result<Replayed, Refusal> {
        let ask = |reply| EventsMsg::Replay(connection, request, reply);
        self.mailbox.ask(ask).await.map_err(unreachable)?
    }

    /// `mgp/events/channels`.
    ///
    /// # Errors
    /// The events actor is not reachable.
    pub async fn channels(&self, caller: Arc<Caller>) -> Result<Vec<Channel>, Refusal> {
        let ask = |reply| EventsMsg::Channels(caller, reply);
        self.mailbox.ask(ask).await.map_err(unreachable)
    }

    /// The last events of a channel that a caller may receive, as JSON text: those in the audit log, and those of
    /// channels with a subscriber.
    ///
    /// # Errors
    /// No channel has this URI.
    pub async fn last(&self, caller: &Arc<Caller>, uri: &str) -> Result<String, Refusal> {
        let ask = |reply| EventsMsg::Last(caller.clone(), uri.to_owned(), reply);
        let last = self.mailbox.ask(ask).await.map_err(unreachable)??;
        Ok(last
            .render(caller, &self.directory, &self.audit_events)
            .await)
    }

    /// Notifies a connection of changes of a channel's resource.
    ///
    /// # Errors
    /// A limit, or no channel has this URI.
    pub async fn watch(&self, connection: ConnectionId, uri: String) -> Result<(), Refusal> {
        let ask = |reply| EventsMsg::Watch(connection, uri, reply);
        self.mailbox.ask(ask).await.map_err(unreachable)?
    }

    /// Stops such notifications.
    pub fn unwatch(&self, connection: ConnectionId, uri: String) {
        let _ = self
            .mailbox
            .send_to_self(EventsMsg::Unwatch(connection, uri));
    }

    /// Removes the subscriptions of a disconnected agent.
    pub fn remove_connection(&self, connection: ConnectionId) {
        // If this message were lost, its subscriptions would stay until the kernel ends.
        let _ = self.mailbox.send_to_self(EventsMsg::Leave(connection));
    }

    /// Requests subscriptions again at a server that is connected again.
    pub(crate) fn server_up(&self, server: &ServerId, guard: ResubscriptionGuard) {
        let _ = self
            .mailbox
            .send_to_self(EventsMsg::ServerUp(server.clone(), guard));
    }

    /// Marks a server as disconnected.
    pub(crate) fn server_down(&self, server: &ServerId) {
        let _ = self
            .mailbox
            .send_to_self(EventsMsg::ServerDown(server.clone()));
    }

    /// Ends the subscriptions at a server that was removed.
    pub(crate) fn server_removed(&self, server: &ServerId) {
        let _ = self
            .mailbox
            .send_to_self(EventsMsg::Removed(server.clone()));
    }

    /// Publishes an event of a server. It is dropped when the mailbox is full.
    pub(crate) fn publish_server_event(&self, server: ServerId, event: Box<ReportedEvent>) {
        let bytes = event.data.len() + event.channel.len() + size_of::<ReportedEvent>();
        if let Some(charge) = self.queue_credit.try_take(bytes as u64) {
            let _ = self
                .mailbox
                .send(EventsMsg::ServerEvent(server, event, charge));
        }
    }

    /// Publishes an event that is not in the audit log. It is built only if its channel has subscribers, and dropped
    /// when the mailbox is full.
    pub fn publish_kernel_event(
        &self,
        channel: KernelChannel,
        event: impl FnOnce() -> KernelEvent,
    ) {
        if self.followed.load(Ordering::Relaxed) & channel_bit(channel) != 0 {
            let event = Box::new(event());
            let _ = self.mailbox.send(EventsMsg::KernelEvent(event));
        }
    }

    /// Replaces the channels of a server's push events; none when it disconnected.
    pub fn set_push_channels(&self, server: ServerId, channels: Vec<PushChannel>) {
        let message = EventsMsg::PushChannels(server, channels);
        let _ = self.mailbox.send_to_self(message);
    }

    /// Sends a server's push event to all subscribers of its channel that may receive it, and stores it for readers of
    /// its resource. Returns the number of receivers.
    ///
    /// # Errors
    /// The events actor is not reachable.
    pub async fn publish_push(&self, event: PushedEvent) -> Result<usize, Refusal> {
        let event = Box::new(event);
        let ask = |reply| EventsMsg::Push(event, reply);
        self.mailbox.ask(ask).await.map_err(unreachable)
    }

    /// Checks all subscriptions again after a change of rights.
    pub fn access_changed(&self) {
        let _ = self.mailbox.send_to_self(EventsMsg::AccessChanged);
    }
}

fn channel_bit(channel: KernelChannel) -> u64 {
    let position = KernelChannel::ALL
        .iter()
        .position(|other| *other == channel);
    1 << position.unwrap_or_default()
}

fn unreachable(error: mgp_runtime::AskError) -> Refusal {
    Refusal::Internal(format!("events: {error}"))
}

/// The same error for an unknown id and for another caller's.
fn unknown_subscription(id: &str) -> Refusal {
    Refusal::Denied(Box::new(Denial::NoSubscription { id: id.to_owned() }))
}
