//! A live connection to one server: its pending calls and the way its messages take.
//!
//! The data plane of the kernel. A call registers in the pending table, is written, and waits; the
//! reader of the connection settles it. Nothing here waits for a mailbox.

mod aside;
mod asked;
mod calls;
mod consent;
mod consulting;
mod elicited;
#[cfg(test)]
mod endings;
mod envelope;
mod http;
mod inbound;
mod listening;
mod questions;
#[cfg(test)]
pub(crate) mod scripted;
mod turns;
mod wire;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::callers::request_ids::RequestIds;
use mgp_engine::policy::approvals::{ApprovalQuestion, NotTaken};
use mgp_engine::servers::log_levels::LogLevel;
use mgp_engine::servers::spec::{QuestionAttribution, ServerLimits};
use mgp_protocol::dialect::{Era, Version};
use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::ServerCapabilities;
use mgp_protocol::mgp::audit::{Replay, Replayed};
use mgp_protocol::mgp::negotiation::{Features, Negotiated, PLAIN};
use mgp_protocol::mgp::permission::{Ask, Decision};
use mgp_protocol::refusal::Refusal;
use mgp_sync::credit::Credit;
use mgp_sync::gate::{Gate, GatePass};
use mgp_sync::pending::Pending;
use mgp_transports::log::ServerLog;
use tokio::sync::oneshot;

use mgp_callers::agent::Agent;
use mgp_callers::exchange::Exchange;
use mgp_callers::negotiation;
use mgp_callers::request::{Answering, Caller};
use mgp_runtime::ids::request_ids;

pub use self::aside::Aside;
pub use self::calls::{Call, Leave, Mirror};
pub(crate) use self::envelope::code;
pub use self::envelope::wrapped;
pub use self::http::{HttpWire, OpenError, Opened, Place, SseWire};
use self::turns::TurnQueue;
pub use self::wire::Wire;

/// What a server says unasked, and what it asks: the link hands it on.
pub trait Upward: Send + Sync + std::fmt::Debug + 'static {
    /// One of its lists changed: `tools`, `prompts` or `resources`.
    fn list_changed(&self, server: &ServerId, what: List);
    /// It says what it did; `params` as sent.
    fn reported(&self, server: &ServerId, params: Option<&str>);
    /// A resource changed; `params` as sent.
    fn updated(&self, server: &ServerId, uri: &str, params: &str);
    /// A task of the server changed: `params` of its `notifications/tasks`, without the listen's name,
    /// or in the legacy era of its `notifications/tasks/status`.
    fn task_changed(&self, server: &ServerId, era: Era, params: &str);
    /// The server says that it went from one state to another; `params` of its
    /// `notifications/mgp.lifecycle`.
    fn stepped(&self, link: u64, params: &str);
    /// A log record that belongs to no single call; `params` as sent.
    fn logged(&self, server: &ServerId, params: &str);
    /// The only agent whose folders the server may be shown outside any call.
    fn only_rooted(&self, server: &ServerId) -> Option<Arc<Agent>>;
    /// The server asks for permissions while it runs; resolves when that is decided.
    fn permission_asked(&self, server: &ServerId, ask: Ask) -> Answering<Decision>;
    /// The server wants to ask something that the operator wants to see first; resolves with the answer,
    /// and with none when its time is over.
    fn consented(&self, question: ApprovalQuestion) -> Answering<Result<Option<bool>, NotTaken>>;
    /// The server asks for events of the audit log that it missed.
    fn replayed(&self, asked: Replay) -> Answering<Result<Replayed, Refusal>>;
    /// No new call is to go over the connection.
    fn unusable(&self, link: u64);
    /// The connection is of no use any more.
    fn broken(&self, server: &ServerId, link: u64, why: String);
}

/// A list of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// `tools/list`.
    Tools,
    /// `prompts/list`.
    Prompts,
    /// `resources/list` and `resources/templates/list`.
    Resources,
}

/// How the operator wants a server to be spoken with.
#[derive(Debug, Clone, Copy)]
pub struct Ways {
    /// Without it nothing of MGP is said to it, whatever it declares.
    pub offers_mgp: bool,
    /// How it is known in which call it asks.
    pub asking: QuestionAttribution,
}

/// What a server said of itself in the handshake of an era.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The version it speaks with us.
    pub version: Version,
    /// What it offers, read.
    pub capabilities: ServerCapabilities,
    /// What it offers, as sent.
    pub raw_capabilities: Box<str>,
    /// `serverInfo` as sent.
    pub info: Option<Box<str>>,
    /// Hints for models.
    pub instructions: Option<Box<str>>,
    /// What of MGP may be said to it.
    pub mgp: Negotiated,
}

impl Peer {
    /// Whether clients may choose what it logs: it says so, or each request to it names the level, as those
    /// of 2026-07-28 do whatever it declares.
    #[must_use]
    pub fn takes_levels(&self) -> bool {
        self.capabilities.logging || !self.version.is_legacy()
    }
}

/// One live connection to one server, which may be spoken to in one era or in both.
#[derive(Debug)]
pub struct Link {
    /// Whose connection this is.
    pub server: ServerId,
    /// Distinguishes this connection from earlier ones of the same server.
    pub number: u64,
    /// Bounds of this server.
    pub limits: ServerLimits,
    /// Its log.
    pub log: ServerLog,
    /// Calls, and the listens beside them.
    pending: Pending<InFlight>,
    /// What the server reads for their numbers.
    ids: RequestIds,
    /// Bounds the calls.
    places: Arc<Credit>,
    gate: Arc<Gate>,
    wire: Wire,
    legacy: OnceLock<Peer>,
    modern: OnceLock<Peer>,
    ways: Ways,
    /// The `_meta` of the kernel's own modern requests.
    own_meta: Box<str>,
    upward: Arc<dyn Upward>,
    turns: TurnQueue,
    questions: inbound::Questions,
    listening: listening::Listening,
    elicited: elicited::Elicited,
    /// Which questions of tasks may be answered.
    permits: asked::Permits,
    asks_roots: AtomicBool,
    /// It was told that roots changed, and has not asked for them since.
    roots_told: AtomicBool,
    /// The place in [`LogLevel::ALL`] of the level the server was told, and one more; 0 for none.
    level: AtomicU8,
    /// Resources that somebody wants to hear of; bounded where they are kept.
    followed: Mutex<HashSet<Box<str>>>,
    counts: Counts,
}

/// What was odd about a server's messages, since its connection was made.
#[derive(Debug, Default)]
pub struct Counts {
    noise: AtomicU64,
    oversized: AtomicU64,
    /// Notifications that went to nobody.
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
    era: Era,
    /// It is a `subscriptions/listen`, which the server may end without an answer.
    listens: bool,
    /// Milliseconds of the kernel's clock at the last sign of life.
    touched: AtomicU64,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Link {
    /// A connection that has not shaken hands yet. `version` is this program's, told to the server.
    #[must_use]
    pub fn new(
        server: ServerId,
        limits: ServerLimits,
        wire: Wire,
        log: ServerLog,
        upward: Arc<dyn Upward>,
        version: &str,
        ways: Ways,
    ) -> Arc<Self> {
        Arc::new(Self {
            server,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            pending: Pending::new(limits.max_in_flight + listening::MAX_LISTENS),
            ids: request_ids(),
            places: Credit::new(limits.max_in_flight as u64),
            gate: Gate::new(),
            turns: TurnQueue::default(),
            questions: inbound::Questions::default(),
            listening: listening::Listening::default(),
            elicited: elicited::Elicited::default(),
            permits: asked::Permits::default(),
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
            upward,
        })
    }

    /// What the server said of itself, in the modern era when it speaks that; `None` before the
    /// handshake.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        self.modern.get().or_else(|| self.legacy.get())
    }

    /// What the server said of itself in an era; `None` when it does not speak it.
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

    /// What of MGP may be said to the server. One that speaks both eras may declare it in one of them.
    pub fn mgp(&self) -> &Negotiated {
        let modern = self.mgp_in(Era::Modern);
        match modern.is_active() {
            true => modern,
            false => self.mgp_in(Era::Legacy),
        }
    }

    /// The era in which this was negotiated with the server.
    #[must_use]
    pub fn era_of(&self, feature: Features) -> Option<Era> {
        let negotiated = |era: &Era| self.mgp_in(*era).features().contains(feature);
        [Era::Modern, Era::Legacy].into_iter().find(negotiated)
    }

    /// What of MGP may be said to the server in messages of this era.
    pub fn mgp_in(&self, era: Era) -> &Negotiated {
        self.peer_in(era).map_or(&PLAIN, |peer| &peer.mgp)
    }

    /// The era to speak in: the one wanted when the server speaks it, else the other.
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

    /// True where legacy clients meet a server that makes tasks of the extension out of calls.
    #[must_use]
    pub fn bridges_tasks(&self) -> bool {
        let modern = self.peer_in(Era::Modern);
        self.era(Era::Legacy) == Era::Modern
            && modern.is_some_and(|peer| peer.capabilities.tasks_extension)
    }

    /// The handshake of the era of `peer` is done.
    pub fn set_peer(&self, mut peer: Peer) {
        if !self.ways.offers_mgp {
            peer.mgp = PLAIN;
        }
        if let Some(remark) = negotiation::remark(&peer.mgp) {
            self.log.note(&remark);
        }
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

    /// The transport in use: `stdio`, `http` or `sse`.
    #[must_use]
    pub fn transport(&self) -> &'static str {
        self.wire.name()
    }

    /// How it is written to.
    #[must_use]
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// True once the server asked for roots outside of any call, so that it keeps them and cares when
    /// they change.
    #[must_use]
    pub fn asks_roots(&self) -> bool {
        self.asks_roots.load(Ordering::Relaxed)
    }

    /// Tells the server that roots changed: what it asks for next it asks for itself, whoever calls
    /// meanwhile.
    pub fn roots_changed(self: &Arc<Self>) {
        self.roots_told.store(true, Ordering::Relaxed);
        self.notify("notifications/roots/list_changed", None);
    }

    /// Calls that wait for their turn.
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

    /// The server was told this log level.
    pub(crate) fn level_told(&self, level: LogLevel) {
        let place = LogLevel::ALL.iter().position(|one| *one == level);
        let place = place.and_then(|place| u8::try_from(place + 1).ok());
        self.level.store(place.unwrap_or(0), Ordering::Relaxed);
    }

    /// A resource of it is followed over this connection, or not any more. False when that was so before.
    pub fn set_followed(&self, uri: &str, followed: bool) -> bool {
        let mut all = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        match followed {
            true => all.insert(uri.into()),
            false => all.remove(uri),
        }
    }

    /// True while somebody wants to hear of its resources.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        let all = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        !all.is_empty()
    }

    /// Calls under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        usize::try_from(self.places.taken()).unwrap_or(usize::MAX)
    }

    /// Lines that were no messages, messages that were too large, notifications that went to nobody.
    #[must_use]
    pub fn oddities(&self) -> (u64, u64, u64) {
        (
            self.counts.noise.load(Ordering::Relaxed),
            self.counts.oversized.load(Ordering::Relaxed),
            self.counts.dropped.load(Ordering::Relaxed),
        )
    }

    /// Lets nobody in any more and resolves when the last call has left, or after `deadline`.
    pub async fn drain(&self, deadline: Duration) -> bool {
        let (sender, idle) = oneshot::channel();
        self.gate.close(move || {
            let _ = sender.send(());
        });
        tokio::time::timeout(deadline, idle).await.is_ok()
    }

    /// Settles every call as lost: the connection is gone.
    pub fn lose(&self, why: &str) {
        self.listening.end();
        for (_, call) in self.pending.close() {
            let _ = call.answer.send(Err(Refusal::Lost {
                server: self.server.clone(),
                reason: why.to_owned(),
            }));
        }
        self.questions.drop_all();
        self.wire.close();
    }

    /// Tells the server something.
    pub fn notify(self: &Arc<Self>, method: &str, params: Option<&str>) {
        self.wire
            .tell(self, jsonrpc::notification(method, params).into());
    }

    /// Who comes too late is not taken: the server is asked over its next connection, if it gets one.
    fn enter(&self) -> Result<GatePass, Refusal> {
        let late = || self.untaken("it finishes its last calls and takes no new ones");
        self.gate.enter().ok_or_else(late)
    }
}
