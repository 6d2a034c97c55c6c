//! Events: what servers and the kernel publish to subscribers (MGP §13).
//!
//! The hub owns the feeds of all channels and the subscriptions at servers. Each subscription of an agent is an actor
//! below it, which reads the feeds itself. The `calls` crate, supervisors and links send to the hub.

mod entry;
mod feeds;
mod hub;
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
use mgp_sync::credit::{Charge, Credit};
use ractor::{Actor, ActorCell, SpawnErr};
use tokio::sync::oneshot;

use self::hub::EventsActor;
pub use self::last_events::LastEvents;
pub use self::log::AuditEvents;
pub use self::node_topics::NodeTopicEvent;
pub use self::push_channel::{PushChannel, PushedEvent};
use mgp_callers::agent::Agent;
use mgp_callers::directory::Directory;
use mgp_callers::in_flight_call::InFlightCall;
use mgp_callers::request::Caller;
use mgp_runtime::mailbox::{Mailbox, Reply};
use mgp_servers::link::ReportedEvent;
use mgp_servers::server::{ResourceMonitor, ResubscriptionGuard, ServerTable};

/// Bytes of servers' events that may wait for the hub, of all servers together. One more is lost.
const QUEUED_BYTES_MAX: u64 = 16 << 20;

/// The way in for everyone else.
#[derive(Debug, Clone)]
pub struct EventsHandle {
    mailbox: Mailbox<EventsMsg>,
    /// The channels that somebody follows, as bits: nothing is made for the others.
    followed: Arc<AtomicU64>,
    queue_credit: Arc<Credit>,
    directory: Arc<Directory>,
    audit_events: AuditEvents,
}

/// The actor's messages.
#[derive(Debug)]
pub enum EventsMsg {
    /// An agent subscribes to channels; answered when the servers have reported their channels.
    Subscribe(Box<EventsRequest>, Reply<Result<Subscribed, Refusal>>),
    /// An agent of a connection subscribes to changes of a channel's resource.
    Watch(ConnectionId, String, Reply<Result<(), Refusal>>),
    /// It does not any more.
    Unwatch(ConnectionId, String),
    /// `mgp/events/unsubscribe`.
    Unsubscribe(ConnectionId, String, Reply<Result<(), Refusal>>),
    /// `mgp/events/replay`; the subscription answers.
    Replay(ConnectionId, Replay, Reply<Result<Replayed, Refusal>>),
    /// The last events of the resource of a channel, for this caller.
    Last(Arc<Caller>, String, Reply<Result<LastEvents, Refusal>>),
    /// Which channels there are, for this caller.
    Channels(Arc<Caller>, Reply<Vec<Channel>>),
    /// An agent disconnected.
    Leave(ConnectionId),
    /// A server, or an instance, is connected again.
    ServerUp(ServerId, ResubscriptionGuard),
    /// It is not connected any more.
    ServerDown(ServerId),
    /// The server was removed.
    Removed(ServerId),
    /// A server answered a subscription request: with its id of the subscription, if it has such a channel.
    ServerAnswered {
        /// Who.
        server: ServerId,
        /// The number of the connection.
        connection: u64,
        /// The request.
        topic: Topic,
        /// The server's own id.
        id: Option<String>,
    },
    /// How following a topic at another node goes.
    NodeFollowing(Box<NodeTopicEvent>),
    /// Servers that have not answered until now have no such channels.
    AnswersDue(SubscriptionNumber),
    /// An agent cancelled the request of a subscription: it never learns its id.
    Canceled(SubscriptionNumber),
    /// A server published an event.
    ServerEvent(ServerId, Box<ReportedEvent>, Charge),
    /// Something happened in the kernel that is not written down.
    KernelEvent(Box<KernelEvent>),
    /// Records of the audit log, each with its number.
    Recorded(Vec<(u64, String)>, Reply<()>),
    /// The channels of a server's push events; none when it disconnected.
    PushChannels(ServerId, Vec<PushChannel>),
    /// A server pushed an event; answered with the number of its subscribers.
    Push(Box<PushedEvent>, Reply<usize>),
    /// A subscription was too slow.
    TooSlow(SubscriptionNumber),
    /// Other things are open to agents from now on.
    AccessChanged,
}

/// `mgp/events/subscribe` of an agent.
#[derive(Debug)]
pub struct EventsRequest {
    /// Whose.
    pub caller: Arc<Caller>,
    /// What is sent comes after the answer of this request.
    pub call: Arc<InFlightCall>,
    /// As asked.
    pub request: Subscribe,
    /// An agent of another node, whose request stays open.
    pub following: Option<FollowingAgent>,
}

/// An agent of another node that follows a channel.
#[derive(Debug)]
pub struct FollowingAgent {
    /// The recipient of the events.
    pub agent: Arc<Agent>,
    /// Where the end of the events is reported.
    pub end: oneshot::Sender<FollowingEnd>,
}

/// Why the events of an agent of another node end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowingEnd {
    /// The server is not open to it any more.
    Closed,
    /// It read too slowly.
    TooSlow,
}

impl EventsHandle {
    /// Starts the hub.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(
        directory: &Arc<Directory>,
        servers: &Arc<ServerTable>,
        recorded: &AuditEvents,
        figures: &Arc<ResourceMonitor>,
    ) -> Result<(Self, ActorCell), SpawnErr> {
        let followed = Arc::default();
        let actor = EventsActor {
            directory: directory.clone(),
            servers: servers.clone(),
            audit_events: recorded.clone(),
            figures: figures.clone(),
            followed: Arc::clone(&followed),
        };
        let (actor, _) = Actor::spawn(None, actor, ()).await?;
        let cell = actor.get_cell();
        let handle = Self {
            mailbox: Mailbox::new(actor),
            followed,
            queue_credit: Credit::new(QUEUED_BYTES_MAX),
            directory: directory.clone(),
            audit_events: recorded.clone(),
        };
        Ok((handle, cell))
    }

    /// `mgp/events/subscribe`.
    ///
    /// # Errors
    /// A bound, or params that cannot be read.
    pub async fn subscribe(&self, request: EventsRequest) -> Result<Subscribed, Refusal> {
        let request = Box::new(request);
        let asked = |reply| EventsMsg::Subscribe(request, reply);
        self.mailbox.ask(asked).await.map_err(unreachable)?
    }

    /// `mgp/events/unsubscribe`.
    ///
    /// # Errors
    /// An id that is not one of this connection.
    pub async fn unsubscribe(&self, who: ConnectionId, id: String) -> Result<(), Refusal> {
        let asked = |reply| EventsMsg::Unsubscribe(who, id, reply);
        self.mailbox.ask(asked).await.map_err(unreachable)?
    }

    /// `mgp/events/replay`.
    ///
    /// # Errors
    /// An id that is not one of this connection.
    pub async fn replay(&self, who: ConnectionId, asked: Replay) -> Result<Replayed, Refusal> {
        let asked = |reply| EventsMsg::Replay(who, asked, reply);
        self.mailbox.ask(asked).await.map_err(unreachable)?
    }

    /// `mgp/events/channels`.
    ///
    /// # Errors
    /// Only when the kernel itself is in trouble.
    pub async fn channels(&self, caller: Arc<Caller>) -> Result<Vec<Channel>, Refusal> {
        let asked = |reply| EventsMsg::Channels(caller, reply);
        self.mailbox.ask(asked).await.map_err(unreachable)
    }

    /// The last events of a channel that a caller may receive, as JSON text: those in the audit log, and those of
    /// channels with a subscriber.
    ///
    /// # Errors
    /// A URI of no channel.
    pub async fn last(&self, caller: &Arc<Caller>, uri: &str) -> Result<String, Refusal> {
        let asked = |reply| EventsMsg::Last(caller.clone(), uri.to_owned(), reply);
        let last = self.mailbox.ask(asked).await.map_err(unreachable)??;
        Ok(last
            .render(caller, &self.directory, &self.audit_events)
            .await)
    }

    /// From now on a connection is notified when the resource of a channel changes.
    ///
    /// # Errors
    /// A bound, or a URI of no channel.
    pub async fn watch(&self, who: ConnectionId, uri: String) -> Result<(), Refusal> {
        let asked = |reply| EventsMsg::Watch(who, uri, reply);
        self.mailbox.ask(asked).await.map_err(unreachable)?
    }

    /// It is not any more.
    pub fn unwatch(&self, who: ConnectionId, uri: String) {
        let _ = self.mailbox.send_to_self(EventsMsg::Unwatch(who, uri));
    }

    /// An agent disconnected.
    pub fn remove_connection(&self, who: ConnectionId) {
        // Without this, its subscriptions would be stored until the kernel ends.
        let _ = self.mailbox.send_to_self(EventsMsg::Leave(who));
    }

    /// A server is connected again: its agents' subscriptions are requested again.
    pub(crate) fn server_up(&self, server: &ServerId, hold: ResubscriptionGuard) {
        let _ = self
            .mailbox
            .send_to_self(EventsMsg::ServerUp(server.clone(), hold));
    }

    /// A server is not connected any more.
    pub(crate) fn server_down(&self, server: &ServerId) {
        let _ = self
            .mailbox
            .send_to_self(EventsMsg::ServerDown(server.clone()));
    }

    /// A server was removed.
    pub(crate) fn server_removed(&self, server: &ServerId) {
        let _ = self
            .mailbox
            .send_to_self(EventsMsg::Removed(server.clone()));
    }

    /// A server published an event. It is dropped when the mailbox is full.
    pub(crate) fn publish_server_event(&self, server: ServerId, event: Box<ReportedEvent>) {
        let bytes = event.data.len() + event.channel.len() + size_of::<ReportedEvent>();
        if let Some(charge) = self.queue_credit.try_take(bytes as u64) {
            let _ = self
                .mailbox
                .send(EventsMsg::ServerEvent(server, event, charge));
        }
    }

    /// Something happened that is not written down. It is made only where somebody follows its channel, and
    /// lost where too many events wait.
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

    /// The channels of a server's push events from now on; none when it disconnected.
    pub fn set_push_channels(&self, server: ServerId, channels: Vec<PushChannel>) {
        let told = EventsMsg::PushChannels(server, channels);
        let _ = self.mailbox.send_to_self(told);
    }

    /// A server pushed an event: it goes to all subscribers of its channel that may receive it, and is stored for
    /// readers of its resource. Returns the number of subscribers.
    ///
    /// # Errors
    /// Only when the kernel itself is in trouble.
    pub async fn publish_push(&self, event: PushedEvent) -> Result<usize, Refusal> {
        let event = Box::new(event);
        let asked = |reply| EventsMsg::Push(event, reply);
        self.mailbox.ask(asked).await.map_err(unreachable)
    }

    /// Other things are open to agents from now on.
    pub fn access_changed(&self) {
        let _ = self.mailbox.send_to_self(EventsMsg::AccessChanged);
    }
}

fn channel_bit(channel: KernelChannel) -> u64 {
    let place = KernelChannel::ALL.iter().position(|own| *own == channel);
    1 << place.unwrap_or_default()
}

fn unreachable(error: mgp_runtime::mailbox::AskError) -> Refusal {
    Refusal::Internal(format!("events: {error}"))
}

/// One error for an unknown id and for another caller's.
fn unknown_subscription(id: &str) -> Refusal {
    Refusal::Denied(Box::new(Denial::NoSubscription { id: id.to_owned() }))
}
