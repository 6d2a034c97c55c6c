//! A live connection to one server: its pending calls and its transport.
//!
//! The data plane of the kernel: a call registers in the pending table, is written, and waits; the
//! reader of the connection settles it. No mailbox is involved.

mod alongside;
pub(crate) mod call_places;
mod call_queue;
mod calls;
#[cfg(test)]
mod ending_tests;
mod envelope;
mod event;
mod following;
mod from_servers;
mod inbound;
mod late_messages;
mod listening;
pub mod question;
#[cfg(test)]
pub(crate) mod scripted;
mod tasks;
mod wire;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::callers::request_ids::RequestIds;
use mgp_engine::servers::log_levels::LogLevel;
use mgp_engine::servers::spec::{QuestionAttribution, ServerLimits};
use mgp_engine::tools::events::flow::EventFlow;
use mgp_protocol::dialect::{Era, Version};
use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::ServerCapabilities;
use mgp_protocol::mcpl;
use mgp_protocol::mgp::negotiation::{Features, Negotiated, PLAIN};
use mgp_protocol::refusal::Refusal;
use mgp_sync::gate::{Gate, GatePass};
use mgp_sync::pending::Pending;
use mgp_transports::log::ServerLog;
use mgp_transports::quic::FOLLOWS;
use tokio::sync::oneshot;

use crate::negotiation;
use mgp_callers::exchange::Exchange;
use mgp_callers::exchange::call_stream::CallStreamHandle;
use mgp_callers::request::Caller;
use mgp_runtime::event_sink::EventSink;

use self::alongside::Alongside;
pub use self::alongside::FinalCheck;
pub use self::calls::{Call, MirroredHeaders};
pub(crate) use self::envelope::code;
pub use self::envelope::wrapped;
pub use self::event::{LinkEvent, McplAnswer, McplMessage, ToldEvent};
pub use self::following::{ChannelRequest, FollowingNews};
pub use self::from_servers::{ClientQuestion, FROM_SERVERS, FromServer, McplCheck, MethodNeeds};
pub use self::late_messages::LateMessages;
pub use self::wire::Wire;
pub use self::wire::http::{HttpEndpoint, HttpWire, OpenError, Opened, SseWire};
pub use self::wire::lite::{LiteWire, SPOKEN};
pub use self::wire::node::NodeWire;

use self::call_places::CallPlaces;
use self::call_queue::CallQueue;
use self::following::FollowedChannel;
use self::question::{Elicited, MAX_RESPONSES, Permits, Questions, ServerCallbacks};
use self::tasks::LinkTasks;

/// A list that a server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// `tools/list`.
    Tools,
    /// `prompts/list`.
    Prompts,
    /// `resources/list` and `resources/templates/list`.
    Resources,
}

/// The operator's settings for talking to a server.
#[derive(Debug, Clone, Copy)]
pub struct Ways {
    /// False: MGP is never mentioned to the server, whatever it declares.
    pub offers_mgp: bool,
    /// False: the same of MCPL.
    pub offers_mcpl: bool,
    /// How it is decided which call a question of the server belongs to.
    pub asking: QuestionAttribution,
}

/// What a server declared in the handshake of one era.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The negotiated version.
    pub version: Version,
    /// Its capabilities, parsed.
    pub capabilities: ServerCapabilities,
    /// Its capabilities, as sent.
    pub raw_capabilities: Box<str>,
    /// `serverInfo` as sent.
    pub info: Option<Box<str>>,
    /// Its instructions for models.
    pub instructions: Option<Box<str>>,
    /// The parts of MGP negotiated with it.
    pub mgp: Negotiated,
    /// What it declared of MCPL, where that is spoken with it: never in the modern era.
    pub mcpl: Option<Arc<mcpl::ServerCapabilities>>,
}

impl Peer {
    /// Whether it says with each list how long that may be kept.
    #[must_use]
    pub fn says_freshness(&self) -> bool {
        !self.version.is_legacy()
    }

    /// Whether clients may choose its log level: it declares so, or it is modern, where each request names
    /// the level.
    #[must_use]
    pub fn takes_levels(&self) -> bool {
        self.capabilities.logging || !self.version.is_legacy()
    }
}

/// One live connection to one server, which may be used in one era or in both.
#[derive(Debug)]
pub struct Link {
    /// The server.
    pub server: ServerId,
    /// Distinguishes this connection from earlier ones of the same server.
    pub number: u64,
    /// The limits set for this server.
    pub limits: ServerLimits,
    /// The server's log.
    pub log: ServerLog,
    /// Calls and listens that have no answer yet.
    pending: Pending<InFlight>,
    /// The request ids the server sees: the numbers of calls.
    ids: RequestIds,
    /// Limits the number of calls.
    places: CallPlaces,
    gate: Arc<Gate>,
    wire: Wire,
    legacy: OnceLock<Peer>,
    modern: OnceLock<Peer>,
    ways: Ways,
    /// `_meta` of the kernel's own modern requests.
    own_meta: Box<str>,
    events: EventSink<LinkEvent>,
    turns: CallQueue,
    questions: Questions,
    /// What it asks in MCPL, which is of no call.
    mcpl_asked: Questions,
    callbacks: ServerCallbacks,
    listening: listening::Listening,
    elicited: Elicited,
    /// How many events the server may tell.
    event_flow: Mutex<EventFlow>,
    /// The questions of tasks that clients may answer.
    permits: Permits,
    tasks: LinkTasks,
    asks_roots: AtomicBool,
    /// The server was told that roots changed, and has not asked for them since.
    roots_told: AtomicBool,
    /// The level the server was told, as its index in [`LogLevel::ALL`] plus 1; 0 for none.
    level: AtomicU8,
    /// Resources that are subscribed to; limited by the table of subscriptions.
    followed: Mutex<HashSet<Box<str>>>,
    counts: Counts,
}

/// Counts of odd messages on this connection.
#[derive(Debug, Default)]
pub struct Counts {
    noise: AtomicU64,
    /// Answers to requests that were never made.
    unknown: AtomicU64,
    oversized: AtomicU64,
    /// Notifications that could be delivered to nobody.
    dropped: AtomicU64,
}

/// A call that awaits its answer.
#[derive(Debug)]
struct InFlight {
    answer: oneshot::Sender<Result<Bytes, Refusal>>,
    exchange: Arc<Exchange>,
    caller: Option<Arc<Caller>>,
    /// The client's own progress token, as JSON text.
    token: Option<Box<str>>,
    /// Where its chunks go, when it asked for any.
    stream: Option<CallStreamHandle>,
    /// The kernel gave the server a token of its own, for a client that reads progress in the words of MGP.
    reports: bool,
    era: Era,
    /// It is a `subscriptions/listen`, which the server may end without an answer.
    listens: bool,
    /// It follows a channel at another node.
    channel: Option<Arc<FollowedChannel>>,
    /// The last sign of life, in milliseconds of the kernel's clock.
    touched: AtomicU64,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Link {
    /// A connection before its handshake. `version` is this program's, told to the server.
    #[must_use]
    pub fn new(
        server: ServerId,
        limits: ServerLimits,
        wire: Wire,
        log: ServerLog,
        events: EventSink<LinkEvent>,
        version: &str,
        ways: Ways,
    ) -> Arc<Self> {
        Arc::new(Self {
            server,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            pending: Pending::new(
                limits.max_in_flight + listening::MAX_LISTENS + MAX_RESPONSES + FOLLOWS,
            ),
            ids: RequestIds::counting(),
            places: CallPlaces::default(),
            gate: Gate::new(),
            turns: CallQueue::default(),
            questions: Questions::default(),
            mcpl_asked: Questions::default(),
            callbacks: ServerCallbacks::default(),
            listening: listening::Listening::default(),
            elicited: Elicited::default(),
            event_flow: Mutex::default(),
            permits: Permits::default(),
            tasks: LinkTasks::default(),
            asks_roots: AtomicBool::new(false),
            roots_told: AtomicBool::new(false),
            level: AtomicU8::new(0),
            followed: Mutex::default(),
            counts: Counts::default(),
            legacy: OnceLock::new(),
            modern: OnceLock::new(),
            ways,
            own_meta: envelope::meta(version, ways.offers_mgp).into(),
            limits,
            log,
            wire,
            events,
        })
    }

    /// What the server declared, in the modern era when it speaks that; `None` before the
    /// handshake.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        self.modern.get().or_else(|| self.legacy.get())
    }

    /// What the server declared in this era; `None` when it does not speak it.
    #[must_use]
    pub fn peer_in(&self, era: Era) -> Option<&Peer> {
        match era {
            Era::Legacy => self.legacy.get(),
            Era::Modern => self.modern.get(),
        }
    }

    /// True when MGP is offered to the server.
    #[must_use]
    pub fn offers_mgp(&self) -> bool {
        self.ways.offers_mgp
    }

    /// Whether MGP and MCPL are offered to the server.
    #[must_use]
    pub fn offers(&self) -> (bool, bool) {
        (self.ways.offers_mgp, self.ways.offers_mcpl)
    }

    /// What it declared of MCPL; `None` where that is not spoken with it.
    #[must_use]
    pub fn mcpl(&self) -> Option<&Arc<mcpl::ServerCapabilities>> {
        self.legacy.get()?.mcpl.as_ref()
    }

    /// The negotiated parts of MGP. A server that speaks both eras may declare MGP in only one.
    pub fn mgp(&self) -> &Negotiated {
        let modern = self.mgp_in(Era::Modern);
        match modern.is_active() {
            true => modern,
            false => self.mgp_in(Era::Legacy),
        }
    }

    /// The era in which MGP was negotiated.
    #[must_use]
    pub fn era_of(&self, feature: Features) -> Option<Era> {
        let negotiated = |era: &Era| self.mgp_in(*era).features().contains(feature);
        [Era::Modern, Era::Legacy].into_iter().find(negotiated)
    }

    /// The parts of MGP that may be used in messages of this era.
    pub fn mgp_in(&self, era: Era) -> &Negotiated {
        self.peer_in(era).map_or(&PLAIN, |peer| &peer.mgp)
    }

    /// The era to use: `wanted` when the server speaks it, else the other.
    #[must_use]
    pub fn era(&self, wanted: Era) -> Era {
        let other = match wanted {
            Era::Legacy => Era::Modern,
            Era::Modern => Era::Legacy,
        };
        match (self.peer_in(wanted), self.peer_in(other)) {
            (None, Some(_)) => other,
            (Some(_), _) | (None, None) => wanted,
        }
    }

    /// True where legacy clients use a server that turns calls into tasks of the extension.
    #[must_use]
    pub fn bridges_tasks(&self) -> bool {
        self.era(Era::Legacy) == Era::Modern && self.makes_tasks()
    }

    /// True for a server that decides itself which calls become tasks.
    #[must_use]
    pub fn makes_tasks(&self) -> bool {
        let modern = self.peer_in(Era::Modern);
        modern.is_some_and(|peer| peer.capabilities.tasks_extension)
    }

    /// What a server declared that has the experimental tasks of 2025-11-25.
    #[must_use]
    pub fn experiment(&self) -> Option<&Peer> {
        let peer = self.peer_in(Era::Legacy)?;
        peer.capabilities.tasks_call.then_some(peer)
    }

    /// The handshake of the era of `peer` is done.
    pub fn set_peer(&self, mut peer: Peer) {
        if !self.ways.offers_mgp {
            peer.mgp = PLAIN;
        }
        if let Some(remark) = negotiation::remark(&peer.mgp) {
            self.log.note(&remark);
        }
        peer.mcpl = self.declared_mcpl(&peer);
        let place = match peer.version.era() {
            Era::Legacy => &self.legacy,
            Era::Modern => &self.modern,
        };
        if let Wire::Http(http) = &self.wire
            && peer.version.is_legacy()
        {
            http.set_version(peer.version);
        }
        let _ = place.set(peer);
    }

    /// What a server declares of MCPL in the era in which it is spoken, with remarks for its log.
    fn declared_mcpl(&self, peer: &Peer) -> Option<Arc<mcpl::ServerCapabilities>> {
        if !self.ways.offers_mcpl || !peer.version.is_legacy() {
            return None;
        }
        let raw = serde_json::from_str(&peer.raw_capabilities).ok();
        match mcpl::ServerCapabilities::read(raw) {
            Ok(None) => None,
            Ok(Some(said)) => {
                let sets = said.sets.sets.len();
                self.log.note(&format!(
                    "it speaks MCPL {} with us: {sets} feature sets",
                    said.version
                ));
                said.sets.rejected.iter().for_each(|why| self.log.note(why));
                Some(Arc::new(said))
            }
            Err(why) => {
                self.log
                    .note(&format!("it is not spoken to in MCPL: {why}"));
                None
            }
        }
    }

    /// The transport in use, as [`Wire::name`] says it.
    #[must_use]
    pub fn transport(&self) -> &'static str {
        self.wire.name()
    }

    /// The versions used with it, the newer era first; of a lite server that of its document. `None` before the
    /// handshake.
    #[must_use]
    pub fn spoken(&self) -> Option<String> {
        let peers = [Era::Modern, Era::Legacy].map(|era| self.peer_in(era));
        let versions = peers.into_iter().flatten();
        let versions: Vec<_> = versions.map(|peer| peer.version.as_str()).collect();
        match self.wire {
            _ if versions.is_empty() => None,
            Wire::Lite(_) => Some(SPOKEN.to_owned()),
            Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Node(_) => {
                Some(versions.join(", "))
            }
        }
    }

    /// The transport itself.
    #[must_use]
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// True once the server asked for roots outside any call: it keeps them, so it must be told when
    /// they change.
    #[must_use]
    pub fn asks_roots(&self) -> bool {
        self.asks_roots.load(Ordering::Relaxed)
    }

    /// Tells the server that roots changed. The next `roots/list` it sends is then its own, and belongs to
    /// no call under way.
    pub fn roots_changed(self: &Arc<Self>) {
        self.roots_told.store(true, Ordering::Relaxed);
        self.notify("notifications/roots/list_changed", None);
    }

    /// Calls that wait for their client's turn.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.turns.waiting()
    }

    /// The log level the server was told; `None` before it was told any.
    #[must_use]
    pub fn told_level(&self) -> Option<LogLevel> {
        let place = usize::from(self.level.load(Ordering::Relaxed));
        place
            .checked_sub(1)
            .and_then(|place| LogLevel::ALL.get(place))
            .copied()
    }

    /// Notes that the server was told this level.
    pub(crate) fn level_told(&self, level: LogLevel) {
        let place = LogLevel::ALL.iter().position(|one| *one == level);
        let place = place.and_then(|place| u8::try_from(place + 1).ok());
        self.level.store(place.unwrap_or(0), Ordering::Relaxed);
    }

    /// Notes that a resource is followed, or no longer. False when nothing changed.
    pub fn set_followed(&self, uri: &str, followed: bool) -> bool {
        let mut all = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        match followed {
            true => all.insert(uri.into()),
            false => all.remove(uri),
        }
    }

    /// True while a resource of this server is followed.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        let all = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        !all.is_empty()
    }

    /// Calls under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.places.taken()
    }

    /// Odd messages: lines that are no messages, messages too large, notifications for nobody.
    #[must_use]
    pub fn oddities(&self) -> (u64, u64, u64) {
        (
            self.counts.noise.load(Ordering::Relaxed),
            self.counts.oversized.load(Ordering::Relaxed),
            self.counts.dropped.load(Ordering::Relaxed),
        )
    }

    /// Closes admission and resolves when the last call has left (true), or after `deadline`.
    pub async fn drain(&self, deadline: Duration) -> bool {
        let (sender, idle) = oneshot::channel();
        self.gate.close(move || {
            let _ = sender.send(());
        });
        tokio::time::timeout(deadline, idle).await.is_ok()
    }

    /// Settles every pending call as lost.
    pub fn lose(&self, why: &str) {
        self.listening.end();
        self.tasks.forget();
        for (id, call) in self.pending.close() {
            let lost = Err(self.lost(why));
            self.tap_ended(id, &lost);
            let _ = call.answer.send(lost);
        }
        self.questions.drop_all();
        self.mcpl_asked.drop_all();
        self.wire.close();
    }

    /// Sends a notification.
    pub fn notify(self: &Arc<Self>, method: &str, params: Option<&str>) {
        self.wire
            .tell(self, jsonrpc::notification(method, params).into());
    }

    /// A call that comes after `drain` is refused as untaken, so that the next connection gets it. Requests
    /// about tasks that no other connection knows are taken without a pass.
    fn enter(&self, method: &str) -> Result<Option<GatePass>, Refusal> {
        match self.gate.enter() {
            None if !self.tasks.take_on(method) => {
                Err(self.untaken("it finishes its last calls and takes no new ones"))
            }
            pass => Ok(pass),
        }
    }
}
