//! A live connection to one server: its pending calls and its transport.
//!
//! This is the data plane of the kernel. A call is registered in the pending table, written, and awaited; the
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
mod results;
#[cfg(test)]
pub(crate) mod scripted;
mod server_methods;
mod tasks;
mod wire;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
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
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mgp::negotiation::{Features, Negotiated, PLAIN};
use mgp_protocol::refusal::Refusal;
use mgp_sync::{Gate, GatePass, PendingRequests};
use mgp_transports::log::ServerLog;
use mgp_transports::quic::MAX_FOLLOWS;
use tokio::sync::oneshot;
use url::Url;

use crate::negotiation;
use mgp_callers::request::Caller;
use mgp_callers::{CallStreamHandle, InFlightCall};
use mgp_runtime::EventSink;
use mgp_store::audit::AuditHandle;

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
use self::results::LinkGuard;
pub use self::results::interceptors::{Connecting, InterceptorServers};
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

/// Operator settings for one server's connections.
#[derive(Debug, Clone)]
pub struct LinkSettings {
    /// If false, MGP is not offered to the server, whatever it declares.
    pub offer_mgp: bool,
    /// If false, MCPL is not offered to the server.
    pub offer_mcpl: bool,
    /// How a callback of the server is attributed to a call.
    pub attribution: CallbackAttribution,
    /// The client extensions declared to the server, as a JSON object.
    pub client_extensions: Arc<str>,
    /// The audit log, whose masks are those of results, too.
    pub audit: AuditHandle,
    /// Connects to the interceptors of results.
    pub interceptors: Option<Arc<dyn InterceptorServers>>,
}

/// What a server declared in the handshake of one protocol family.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The negotiated version.
    pub version: Version,
    /// The parsed capabilities.
    pub capabilities: ServerCapabilities,
    /// The capabilities as sent.
    pub raw_capabilities: Box<str>,
    /// `serverInfo` as sent.
    pub info: Option<Box<str>>,
    /// The server's instructions for models.
    pub instructions: Option<Box<str>>,
    /// The MGP features negotiated with the server.
    pub mgp: Negotiated,
    /// The MCPL capabilities, if MCPL is in use; always `None` for the stateless family.
    pub mcpl: Option<Arc<mcpl::ServerCapabilities>>,
}

impl Peer {
    /// True if the server sends caching hints (TTL) with each list.
    #[must_use]
    pub fn declares_freshness(&self) -> bool {
        !self.version.is_legacy()
    }

    /// True if clients may choose the server's log level: the server declares `logging`, or is stateless, where
    /// each request names the level.
    #[must_use]
    pub fn supports_log_levels(&self) -> bool {
        self.capabilities.logging || !self.version.is_legacy()
    }
}

/// A live connection to one server, used with one protocol family or both.
#[derive(Debug)]
pub struct Link {
    /// The server's id.
    pub server: ServerId,
    /// The connection number, which tells apart successive connections of one server.
    pub number: u64,
    /// The limits set for this server.
    pub limits: ServerLimits,
    /// The server's log.
    pub log: ServerLog,
    /// Calls and listens without an answer.
    pending: PendingRequests<InFlight>,
    /// The request ids the server sees; they encode call numbers.
    ids: RequestIds,
    /// Limits the number of in-flight calls.
    slots: CallSlots,
    gate: Arc<Gate>,
    wire: Wire,
    legacy: OnceLock<Peer>,
    stateless: OnceLock<Peer>,
    settings: LinkSettings,
    /// `_meta` of the kernel's own stateless requests.
    kernel_meta: Box<str>,
    events: EventSink<LinkEvent>,
    /// Guards its text; `None` relays it as it is.
    guard: Option<Box<LinkGuard>>,
    call_queue: CallQueue,
    open_callbacks: OpenCallbacks,
    /// MCPL requests of the server; they belong to no call.
    mcpl_requests: OpenCallbacks,
    mgp_callbacks: MgpCallbacks,
    listen_state: listen::ListenState,
    url_elicitations: UrlElicitations,
    /// Rate limit of the server's events.
    event_flow: Mutex<EventRateLimiter>,
    /// Callbacks of tasks that clients may answer.
    answer_permits: AnswerPermits,
    tasks: LinkTasks,
    roots_requested: AtomicBool,
    /// True after `roots/list_changed` was sent, until the server requests the roots.
    roots_notified: AtomicBool,
    /// The log level last sent to the server, as its index in [`LogLevel::ALL`] plus 1; 0 for none.
    log_level: AtomicU8,
    /// Subscribed resources; bounded by the subscription table.
    subscribed: Mutex<HashSet<Box<str>>>,
    event_subscriptions: AtomicUsize,
    counts: Counts,
}

/// Counts of unexpected messages on this connection.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    malformed: AtomicU64,
    /// Answers to unknown requests.
    unknown: AtomicU64,
    oversized: AtomicU64,
    /// Notifications that had no recipient.
    dropped: AtomicU64,
}

/// A call that waits for its answer.
#[derive(Debug)]
struct InFlight {
    answer: oneshot::Sender<Result<Bytes, Refusal>>,
    call: Arc<InFlightCall>,
    caller: Option<Arc<Caller>>,
    /// The client's own progress token, as JSON text.
    token: Option<Box<str>>,
    /// The receiver of the call's chunks, if the client requested streaming.
    stream: Option<CallStreamHandle>,
    /// True if the server got a progress token of the kernel, for a client that reads progress in MGP's format.
    mgp_progress: bool,
    family: ProtocolFamily,
    /// True for a `subscriptions/listen`, which the server may end without an answer.
    is_listen: bool,
    /// The channel at another node that this call follows.
    channel: Option<Arc<FollowedChannel>>,
    /// The time of the last activity, in milliseconds of the kernel's clock.
    last_activity: AtomicU64,
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl Link {
    /// Creates a connection before its handshake. `version` is the kernel's version, sent to the server.
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
            guard: limits
                .results
                .as_ref()
                .map(|rules| Box::new(LinkGuard::new(rules, ways.interceptors.as_ref()))),
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
            event_subscriptions: AtomicUsize::new(0),
            counts: Counts::default(),
            legacy: OnceLock::new(),
            stateless: OnceLock::new(),
            kernel_meta: request_meta::kernel_meta(
                version,
                ways.offer_mgp,
                &ways.client_extensions,
            )
            .into(),
            settings: ways,
            limits,
            log,
            wire,
            events,
        })
    }

    /// What the server declared, preferring the stateless family; `None` before the handshake.
    #[must_use]
    pub(crate) fn peer(&self) -> Option<&Peer> {
        self.stateless.get().or_else(|| self.legacy.get())
    }

    /// What the server declared in this family; `None` if it does not speak it.
    #[must_use]
    pub(crate) fn peer_for(&self, family: ProtocolFamily) -> Option<&Peer> {
        match family {
            ProtocolFamily::Legacy => self.legacy.get(),
            ProtocolFamily::Stateless => self.stateless.get(),
        }
    }

    /// True if MGP is offered to the server.
    #[must_use]
    pub fn is_mgp_offered(&self) -> bool {
        self.settings.offer_mgp
    }

    /// What is offered to the server in the handshake.
    #[must_use]
    pub(crate) fn settings(&self) -> &LinkSettings {
        &self.settings
    }

    /// The MCPL capabilities of the server; `None` if MCPL is not in use.
    #[must_use]
    pub fn mcpl(&self) -> Option<&Arc<mcpl::ServerCapabilities>> {
        self.legacy.get()?.mcpl.as_ref()
    }

    /// The negotiated MGP features. A server that speaks both families may declare MGP in only one.
    pub fn mgp(&self) -> &Negotiated {
        let modern = self.mgp_for(ProtocolFamily::Stateless);
        if modern.is_active() {
            modern
        } else {
            self.mgp_for(ProtocolFamily::Legacy)
        }
    }

    /// The protocol family in which this MGP feature was negotiated.
    #[must_use]
    pub fn family_negotiating(&self, feature: Features) -> Option<ProtocolFamily> {
        let negotiated =
            |family: &ProtocolFamily| self.mgp_for(*family).features().contains(feature);
        [ProtocolFamily::Stateless, ProtocolFamily::Legacy]
            .into_iter()
            .find(negotiated)
    }

    /// The MGP features that may be used in messages of this family.
    pub(crate) fn mgp_for(&self, family: ProtocolFamily) -> &Negotiated {
        self.peer_for(family).map_or(&PLAIN, |peer| &peer.mgp)
    }

    /// `wanted` if the server speaks it, else the other family.
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

    /// True if legacy clients use a server that creates tasks through the tasks extension.
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

    /// The declaration of a server that has the experimental tasks of 2025-11-25.
    #[must_use]
    pub(crate) fn experimental_tasks_peer(&self) -> Option<&Peer> {
        let peer = self.peer_for(ProtocolFamily::Legacy)?;
        peer.capabilities.tasks_call.then_some(peer)
    }

    /// Records the result of a handshake in the family of `peer`.
    pub fn set_peer(&self, mut peer: Peer) {
        if !self.settings.offer_mgp {
            peer.mgp = PLAIN;
        }
        if let Some(remark) = negotiation::mgp_remarks(&peer.mgp) {
            self.log.push_note(&remark);
        }
        peer.mcpl = self.read_mcpl_declaration(&peer);
        let slot = match peer.version.family() {
            ProtocolFamily::Legacy => &self.legacy,
            ProtocolFamily::Stateless => &self.stateless,
        };
        if let Wire::Http(http) = &self.wire
            && peer.version.is_legacy()
        {
            http.set_version(peer.version);
        }
        let _ = slot.set(peer);
    }

    /// Reads the server's MCPL declaration in the family where MCPL exists, and logs problems with it.
    fn read_mcpl_declaration(&self, peer: &Peer) -> Option<Arc<mcpl::ServerCapabilities>> {
        if !self.settings.offer_mcpl || !peer.version.is_legacy() {
            return None;
        }
        let raw = serde_json::from_str(&peer.raw_capabilities).ok();
        match mcpl::ServerCapabilities::parse(raw) {
            Ok(None) => None,
            Ok(Some(declaration)) => {
                let sets = declaration.sets.sets.len();
                self.log.push_note(&format!(
                    "it speaks MCPL {} with us: {sets} feature sets",
                    declaration.version
                ));
                declaration
                    .sets
                    .rejected
                    .iter()
                    .for_each(|why| self.log.push_note(why));
                Some(Arc::new(declaration))
            }
            Err(why) => {
                self.log
                    .push_note(&format!("MCPL is not used with it: {why}"));
                None
            }
        }
    }

    /// The name of the transport, as in [`Wire::name`].
    #[must_use]
    pub(crate) fn transport(&self) -> &'static str {
        self.wire.name()
    }

    /// The versions in use, stateless first; for a lite server, the version of its document. `None` before the
    /// handshake.
    #[must_use]
    pub(crate) fn render_versions(&self) -> Option<String> {
        let peers =
            [ProtocolFamily::Stateless, ProtocolFamily::Legacy].map(|family| self.peer_for(family));
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

    /// Whether the URL has scheme, host and port of the server's entry; false for programs and nodes.
    #[must_use]
    pub fn is_own_origin(&self, url: &Url) -> bool {
        self.wire.is_own_origin(url)
    }

    /// Fetches an icon at the server's own address, without credentials: within 10 s, up to 256 KiB, four at a time.
    pub async fn fetch_icon(&self, url: &Url) -> Option<Bytes> {
        self.wire.fetch_icon(url).await
    }

    /// The transport.
    #[must_use]
    pub(crate) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// True once the server requested the roots outside of calls: it caches them and must be notified of
    /// changes.
    #[must_use]
    pub(crate) fn has_requested_roots(&self) -> bool {
        self.roots_requested.load(Ordering::Relaxed)
    }

    /// Notifies the server that roots changed. Its next `roots/list` then belongs to no in-flight call.
    pub(crate) fn notify_roots_changed(self: &Arc<Self>) {
        self.roots_notified.store(true, Ordering::Relaxed);
        self.notify("notifications/roots/list_changed", None);
    }

    /// The number of calls that wait for the calls of other clients.
    #[must_use]
    pub fn queued_calls(&self) -> usize {
        self.call_queue.queued_calls()
    }

    /// The log level last sent to the server; `None` before the first.
    #[must_use]
    pub(crate) fn current_log_level(&self) -> Option<LogLevel> {
        let index = usize::from(self.log_level.load(Ordering::Relaxed));
        index
            .checked_sub(1)
            .and_then(|index| LogLevel::ALL.get(index))
            .copied()
    }

    /// Records the log level sent to the server.
    pub(crate) fn record_log_level(&self, level: LogLevel) {
        let index = LogLevel::ALL.iter().position(|one| *one == level);
        let index = index.and_then(|index| u8::try_from(index + 1).ok());
        self.log_level.store(index.unwrap_or(0), Ordering::Relaxed);
    }

    /// Adds or removes a resource subscription; false if nothing changed.
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

    /// True while the server has subscribed resources.
    #[must_use]
    pub(crate) fn has_subscriptions(&self) -> bool {
        let all = self
            .subscribed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        !all.is_empty()
    }

    /// The number of in-flight calls.
    #[must_use]
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.taken_count()
    }

    /// True if something is open that the end of the connection would cut off: calls, subscriptions, tasks,
    /// callbacks, event subscriptions.
    #[must_use]
    pub(crate) fn has_open_work(&self) -> bool {
        self.in_flight() > 0
            || self.has_subscriptions()
            || self.has_open_tasks()
            || self.has_followed_tasks()
            || self.open_callbacks.has_open()
            || self.mcpl_requests.has_open()
            || self.event_subscriptions.load(Ordering::Relaxed) > 0
            || self.acts_on_its_own()
    }

    /// True if it has MCPL feature sets that do more than answer calls: it pushes, or takes part in inference.
    fn acts_on_its_own(&self) -> bool {
        let is_more = |used: &Capability| *used != Capability::Tools;
        self.mcpl().is_some_and(|mcpl| {
            let mut sets = mcpl.sets.sets.values();
            sets.any(|set| set.uses.iter().any(is_more))
        })
    }

    /// True if the server says that it has state of its callers: it has MCPL feature sets with checkpoints of its
    /// own, or an HTTP session.
    #[must_use]
    pub(crate) fn declares_state(&self) -> bool {
        let has_checkpoints = self.mcpl().is_some_and(|mcpl| {
            let mut sets = mcpl.sets.sets.values();
            sets.any(|set| set.rollback)
        });
        let has_session = matches!(&self.wire, Wire::Http(http) if http.has_session());
        has_checkpoints || has_session
    }

    /// Counts an event subscription at the server, or its end.
    pub fn count_event_subscription(&self, is_open: bool) {
        if is_open {
            self.event_subscriptions.fetch_add(1, Ordering::Relaxed);
        } else {
            let one_less = |count: usize| Some(count.saturating_sub(1));
            let counted = &self.event_subscriptions;
            let _ = counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        }
    }

    /// Counts of malformed lines, oversized messages and notifications without a recipient.
    #[must_use]
    pub(crate) fn odd_message_counts(&self) -> (u64, u64, u64) {
        (
            self.counts.malformed.load(Ordering::Relaxed),
            self.counts.oversized.load(Ordering::Relaxed),
            self.counts.dropped.load(Ordering::Relaxed),
        )
    }

    /// Stops accepting calls and resolves when the last one has ended (true), or after `deadline` (false).
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

    /// Admits a call. After `drain` a call is refused as not sent, so that it is retried on the next connection.
    /// Requests about tasks that no other connection knows are admitted without a pass.
    fn admit(&self, method: &str) -> Result<Option<GatePass>, Refusal> {
        match self.gate.enter() {
            None if !self.tasks.should_accept(method) => {
                Err(self.unsent_refusal("it finishes its last calls and takes no new ones"))
            }
            pass => Ok(pass),
        }
    }
}
