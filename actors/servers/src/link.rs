//! A live connection to one server: its pending calls and its transport.
//!
//! The data plane of the kernel: a call registers in the pending table, is written, and waits; the
//! reader of the connection settles it. No mailbox is involved.

mod call_context;
mod call_queue;
pub(crate) mod call_slots;
pub mod callback;
mod calls;
#[cfg(test)]
mod ending_tests;
mod event;
mod followed_channels;
mod inbound;
mod late_messages;
mod listen;
mod request_meta;
#[cfg(test)]
pub(crate) mod scripted;
mod server_methods;
mod tasks;
mod wire;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::callers::request_ids::RequestIds;
use mgp_engine::servers::log_levels::LogLevel;
use mgp_engine::servers::spec::{CallbackAttribution, ServerLimits};
use mgp_engine::tools::events::rate_limit::EventRateLimiter;
use mgp_protocol::dialect::{ProtocolFamily, Version};
use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::ServerCapabilities;
use mgp_protocol::mcpl;
use mgp_protocol::mgp::negotiation::{Features, Negotiated, PLAIN};
use mgp_protocol::refusal::Refusal;
use mgp_sync::{Gate, GatePass, PendingRequests};
use mgp_transports::log::ServerLog;
use mgp_transports::quic::MAX_FOLLOWS;
use tokio::sync::oneshot;

use crate::negotiation;
use mgp_callers::request::Caller;
use mgp_callers::{CallStreamHandle, InFlightCall};
use mgp_runtime::EventSink;

use self::call_context::CallContext;
pub use self::call_context::FinalCheck;
pub use self::calls::{Call, MetadataHeaders};
pub use self::event::{LinkEvent, McplAnswer, McplMessage, ReportedEvent};
pub use self::followed_channels::{ChannelRequest, FollowEvent};
pub(crate) use self::request_meta::error_code;
pub(crate) use self::request_meta::kernel_params;
pub use self::server_methods::Callback;
pub use self::wire::Wire;
pub(crate) use self::wire::http::{DetectedTransport, HttpTarget, HttpWire, SseWire};
pub(crate) use self::wire::lite::{LiteWire, VERSION_LABEL};
pub use self::wire::node::NodeWire;

use self::call_queue::CallQueue;
use self::call_slots::CallSlots;
use self::callback::{AnswerPermits, MAX_RESPONSES, MgpCallbacks, OpenCallbacks, UrlElicitations};
use self::followed_channels::FollowedChannel;
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
pub struct LinkSettings {
    /// False: MGP is never mentioned to the server, whatever it declares.
    pub offer_mgp: bool,
    /// False: the same of MCPL.
    pub offer_mcpl: bool,
    /// How it is decided which call a question of the server belongs to.
    pub attribution: CallbackAttribution,
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
    pub fn declares_freshness(&self) -> bool {
        !self.version.is_legacy()
    }

    /// Whether clients may choose its log level: it declares so, or it is modern, where each request names
    /// the level.
    #[must_use]
    pub fn supports_log_levels(&self) -> bool {
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
    pending: PendingRequests<InFlight>,
    /// The request ids the server sees: the numbers of calls.
    ids: RequestIds,
    /// Limits the number of calls.
    slots: CallSlots,
    gate: Arc<Gate>,
    wire: Wire,
    legacy: OnceLock<Peer>,
    stateless: OnceLock<Peer>,
    settings: LinkSettings,
    /// `_meta` of the kernel's own modern requests.
    kernel_meta: Box<str>,
    events: EventSink<LinkEvent>,
    call_queue: CallQueue,
    open_callbacks: OpenCallbacks,
    /// What it asks in MCPL, which is of no call.
    mcpl_requests: OpenCallbacks,
    mgp_callbacks: MgpCallbacks,
    listen_state: listen::ListenState,
    url_elicitations: UrlElicitations,
    /// How many events the server may tell.
    event_flow: Mutex<EventRateLimiter>,
    /// The questions of tasks that clients may answer.
    answer_permits: AnswerPermits,
    tasks: LinkTasks,
    roots_requested: AtomicBool,
    /// The server was told that roots changed, and has not asked for them since.
    roots_notified: AtomicBool,
    /// The level the server was told, as its index in [`LogLevel::ALL`] plus 1; 0 for none.
    log_level: AtomicU8,
    /// Resources that are subscribed to; limited by the table of subscriptions.
    subscribed: Mutex<HashSet<Box<str>>>,
    counts: Counts,
}

/// Counts of odd messages on this connection.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    malformed: AtomicU64,
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
    call: Arc<InFlightCall>,
    caller: Option<Arc<Caller>>,
    /// The client's own progress token, as JSON text.
    token: Option<Box<str>>,
    /// Where its chunks go, when it asked for any.
    stream: Option<CallStreamHandle>,
    /// The kernel gave the server a token of its own, for a client that reads progress in the words of MGP.
    mgp_progress: bool,
    family: ProtocolFamily,
    /// It is a `subscriptions/listen`, which the server may end without an answer.
    is_listen: bool,
    /// It follows a channel at another node.
    channel: Option<Arc<FollowedChannel>>,
    /// The last sign of life, in milliseconds of the kernel's clock.
    last_activity: AtomicU64,
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

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
        ways: LinkSettings,
    ) -> Arc<Self> {
        Arc::new(Self {
            server,
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            pending: PendingRequests::new(
                limits.max_in_flight + listen::MAX_LISTENS + MAX_RESPONSES + MAX_FOLLOWS,
            ),
            ids: RequestIds::unencrypted(),
            slots: CallSlots::default(),
            gate: Gate::new(),
            call_queue: CallQueue::default(),
            open_callbacks: OpenCallbacks::default(),
            mcpl_requests: OpenCallbacks::default(),
            mgp_callbacks: MgpCallbacks::default(),
            listen_state: listen::ListenState::default(),
            url_elicitations: UrlElicitations::default(),
            event_flow: Mutex::default(),
            answer_permits: AnswerPermits::default(),
            tasks: LinkTasks::default(),
            roots_requested: AtomicBool::new(false),
            roots_notified: AtomicBool::new(false),
            log_level: AtomicU8::new(0),
            subscribed: Mutex::default(),
            counts: Counts::default(),
            legacy: OnceLock::new(),
            stateless: OnceLock::new(),
            settings: ways,
            kernel_meta: request_meta::kernel_meta(version, ways.offer_mgp).into(),
            limits,
            log,
            wire,
            events,
        })
    }

    /// What the server declared, in the modern era when it speaks that; `None` before the
    /// handshake.
    #[must_use]
    pub(crate) fn peer(&self) -> Option<&Peer> {
        self.stateless.get().or_else(|| self.legacy.get())
    }

    /// What the server declared in this era; `None` when it does not speak it.
    #[must_use]
    pub(crate) fn peer_for(&self, era: ProtocolFamily) -> Option<&Peer> {
        match era {
            ProtocolFamily::Legacy => self.legacy.get(),
            ProtocolFamily::Stateless => self.stateless.get(),
        }
    }

    /// Whether MGP and MCPL are offered to the server.
    #[must_use]
    pub(crate) fn offered_extensions(&self) -> (bool, bool) {
        (self.settings.offer_mgp, self.settings.offer_mcpl)
    }

    /// What it declared of MCPL; `None` where that is not spoken with it.
    #[must_use]
    pub fn mcpl(&self) -> Option<&Arc<mcpl::ServerCapabilities>> {
        self.legacy.get()?.mcpl.as_ref()
    }

    /// The negotiated parts of MGP. A server that speaks both eras may declare MGP in only one.
    pub fn mgp(&self) -> &Negotiated {
        let modern = self.mgp_for(ProtocolFamily::Stateless);
        if modern.is_active() {
            modern
        } else {
            self.mgp_for(ProtocolFamily::Legacy)
        }
    }

    /// The era in which MGP was negotiated.
    #[must_use]
    pub fn family_negotiating(&self, feature: Features) -> Option<ProtocolFamily> {
        let negotiated = |era: &ProtocolFamily| self.mgp_for(*era).features().contains(feature);
        [ProtocolFamily::Stateless, ProtocolFamily::Legacy]
            .into_iter()
            .find(negotiated)
    }

    /// The parts of MGP that may be used in messages of this era.
    pub(crate) fn mgp_for(&self, era: ProtocolFamily) -> &Negotiated {
        self.peer_for(era).map_or(&PLAIN, |peer| &peer.mgp)
    }

    /// The era to use: `wanted` when the server speaks it, else the other.
    #[must_use]
    pub(crate) fn choose_family(&self, wanted: ProtocolFamily) -> ProtocolFamily {
        let other = match wanted {
            ProtocolFamily::Legacy => ProtocolFamily::Stateless,
            ProtocolFamily::Stateless => ProtocolFamily::Legacy,
        };
        match (self.peer_for(wanted), self.peer_for(other)) {
            (None, Some(_)) => other,
            (Some(_), _) | (None, None) => wanted,
        }
    }

    /// True where legacy clients use a server that turns calls into tasks of the extension.
    #[must_use]
    pub(crate) fn should_bridge_tasks(&self) -> bool {
        self.choose_family(ProtocolFamily::Legacy) == ProtocolFamily::Stateless
            && self.has_server_directed_tasks()
    }

    /// True for a server that decides itself which calls become tasks.
    #[must_use]
    pub(crate) fn has_server_directed_tasks(&self) -> bool {
        let modern = self.peer_for(ProtocolFamily::Stateless);
        modern.is_some_and(|peer| peer.capabilities.tasks_extension)
    }

    /// What a server declared that has the experimental tasks of 2025-11-25.
    #[must_use]
    pub(crate) fn experimental_tasks_peer(&self) -> Option<&Peer> {
        let peer = self.peer_for(ProtocolFamily::Legacy)?;
        peer.capabilities.tasks_call.then_some(peer)
    }

    /// The handshake of the era of `peer` is done.
    pub fn set_peer(&self, mut peer: Peer) {
        if !self.settings.offer_mgp {
            peer.mgp = PLAIN;
        }
        if let Some(remark) = negotiation::mgp_remarks(&peer.mgp) {
            self.log.push_note(&remark);
        }
        peer.mcpl = self.read_mcpl_declaration(&peer);
        let place = match peer.version.family() {
            ProtocolFamily::Legacy => &self.legacy,
            ProtocolFamily::Stateless => &self.stateless,
        };
        if let Wire::Http(http) = &self.wire
            && peer.version.is_legacy()
        {
            http.set_version(peer.version);
        }
        let _ = place.set(peer);
    }

    /// What a server declares of MCPL in the era in which it is spoken, with remarks for its log.
    fn read_mcpl_declaration(&self, peer: &Peer) -> Option<Arc<mcpl::ServerCapabilities>> {
        if !self.settings.offer_mcpl || !peer.version.is_legacy() {
            return None;
        }
        let raw = serde_json::from_str(&peer.raw_capabilities).ok();
        match mcpl::ServerCapabilities::parse(raw) {
            Ok(None) => None,
            Ok(Some(said)) => {
                let sets = said.sets.sets.len();
                self.log.push_note(&format!(
                    "it speaks MCPL {} with us: {sets} feature sets",
                    said.version
                ));
                said.sets
                    .rejected
                    .iter()
                    .for_each(|why| self.log.push_note(why));
                Some(Arc::new(said))
            }
            Err(why) => {
                self.log
                    .push_note(&format!("it is not spoken to in MCPL: {why}"));
                None
            }
        }
    }

    /// The transport in use, as [`Wire::name`] says it.
    #[must_use]
    pub(crate) fn transport(&self) -> &'static str {
        self.wire.name()
    }

    /// The versions used with it, the newer era first; of a lite server that of its document. `None` before the
    /// handshake.
    #[must_use]
    pub(crate) fn render_versions(&self) -> Option<String> {
        let peers =
            [ProtocolFamily::Stateless, ProtocolFamily::Legacy].map(|era| self.peer_for(era));
        let versions = peers.into_iter().flatten();
        let versions: Vec<_> = versions.map(|peer| peer.version.as_str()).collect();
        match self.wire {
            _ if versions.is_empty() => None,
            Wire::Lite(_) => Some(VERSION_LABEL.to_owned()),
            Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Node(_) => {
                Some(versions.join(", "))
            }
        }
    }

    /// The transport itself.
    #[must_use]
    pub(crate) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// True once the server asked for roots outside any call: it keeps them, so it must be told when
    /// they change.
    #[must_use]
    pub(crate) fn has_requested_roots(&self) -> bool {
        self.roots_requested.load(Ordering::Relaxed)
    }

    /// Tells the server that roots changed. The next `roots/list` it sends is then its own, and belongs to
    /// no call under way.
    pub(crate) fn notify_roots_changed(self: &Arc<Self>) {
        self.roots_notified.store(true, Ordering::Relaxed);
        self.notify("notifications/roots/list_changed", None);
    }

    /// Calls that wait for their client's turn.
    #[must_use]
    pub fn queued_calls(&self) -> usize {
        self.call_queue.queued_calls()
    }

    /// The log level the server was told; `None` before it was told any.
    #[must_use]
    pub(crate) fn current_log_level(&self) -> Option<LogLevel> {
        let place = usize::from(self.log_level.load(Ordering::Relaxed));
        place
            .checked_sub(1)
            .and_then(|place| LogLevel::ALL.get(place))
            .copied()
    }

    /// Notes that the server was told this level.
    pub(crate) fn record_log_level(&self, level: LogLevel) {
        let place = LogLevel::ALL.iter().position(|one| *one == level);
        let place = place.and_then(|place| u8::try_from(place + 1).ok());
        self.log_level.store(place.unwrap_or(0), Ordering::Relaxed);
    }

    /// Notes that a resource is followed, or no longer. False when nothing changed.
    pub fn set_subscribed(&self, uri: &str, followed: bool) -> bool {
        let mut all = self
            .subscribed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if followed {
            all.insert(uri.into())
        } else {
            all.remove(uri)
        }
    }

    /// True while a resource of this server is followed.
    #[must_use]
    pub(crate) fn has_subscriptions(&self) -> bool {
        let all = self
            .subscribed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        !all.is_empty()
    }

    /// Calls under way.
    #[must_use]
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.taken_count()
    }

    /// Odd messages: lines that are no messages, messages too large, notifications for nobody.
    #[must_use]
    pub(crate) fn odd_message_counts(&self) -> (u64, u64, u64) {
        (
            self.counts.malformed.load(Ordering::Relaxed),
            self.counts.oversized.load(Ordering::Relaxed),
            self.counts.dropped.load(Ordering::Relaxed),
        )
    }

    /// Closes admission and resolves when the last call has left (true), or after `deadline`.
    pub(crate) async fn drain(&self, deadline: Duration) -> bool {
        let (sender, idle) = oneshot::channel();
        self.gate.close(move || {
            let _ = sender.send(());
        });
        tokio::time::timeout(deadline, idle).await.is_ok()
    }

    /// Settles every pending call as lost.
    pub(crate) fn fail_pending_calls(&self, why: &str) {
        self.listen_state.close();
        self.tasks.clear();
        for (id, call) in self.pending.close() {
            let lost = Err(self.lost_refusal(why));
            self.tap_ended(id, &lost);
            let _ = call.answer.send(lost);
        }
        self.open_callbacks.clear();
        self.mcpl_requests.clear();
        self.wire.close();
    }

    /// Sends a notification.
    pub fn notify(self: &Arc<Self>, method: &str, params: Option<&str>) {
        self.wire
            .send_message(self, jsonrpc::notification(method, params).into());
    }

    /// A call that comes after `drain` is refused as untaken, so that the next connection gets it. Requests
    /// about tasks that no other connection knows are taken without a pass.
    fn admit(&self, method: &str) -> Result<Option<GatePass>, Refusal> {
        match self.gate.enter() {
            None if !self.tasks.should_accept(method) => {
                Err(self.unsent_refusal("it finishes its last calls and takes no new ones"))
            }
            pass => Ok(pass),
        }
    }
}
