//! One connection of one agent: its state, its open requests and callbacks, and its outgoing channel.

pub(crate) mod caller;
mod channel;
pub mod client_activity;
mod inference;
pub(crate) mod stateless_clients;
pub mod supervisor;
mod tap;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use mgp_engine::callers::request_ids::{RequestIds, WireId};
use mgp_engine::callers::tasks::{TaskHandle, TaskRef};
use mgp_engine::policy::access::ClaimedGroups;
use mgp_engine::servers::log_levels::LogLevel;
use mgp_engine::tools::catalog::{CatalogView, ListKind};
use mgp_json::Splice;
use mgp_protocol::dialect::Version;
use mgp_protocol::ids::{AgentId, ConnectionId};
use mgp_protocol::jsonrpc::partial_message::PartialMessage;
use mgp_protocol::jsonrpc::{self, ErrorObject, Malformed, RequestId};
use mgp_protocol::mcp::extensions::relayed_extensions_object;
use mgp_protocol::mcp::meta::progress_token;
use mgp_protocol::mcp::subscriptions::Filter;
use mgp_protocol::mcp::{self, ClientCapabilities, Initialize};
use mgp_protocol::mgp::kernel::Client;
use mgp_protocol::mgp::tools::Budget;
use mgp_protocol::refusal::Refusal;
use mgp_sync::{AdmissionError, PendingRequests};
use ractor::ActorCell;
use tokio::sync::{Notify, oneshot};

use self::caller::{Caller, CallerSession};
use self::client_activity::ClientActivity;
use crate::in_flight_call::callback::MAX_CALLBACKS;
use crate::in_flight_call::streams::{GET_LANE, Lane};
use crate::in_flight_call::{Delivery, Flag, InFlightCall, ReplyPath};
use crate::negotiation;
use crate::tool_cache::{SessionToolCache, ToolCacheHandle};
use mgp_runtime::EventSink;
use mgp_runtime::ids::new_request_ids;

pub use self::channel::AgentChannel;
pub(crate) use self::channel::list_changed_method;
pub use crate::in_flight_call::callback::{ANSWER_DEADLINE, CallbackError, CallbackResult};
pub use crate::in_flight_call::send_line;

/// The most in-flight requests of one agent; far above what a model sends at once.
pub const MAX_OPEN: usize = 1024;

/// How long a callback waits for `notifications/initialized`. Over HTTP that may arrive just after the call
/// that causes the callback; a client that never sends it gets no callbacks.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);

/// Allocates the number of a new connection.
fn allocate_connection() -> ConnectionId {
    ConnectionId(NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed))
}

/// The connection number shared by all stateless requests of one agent in one view. A server that sends a
/// callback cannot distinguish these clients, and all callbacks reach the same agent, so they count as one
/// client.
pub fn shared_connection(agent: &AgentId, view: &CatalogView) -> ConnectionId {
    let mut hasher = DefaultHasher::new();
    (agent, view).hash(&mut hasher);
    // The other numbers are counted from 1 and have this bit clear.
    ConnectionId(hasher.finish() | 1 << 63)
}

/// One connection of one agent.
#[derive(Debug)]
pub struct Agent {
    /// Its connection number.
    pub connection: ConnectionId,
    /// The agent, as authenticated by the endpoint.
    id: AgentId,
    /// Connected over the owner-only socket.
    operator: bool,
    /// The agent that the operator impersonates on this connection.
    acts_as: OnceLock<AgentId>,
    /// The groups of the token that opened it.
    groups: OnceLock<ClaimedGroups>,
    channel: AgentChannel,
    caller: OnceLock<Arc<Caller>>,
    ready: Flag,
    /// Index of its level in [`LogLevel::ALL`].
    level: AtomicU8,
    level_set: AtomicBool,
    pending_callbacks: PendingRequests<PendingCallback>,
    /// Maps the numbers of `pending_callbacks` to the request ids that the client sees.
    ids: RequestIds,
    requests: Mutex<HashMap<RequestId, Arc<InFlightCall>>>,
    request_finished: Notify,
    /// The tool cache of its session.
    pub tool_cache: SessionToolCache,
    /// The activity shown to the operator.
    pub activity: Arc<ClientActivity>,
}

/// A callback that waits for the client's answer.
#[derive(Debug)]
struct PendingCallback {
    answer: oneshot::Sender<CallbackResult>,
    /// Receives the client's progress; with the progress token as JSON text.
    progress: Option<(Box<str>, EventSink<String>)>,
    /// Receives the chunks of an inference.
    chunks: Option<EventSink<String>>,
}

impl Agent {
    /// Creates the state of a new connection.
    #[must_use]
    pub fn new(id: AgentId, operator: bool, outward: AgentChannel) -> Arc<Self> {
        Arc::new(Self::build(id, operator, outward))
    }

    fn build(id: AgentId, operator: bool, channel: AgentChannel) -> Self {
        Self {
            connection: allocate_connection(),
            id,
            operator,
            acts_as: OnceLock::new(),
            groups: OnceLock::new(),
            channel,
            caller: OnceLock::new(),
            ready: Flag::default(),
            level: AtomicU8::new(0),
            level_set: AtomicBool::new(false),
            pending_callbacks: PendingRequests::new(MAX_CALLBACKS),
            ids: new_request_ids(),
            requests: Mutex::new(HashMap::new()),
            request_finished: Notify::new(),
            tool_cache: SessionToolCache::default(),
            activity: Arc::default(),
        }
    }

    /// Creates the receive-only client of a `subscriptions/listen`. Nothing is sent to it before
    /// [`Self::set_ready`].
    #[must_use]
    pub fn new_listener(
        caller: &Arc<Caller>,
        call: &Arc<InFlightCall>,
        wanted: &Filter,
        tag: &str,
        tasks: Vec<(TaskHandle, String)>,
    ) -> Arc<Self> {
        let outward = AgentChannel::Listener {
            call: call.clone(),
            wanted: wanted.clone(),
            tag: tag.into(),
            tasks,
        };
        let mut agent = Self::build(caller.agent.clone(), caller.operator, outward);
        agent.caller = OnceLock::from(caller.clone());
        Arc::new(agent)
    }

    /// Creates the client of an agent of another node that follows events and receives nothing else.
    /// Nothing is sent to it before [`Self::set_ready`].
    #[must_use]
    pub fn new_follower(caller: &Arc<Caller>, call: &Arc<InFlightCall>) -> Arc<Self> {
        let outward = AgentChannel::Follower(call.clone());
        let mut agent = Self::build(caller.agent.clone(), caller.operator, outward);
        agent.caller = OnceLock::from(caller.clone());
        Arc::new(agent)
    }

    /// True for a client that only receives.
    #[must_use]
    pub(crate) fn is_listener(&self) -> bool {
        matches!(
            self.channel,
            AgentChannel::Listener { .. } | AgentChannel::Follower(_)
        )
    }

    /// True for an agent of another node that follows events.
    #[must_use]
    pub fn is_follower(&self) -> bool {
        matches!(self.channel, AgentChannel::Follower(_))
    }

    /// True when the client wants notifications about changes of this list.
    #[must_use]
    pub(crate) fn wants_list_changes(&self, kind: ListKind) -> bool {
        match (&self.channel, kind) {
            (AgentChannel::Line(_) | AgentChannel::Session(_), _) => true,
            (AgentChannel::Listener { wanted, .. }, ListKind::Tools) => wanted.tools_list_changed,
            (AgentChannel::Listener { wanted, .. }, ListKind::Prompts) => {
                wanted.prompts_list_changed
            }
            (AgentChannel::Listener { wanted, .. }, ListKind::Resources | ListKind::Templates) => {
                wanted.resources_list_changed
            }
            (AgentChannel::Follower(_), _) => false,
        }
    }

    /// The client's id of a task that it follows; `None` if it does not follow it.
    #[must_use]
    pub(crate) fn followed_task(&self, task: &TaskRef) -> Option<(&TaskHandle, &str)> {
        let AgentChannel::Listener { tasks, .. } = &self.channel else {
            return None;
        };
        let found = tasks.iter().find(|(wanted, _)| wanted.task == *task);
        found.map(|(named, id)| (named, id.as_str()))
    }

    /// The identity that calls are made with.
    #[must_use]
    pub fn id(&self) -> &AgentId {
        self.acts_as.get().unwrap_or(&self.id)
    }

    /// True for the operator, unless it acts as another agent.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.operator && self.acts_as.get().is_none()
    }

    /// Sets the groups of its token, before any message.
    pub fn set_groups(&self, groups: ClaimedGroups) {
        // Once: a session has the groups of the token that opened it.
        let _ = self.groups.set(groups);
    }

    /// The groups of the token that opened it.
    #[must_use]
    pub fn groups(&self) -> ClaimedGroups {
        self.groups.get().cloned().unwrap_or_default()
    }

    /// Makes the operator act as one of the agents, with that agent's rights only.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`] for other callers than the operator, and after the first other message.
    pub fn act_as(&self, agent: AgentId) -> Result<(), Refusal> {
        let rejection =
            || Refusal::BadRequest("`agent` can be set once, before any other message".into());
        if !self.operator || self.caller().is_some() {
            return Err(rejection());
        }
        self.acts_as.set(agent).map_err(|_| rejection())
    }

    /// Handles `initialize`; only the first one counts.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`] for a repeated `initialize`.
    pub fn initialize(
        self: &Arc<Self>,
        view: CatalogView,
        hello: &Initialize<'_>,
        address: Option<Arc<str>>,
    ) -> Result<Arc<Caller>, Refusal> {
        let version = Version::negotiate(&hello.protocol_version);
        let caller = Arc::new(Caller {
            connection: self.connection,
            agent: self.id().clone(),
            groups: self.groups(),
            operator: self.is_operator(),
            view,
            version,
            capabilities: ClientCapabilities::parse(Some(hello.capabilities)),
            extensions: relayed_extensions_object(hello.capabilities.get()).map(Into::into),
            mgp: negotiation::negotiate_with_client(Some(hello.capabilities), version),
            mcpl: negotiation::negotiate_mcpl(hello.capabilities),
            session: CallerSession::Open(Arc::downgrade(self)),
            address,
            activity: self.activity.clone(),
        });
        self.caller.set(caller.clone()).map_err(|_| {
            Refusal::BadRequest("`initialize` was already sent on this connection".into())
        })?;
        self.activity.introduce(&hello.client_info, version);
        self.tap_hello(hello);
        Ok(caller)
    }

    /// Starts the tool cache of the session below `parent`; `None` when the session has ended.
    pub fn start_tool_cache(
        self: &Arc<Self>,
        budget: Budget,
        parent: ActorCell,
    ) -> Option<ToolCacheHandle> {
        let changed = || {
            let agent = Arc::downgrade(self);
            EventSink::new(move |()| {
                if let Some(agent) = agent.upgrade() {
                    let frame = jsonrpc::notification(list_changed_method(ListKind::Tools), None);
                    agent.send(frame.into(), Delivery::Reliable);
                }
            })
        };
        self.tool_cache.get_or_start(budget, parent, changed)
    }

    /// The connection as shown to the operator.
    #[must_use]
    pub(crate) fn to_client(&self) -> Client {
        let endpoint = match &self.channel {
            AgentChannel::Line(_) => "socket",
            AgentChannel::Session(_) | AgentChannel::Listener { .. } => "http",
            AgentChannel::Follower(_) => "node",
        };
        let agent = if self.is_operator() {
            "operator".to_owned()
        } else {
            self.id().to_string()
        };
        let view = self
            .caller()
            .map_or(&CatalogView::All, |caller| &caller.view);
        let (holds, held) = self.tool_cache.report();
        Client {
            holds: holds as u64,
            held,
            ..self.activity.to_client(agent, endpoint, view)
        }
    }

    /// The caller; set by `initialize`.
    #[must_use]
    pub fn caller(&self) -> Option<&Arc<Caller>> {
        self.caller.get()
    }

    /// Marks the client as ready after `notifications/initialized`: the kernel may send to it.
    pub fn set_ready(&self) {
        self.ready.raise();
    }

    /// True once the client is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.is_raised()
    }

    /// The lowest log level it wants.
    #[must_use]
    pub fn level(&self) -> LogLevel {
        LogLevel::ALL[usize::from(self.level.load(Ordering::Relaxed)) % LogLevel::ALL.len()]
    }

    /// True once the client has set a log level.
    #[must_use]
    pub fn has_set_level(&self) -> bool {
        self.level_set.load(Ordering::Relaxed)
    }

    /// Sets the lowest log level it wants.
    pub fn set_level(&self, level: LogLevel) {
        let index = LogLevel::ALL.iter().position(|l| *l == level).unwrap_or(0);
        self.level
            .store(index.try_into().unwrap_or(0), Ordering::Relaxed);
        self.level_set.store(true, Ordering::Relaxed);
    }

    /// Registers an in-flight request.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`] for an id that is in flight already, [`Refusal::Overloaded`] above
    /// [`MAX_OPEN`].
    pub fn open_request(
        &self,
        id: &RequestId,
        lane: Option<Lane>,
    ) -> Result<Arc<InFlightCall>, Refusal> {
        let path = match (&self.channel, lane) {
            (AgentChannel::Line(sink), _) => ReplyPath::Line(sink.clone()),
            (AgentChannel::Session(streams), Some(lane)) => ReplyPath::Stream {
                streams: streams.clone(),
                lane,
                primed: self
                    .caller()
                    .is_some_and(|c| c.version.has_stream_priming()),
            },
            // A request in a batch has no stream of its own.
            (AgentChannel::Session(streams), None) => ReplyPath::Stream {
                streams: streams.clone(),
                lane: GET_LANE,
                primed: false,
            },
            (AgentChannel::Listener { .. } | AgentChannel::Follower(_), _) => ReplyPath::Discard,
        };
        let call = InFlightCall::with_id(id.clone(), path);
        self.register_request(id, call.clone())?;
        Ok(call)
    }

    /// Answers a ping, even when the limit of requests is reached.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`] for an id that is in flight already.
    pub fn ping(&self, id: &RequestId) -> Result<Vec<u8>, Refusal> {
        let open = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if open.contains_key(id) {
            return Err(id_in_use_refusal(id));
        }
        drop(open);
        self.tap_ping(id);
        Ok(jsonrpc::result(id.as_json(), "{}"))
    }

    /// Registers an in-flight stateless request, so that it can be cancelled by its id.
    ///
    /// # Errors
    /// As [`Self::open_request`].
    pub fn register_request(&self, id: &RequestId, call: Arc<InFlightCall>) -> Result<(), Refusal> {
        let mut open = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_OPEN {
            return Err(Refusal::Overloaded {
                what: format!("the list of {MAX_OPEN} requests this client has under way"),
            });
        }
        if open.contains_key(id) {
            return Err(id_in_use_refusal(id));
        }
        open.insert(id.clone(), call);
        Ok(())
    }

    /// Creates a call for callbacks of the kernel outside the agent's own requests.
    #[must_use]
    pub fn new_kernel_call(&self) -> Arc<InFlightCall> {
        self.with_tap(InFlightCall::new(match &self.channel {
            AgentChannel::Line(sink) => ReplyPath::Line(sink.clone()),
            AgentChannel::Session(streams) => ReplyPath::Stream {
                streams: streams.clone(),
                lane: GET_LANE,
                primed: false,
            },
            AgentChannel::Listener { .. } | AgentChannel::Follower(_) => ReplyPath::Discard,
        }))
    }

    /// Removes a request that has been answered.
    pub fn finish_request(&self, id: &RequestId) {
        let mut open = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(id);
        if open.is_empty() {
            open.shrink_to(64);
            self.request_finished.notify_waiters();
        }
    }

    /// True while a request is in flight.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        let open = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        !open.is_empty()
    }

    /// Resolves when no request is in flight.
    pub async fn wait_until_idle(&self) {
        loop {
            let mut answered = std::pin::pin!(self.request_finished.notified());
            answered.as_mut().enable();
            if !self.has_requests() {
                return;
            }
            answered.await;
        }
    }

    /// Cancels a request: `params` of the client's `notifications/cancelled`. Unknown ids are ignored
    /// (MCP-055).
    pub fn handle_cancelled(&self, params: Option<&str>) {
        self.tap_cancel(params);
        let Ok(cancelled) = mcp::parse_params::<mcp::Cancelled<'_>>(params) else {
            return;
        };
        let Some(id) = RequestId::from_json(cancelled.request_id.get()) else {
            return;
        };
        let call = {
            let mut open = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            open.remove(&id)
        };
        if let Some(call) = call {
            call.cancel_with_reason(cancelled.reason());
        }
    }

    /// Handles a disconnect: cancels the client's requests and fails its callbacks.
    pub fn disconnect(&self) {
        let open = {
            let mut open = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *open)
        };
        open.into_values().for_each(|call| call.cancel());
        self.pending_callbacks.close();
        self.tool_cache.end();
        match &self.channel {
            AgentChannel::Line(sink) => sink.close(),
            AgentChannel::Session(streams) => streams.close(),
            AgentChannel::Listener { call, .. } | AgentChannel::Follower(call) => call.cancel(),
        }
    }

    /// Sends a callback to the client, for a server or for the kernel itself, on the stream of the request
    /// that caused it. `progress` receives the params of each `notifications/progress` of the client.
    ///
    /// # Errors
    /// [`CallbackError`]: why there is no answer.
    pub async fn send_callback(
        &self,
        call: &InFlightCall,
        progress: Option<EventSink<String>>,
        method: &str,
        params: Option<&str>,
    ) -> Result<CallbackResult, CallbackError> {
        self.send_callback_with_chunks(call, (progress, None), method, params)
            .await
    }

    /// Sends a callback; for an inference, its chunks are received too.
    async fn send_callback_with_chunks(
        &self,
        call: &InFlightCall,
        (progress, parts): (Option<EventSink<String>>, Option<EventSink<String>>),
        method: &str,
        params: Option<&str>,
    ) -> Result<CallbackResult, CallbackError> {
        self.wait_until_ready(call).await?;
        let (sender, answer) = oneshot::channel();
        let token = params.and_then(|params| progress_token(params).ok().flatten());
        let asked = PendingCallback {
            answer: sender,
            progress: token.map(|token| token.get().into()).zip(progress),
            chunks: parts,
        };
        let number = self
            .pending_callbacks
            .insert(asked)
            .map_err(|refused| match refused {
                AdmissionError::Full(_) => CallbackError::Overloaded,
                AdmissionError::Closed(_) => CallbackError::Disconnected,
            })?;
        let id = self.ids.encode(number);
        let forget = RegisteredCallback {
            agent: self,
            call,
            number,
            id,
        };
        let params = params.map(|params| {
            let mut splice = Splice::new(params);
            if let Some(token) = token {
                splice.replace(token.get(), id.to_string());
            }
            splice.finish()
        });
        call.send(
            jsonrpc::request(&id.to_string(), method, params.as_deref()).into(),
            Delivery::Reliable,
        );
        let outcome = tokio::select! {
            answer = answer => answer.map_err(|_| CallbackError::Disconnected),
            () = call.wait_until_cancelled() => Err(CallbackError::Cancelled),
            () = tokio::time::sleep(ANSWER_DEADLINE) => Err(CallbackError::TimedOut(ANSWER_DEADLINE)),
        };
        drop(forget);
        outcome
    }

    /// Resolves when the client is ready (MCP-017: nothing but ping and log before).
    ///
    /// # Errors
    /// The client is not ready in time, or the request was cancelled.
    pub async fn wait_until_ready(&self, call: &InFlightCall) -> Result<(), CallbackError> {
        tokio::select! {
            biased;
            () = self.ready.wait_until_raised() => Ok(()),
            () = call.wait_until_cancelled() => Err(CallbackError::Cancelled),
            () = tokio::time::sleep(READY_TIMEOUT) => Err(CallbackError::NotReady),
        }
    }

    /// Settles a callback with the client's answer; an answer without an open callback is dropped
    /// (CMCP-007).
    pub fn settle_callback(&self, id: &RequestId, answer: CallbackResult) {
        self.tap_answer(id, &answer);
        let number = id.as_u64().and_then(|id| self.ids.decode(id));
        if let Some(waiter) = number.and_then(|number| self.pending_callbacks.take(number)) {
            let _ = waiter.answer.send(answer);
        }
    }

    /// Fails the callback that a malformed message answers; false when the message is no answer. Its id is
    /// one of the kernel's, not of the client's, so no error is sent under it.
    pub fn settle_malformed(&self, text: &[u8], malformed: &Malformed) -> bool {
        let scanned = PartialMessage::scan(text);
        if scanned.is_response()
            && let Some(id) = scanned.id()
        {
            let error = ErrorObject::new(malformed.code(), malformed.to_string());
            let error = serde_json::to_string(&error).expect("an error object is always JSON");
            self.settle_callback(&id, Err(error.into()));
        }
        scanned.is_response()
    }

    /// Forwards the client's progress on a callback to the server, under the server's own token.
    pub fn handle_progress(&self, params: &str) {
        let Ok(progress) = mcp::parse_params::<mcp::Progress<'_>>(Some(params)) else {
            return;
        };
        let id = progress.progress_token.get().parse().ok();
        let number = id.and_then(|id| self.ids.decode(id));
        let asked = number.and_then(|n| {
            self.pending_callbacks
                .inspect(n, |asked| asked.progress.clone())
        });
        if let Some((token, heard)) = asked.flatten() {
            let mut splice = Splice::new(params);
            splice.replace(progress.progress_token.get(), &*token);
            heard.send(splice.finish().into_owned());
        }
    }
}

/// On drop, removes the callback from the table and, if it has no answer, cancels it at the client.
struct RegisteredCallback<'a> {
    agent: &'a Agent,
    call: &'a InFlightCall,
    number: u64,
    id: WireId,
}

impl Drop for RegisteredCallback<'_> {
    fn drop(&mut self) {
        if self.agent.pending_callbacks.take(self.number).is_some() {
            let params = format!(r#"{{"requestId":{}}}"#, self.id);
            let frame = jsonrpc::notification("notifications/cancelled", Some(&params));
            self.call.send(frame.into(), Delivery::Reliable);
        }
    }
}
fn id_in_use_refusal(id: &RequestId) -> Refusal {
    Refusal::BadRequest(format!("a request with id {id} is still under way"))
}
