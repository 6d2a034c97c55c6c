//! The actor of one line connection: the operator's socket, and `mgp stdio` through it. It reads its own
//! socket and receives no messages.

use std::future::Future;
use std::path::{Component, Path};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use mgp_engine::doors::suggestions::nearest_name;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::{Dialect, Version};
use mgp_protocol::framing::Frame;
use mgp_protocol::ids::{AgentId, ServerId, SetName};
use mgp_protocol::jsonrpc::partial_message::{self, PartialMessage};
use mgp_protocol::jsonrpc::{
    self, ErrorObject, INTERNAL_ERROR, INVALID_REQUEST, Malformed, Message, RequestId,
};
use mgp_protocol::mcp;
use mgp_protocol::mgp::door;
use mgp_protocol::mgp::negotiation::PLAIN;
use mgp_protocol::refusal::Refusal;
use mgp_transports::lines::{LineSink, QueueLimits};
use mgp_transports::{ResponseBudget, lines};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::endpoint_context::{AgentPresence, EndpointContext};
use crate::stateless::{self, StatelessRequest};
use mgp_callers::Outlet;
use mgp_callers::agent::{Agent, AgentChannel, send_line};
use mgp_callers::request::{
    Caller, CallerSession, GuardedAnswer, Outcome, Request, identity, panic_refusal, render_answer,
};
use mgp_engine::policy::access::ClaimedGroups;
use mgp_runtime::trace::Trace;
use mgp_runtime::{ActorCountGuard, CountedKind, task};

/// An agent that does not read for this long is disconnected.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest folder that a client may name, in bytes: the longest path of the system.
const FOLDER_MAX: usize = 4096;

/// How long requests may take after the agent has closed its side.
const CLOSE_GRACE: Duration = Duration::from_secs(5);

/// Fixed at construction.
#[derive(Debug)]
pub(crate) struct ConnectionActor {
    endpoint: EndpointContext,
    agent: Arc<Agent>,
}

/// The state of the actor.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    /// `None` once the connection has ended normally.
    presence: Option<AgentPresence>,
    _alive: ActorCountGuard,
}

/// When a connection ends besides its client's own end.
#[derive(Clone, Debug, Default)]
pub struct ConnectionEnd {
    /// Nothing more is read, and requests in flight have until `leave`.
    pub drain: CancellationToken,
    /// It ends.
    pub leave: CancellationToken,
}

/// Serves an agent on a pair of byte streams until either side closes, or `end` says so. Without a `view` the agent may
/// choose one with `mgp/door/open`.
pub async fn serve<R, W>(
    context: EndpointContext,
    (id, groups): (AgentId, ClaimedGroups),
    operator: bool,
    view: Option<CatalogView>,
    end: ConnectionEnd,
    reader: R,
    writer: W,
) where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (sink, lines_out) = lines::line_channel(QueueLimits::default());
    let (budget, longest) = (
        context.message_budgets.agent_budget(&id),
        context.message_budgets.message_max(),
    );
    let agent = Agent::new(id, operator, AgentChannel::Line(sink.clone()));
    agent.set_groups(groups);
    let actor = ConnectionActor {
        endpoint: context.clone(),
        agent: agent.clone(),
    };
    let cell = context.agents.get_cell();
    let Ok((actor, ended)) = Actor::spawn_linked(None, actor, (), cell).await else {
        return;
    };
    let mut inbound = Inbound {
        endpoint: context,
        agent: agent.clone(),
        sink: sink.clone(),
        view: view.map_or_else(OnceLock::new, OnceLock::from),
        overrun: PartialMessage::default(),
    };
    let writing = task::spawn_supervised("connection.write", lines_out.run(writer, STALL_TIMEOUT));
    let reading = lines::read_lines_with_budget(reader, longest, Some(budget), move |frame| {
        inbound.handle_frame(frame);
    });
    tokio::pin!(writing);
    let heard_out = async {
        tokio::select! {
            _ = reading => {}
            () = end.leave.cancelled() => {}
        }
        // The agent sends no more; calls in flight may still be answered.
        tokio::select! {
            () = agent.wait_until_idle() => {}
            () = tokio::time::sleep(CLOSE_GRACE), if !end.drain.is_cancelled() => {}
            () = end.leave.cancelled(), if end.drain.is_cancelled() => {}
        }
        sink.close();
        std::future::pending().await
    };
    tokio::select! {
        _ = &mut writing => {}
        () = heard_out => {}
    }
    actor.stop(None);
    let _ = ended.await;
}

impl Actor for ConnectionActor {
    type Msg = ();
    type State = ConnectionState;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<()>,
        (): (),
    ) -> Result<ConnectionState, ActorProcessingErr> {
        Ok(ConnectionState {
            presence: Some(AgentPresence::enter(&self.endpoint, &self.agent)),
            _alive: ActorCountGuard::new(CountedKind::Connection),
        })
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<()>,
        state: &mut ConnectionState,
    ) -> Result<(), ActorProcessingErr> {
        state.presence = None;
        Ok(())
    }
}

/// The reading side of the connection.
struct Inbound {
    endpoint: EndpointContext,
    agent: Arc<Agent>,
    sink: LineSink,
    view: OnceLock<CatalogView>,
    /// Scans the start of a dropped oversized line for its id.
    overrun: PartialMessage,
}

impl Inbound {
    fn handle_frame(&mut self, frame: Frame) {
        match frame {
            Frame::Line(line) => {
                if let Err(broken) =
                    task::catch_panic_sync("connection.line", || self.handle_line(&line))
                {
                    self.send_failure(&line, &panic_refusal(&broken));
                }
            }
            // Answered at the end of the line; later lines are read as usual.
            Frame::LimitExceeded { head } => {
                self.overrun = PartialMessage::scan(&head);
            }
            Frame::Oversized { tail, len } => self.handle_oversized(&tail, len),
        }
    }

    fn handle_line(&self, line: &Bytes) {
        match ByteString::try_from(line.clone()) {
            Ok(text) => self.handle_message(&text),
            Err(_) => self.handle_malformed(line, &Malformed::NotJson("not UTF-8".into())),
        }
    }

    /// Answers a request whose handler panicked with this error.
    fn send_failure(&self, line: &[u8], refusal: &Refusal) {
        let scanned = PartialMessage::scan(line);
        if !scanned.is_response()
            && let Some(id) = scanned.id()
        {
            self.agent.finish_request(&id);
            self.send(refusal.render_response(id.as_json(), self.dialect()));
        }
    }

    /// Answers an oversized line at its end with an error under its id, if that can be parsed. If the line
    /// was the answer to a callback, the callback fails.
    fn handle_oversized(&mut self, tail: &[u8], len: u64) {
        let scanned = std::mem::take(&mut self.overrun);
        let request_id = scanned
            .id()
            .or_else(|| partial_message::find_trailing_id(tail));
        let (code, text) = self.drop_reason(len);
        let error = ErrorObject::new(code, text);
        let error = serde_json::to_string(&error).expect("an error object is always JSON");
        match request_id {
            Some(id) if scanned.is_response() => self.agent.settle_callback(&id, Err(error.into())),
            Some(id) => self.send(jsonrpc::error(id.as_json(), &error)),
            None => self.send(jsonrpc::error("null", &error)),
        }
    }

    /// The error for a dropped line: it is too long, or there was no capacity.
    fn drop_reason(&self, len: u64) -> (i64, String) {
        let longest = self.endpoint.message_budgets.message_max();
        if usize::try_from(len).is_ok_and(|len| len <= longest) {
            (
                INTERNAL_ERROR,
                self.endpoint.message_budgets.overload_message(),
            )
        } else {
            (
                INVALID_REQUEST,
                format!(
                    "Invalid Request: a message of {len} bytes, the limit is {longest} (`[limits] max_frame_bytes`)"
                ),
            )
        }
    }

    fn handle_message(&self, text: &ByteString) {
        match jsonrpc::parse_text(text) {
            Ok(Message::Request {
                id,
                method,
                params,
                trace,
            }) => {
                let trace = Trace::from_params(params.map(RawValue::get), trace);
                let params = params.map(|p| text.slice_ref(p.get()));
                if stateless::is_stateless(params.as_deref()) {
                    self.handle_stateless(id, method.as_ref(), params, trace)
                } else {
                    self.handle_request(id, method.as_ref(), params, trace)
                }
            }
            Ok(Message::Notification { method, params }) => {
                self.handle_notification(&method, params.map(RawValue::get));
            }
            Ok(Message::Response { id, outcome }) => self.handle_response(text, id, outcome),
            Err(Malformed::Batch) if self.allows_batches() => self.handle_batch(text),
            Err(malformed) => self.handle_malformed(text.as_bytes(), &malformed),
        }
    }

    /// Handles an unreadable message. An unreadable answer gets no error, because its id is one of the
    /// kernel's.
    fn handle_malformed(&self, text: &[u8], malformed: &Malformed) {
        self.agent.tap_unreadable(text);
        if self.agent.settle_malformed(text, malformed) {
            return;
        }
        if let Some(frame) = malformed.to_frame() {
            self.send(frame);
        }
    }

    /// The dialect of answers to the client.
    fn dialect(&self) -> Dialect {
        let caller = self.agent.caller();
        caller.map_or_else(|| Version::LATEST_LEGACY.into(), |caller| caller.dialect())
    }

    fn allows_batches(&self) -> bool {
        self.agent.caller().is_some_and(|c| c.version.has_batches())
    }

    /// Handles a batch, in 2025-03-26 only. Each answer may be sent as its own line.
    fn handle_batch(&self, text: &ByteString) {
        for message in jsonrpc::split_batch(text.as_bytes()).unwrap_or_default() {
            let message = text.slice_ref(message.get());
            match jsonrpc::parse_text(&message) {
                Err(malformed) => self.handle_malformed(message.as_bytes(), &malformed),
                Ok(_) => self.handle_message(&message),
            }
        }
    }

    fn handle_request(
        &self,
        id: RequestId,
        method: &str,
        params: Option<ByteString>,
        trace: Trace,
    ) {
        let dialect = self.dialect();
        let refuse = |refusal: Refusal| self.send(refusal.render_response(id.as_json(), dialect));
        match method {
            // The one request that MCP allows before `initialize` (2025-11-25, lifecycle). It is answered
            // even at the limit of in-flight requests.
            "ping" => match self.agent.ping(&id) {
                Ok(answer) => self.send(answer),
                Err(refusal) => refuse(refusal),
            },
            "mgp/door/open" => match self.open_view(params.as_deref()) {
                Ok(()) => self.send(jsonrpc::result(id.as_json(), "{}")),
                Err(refusal) => refuse(refusal),
            },
            "initialize" => match self.initialize(params.as_deref()) {
                Ok(caller) => self.answer_initialize(id, caller),
                Err(refusal) => refuse(refusal),
            },
            _ => match self.agent.caller() {
                // The operator's own methods need no handshake.
                None if !method.starts_with(mgp_protocol::mgp::PREFIX) => refuse(
                    Refusal::BadRequest("`initialize` comes first on a connection".into()),
                ),
                _ => match self.agent.open_request(&id, None) {
                    Ok(exchange) => {
                        let caller = self.current_caller();
                        let method = ByteString::from(method);
                        self.answer_request(
                            id,
                            Request {
                                caller,
                                call: exchange,
                                method,
                                params,
                                trace,
                            },
                        );
                    }
                    Err(refusal) => refuse(refusal),
                },
            },
        }
    }

    /// Handles a stateless request, even after other messages on this connection (MCP 2026-07-28).
    fn handle_stateless(
        &self,
        id: RequestId,
        method: &str,
        params: Option<ByteString>,
        trace: Trace,
    ) {
        let begun =
            stateless::parse_request_meta(method, params.as_deref()).map(|(stated, _)| stated);
        let dialect = match &begun {
            Ok(stated) => stated.dialect(),
            Err(_) => Version::STATELESS.into(),
        };
        let begun = begun.and_then(|stated| {
            stated.check_version()?;
            let arrival = StatelessRequest {
                agent: self.agent.id().clone(),
                groups: self.agent.groups(),
                operator: self.agent.is_operator(),
                session: CallerSession::Stateless,
                address: None,
                view: self.view.get().cloned().unwrap_or(CatalogView::All),
                id: id.clone(),
                method: method.into(),
                params,
                trace,
                outlet: Outlet::Line(self.sink.clone()),
            };
            let activity = self.agent.activity.clone();
            activity.introduce_text(stated.client.as_deref(), Version::STATELESS);
            let running = self.endpoint.stateless.open(arrival, stated, activity)?;
            running.call().set_budget(self.budget());
            self.agent.register_request(&id, running.call().clone())?;
            Ok(running)
        });
        let running = match begun {
            Ok(running) => running,
            Err(refusal) => return self.send(refusal.render_response(id.as_json(), dialect)),
        };
        let (agent, sink) = (self.agent.clone(), self.sink.clone());
        let exchange = running.call().clone();
        run_answer(running.into_answer(), move |outcome| {
            agent.finish_request(&id);
            // A cancelled request gets no answer (CMCP-054).
            if exchange.stop().is_requested() || !matches!(outcome, Err(Refusal::Cancelled)) {
                let frame = render_answer(id.as_json(), &outcome, dialect);
                send_line(&sink, exchange.release_response(frame));
            }
        });
    }

    /// The memory budget for responses of its agent.
    fn budget(&self) -> ResponseBudget {
        let responses = &self.endpoint.directory.responses;
        responses.budget(self.agent.id())
    }

    /// The caller; for an operator without a handshake, one without capabilities.
    fn current_caller(&self) -> Arc<Caller> {
        self.agent.caller().cloned().unwrap_or_else(|| {
            Arc::new(Caller {
                connection: self.agent.connection,
                agent: self.agent.id().clone(),
                groups: self.agent.groups(),
                operator: self.agent.is_operator(),
                view: self.view.get().cloned().unwrap_or(CatalogView::All),
                version: Version::LATEST_LEGACY,
                capabilities: mcp::ClientCapabilities::default(),
                extensions: None,
                mgp: PLAIN,
                mcpl: None,
                session: CallerSession::Open(Arc::downgrade(&self.agent)),
                address: None,
                activity: self.agent.activity.clone(),
            })
        })
    }

    fn open_view(&self, params: Option<&str>) -> Result<(), Refusal> {
        let open: door::Open = mcp::parse_params(params)?;
        // Before it states its identity: only the operator learns which servers exist.
        let owner = self.agent.is_operator();
        if let Some(name) = &open.agent {
            self.act_as(name)?;
        } else if owner && open.set.is_some() {
            self.act_as(AgentId::LOCAL)?;
        }
        // Only the operator's client may name a folder: every `mgp stdio` sends its own.
        if let Some(folder) = open.folder.as_deref().filter(|_| owner) {
            self.set_working_folder(folder)?;
        }
        let view = parse_view(&open)?;
        let principal = identity(
            self.agent.id(),
            self.agent.is_operator(),
            &view,
            &self.agent.groups(),
        );
        if !self.endpoint.routes.is_view_known(&view, &principal) {
            return Err(match view {
                CatalogView::Set(set) => Refusal::BadParams(self.unknown_set_message(&set, owner)),
                CatalogView::One(server) if owner => {
                    Refusal::BadParams(self.unknown_server_message(&server))
                }
                CatalogView::All | CatalogView::One(_) => Refusal::UnknownServer(view.to_string()),
            });
        }
        self.view
            .set(view)
            .map_err(|_| Refusal::BadRequest("`mgp/door/open` was already sent".into()))
    }

    /// Sets the folder in which servers may be started, as reported by the operator's client. Its existence
    /// is checked when a server is started.
    fn set_working_folder(&self, folder: &Path) -> Result<(), Refusal> {
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        let is_short = folder.as_os_str().len() <= FOLDER_MAX;
        if !is_short || !folder.is_absolute() || !folder.components().all(plain) {
            return Err(Refusal::BadParams(
                "`folder` is the whole path of a folder, without links".into(),
            ));
        }
        self.agent.activity.set_folder(folder.into());
        Ok(())
    }

    /// Makes the operator act as one of the agents.
    fn act_as(&self, name: &str) -> Result<(), Refusal> {
        if name == AgentId::LOCAL {
            return self.agent.act_as(AgentId::new(AgentId::LOCAL));
        }
        let id = AgentId::parse(name).map_err(|e| Refusal::BadParams(e.to_string()))?;
        self.agent.act_as(id.clone())?;
        // Checked afterwards, so that an agent removed meanwhile is either unknown or ended with the rest.
        if !self.endpoint.registered_agents.contains(&id) {
            return Err(Refusal::BadParams(self.unknown_agent_message(&id)));
        }
        Ok(())
    }

    /// The error for a set that the caller has no endpoint for; the operator gets the list of existing
    /// sets.
    fn unknown_set_message(&self, set: &SetName, owner: bool) -> String {
        const LISTED: &str = "`mgp sets list` shows the known ones";
        let table = self.endpoint.directory.access();
        let named = &table.sets().by_name;
        if !owner {
            return format!("no such set for this caller; {LISTED}");
        }
        if named.contains_key(set) {
            let agent = self.agent.id();
            return format!("{agent} is held to another set than {set} (`set` in [agents.*])");
        }
        let suggestion = nearest_name(set.as_str(), named.keys().map(SetName::as_str));
        let suggestion = suggestion.map(|suggestion| format!(" (did you mean {suggestion}?)"));
        format!("no set {set}{}; {LISTED}", suggestion.unwrap_or_default())
    }

    /// The error for an unknown server, with a suggestion. Only the operator can read it.
    fn unknown_server_message(&self, server: &ServerId) -> String {
        let suggestion = self.endpoint.routes.nearest_server(server);
        let suggestion = suggestion.map(|suggestion| format!(" (did you mean {suggestion}?)"));
        format!(
            "no server {server}{}; `mgp servers list` shows the known ones",
            suggestion.unwrap_or_default()
        )
    }

    /// The error for an unknown agent, with a suggestion. Only the operator can read it.
    fn unknown_agent_message(&self, id: &AgentId) -> String {
        let short = |id: &AgentId| id.as_str()[AgentId::PREFIX.len()..].to_owned();
        let name = short(id);
        let known = self.endpoint.registered_agents.list();
        let known: Vec<String> = known.iter().map(|(id, _)| short(id)).collect();
        let suggestion = nearest_name(&name, known.iter().map(String::as_str));
        let suggestion = suggestion.map(|suggestion| format!(" (did you mean {suggestion}?)"));
        format!(
            "no agent {name}{}; `mgp agents list` shows the known ones, `mgp agents add {name}` makes it",
            suggestion.unwrap_or_default()
        )
    }

    fn initialize(&self, params: Option<&str>) -> Result<Arc<Caller>, Refusal> {
        let hello: mcp::Initialize<'_> = mcp::parse_params(params)?;
        let view = self.view.get().cloned().unwrap_or(CatalogView::All);
        self.agent.initialize(view, &hello, None)
    }

    fn answer_initialize(&self, id: RequestId, caller: Arc<Caller>) {
        let dialect = caller.dialect();
        let welcome = GuardedAnswer::new(|| self.endpoint.routes.initialize(caller));
        let (agent, sink) = (self.agent.clone(), self.sink.clone());
        // Registered like any other request, so that it is answered although the client has closed its
        // side.
        let _ = agent.open_request(&id, None);
        run_answer(welcome, move |outcome| {
            agent.finish_request(&id);
            send_line(&sink, render_answer(id.as_json(), &outcome, dialect));
        });
    }

    fn answer_request(&self, id: RequestId, request: Request) {
        let (agent, sink) = (self.agent.clone(), self.sink.clone());
        let (dialect, exchange) = (request.caller.dialect(), request.call.clone());
        exchange.set_budget(self.budget());
        let answering = GuardedAnswer::new(|| self.endpoint.routes.answer(request));
        run_answer(answering, move |outcome| {
            agent.finish_request(&id);
            // A cancelled request gets no answer (CMCP-054).
            if exchange.is_awaited() {
                let frame = render_answer(id.as_json(), &outcome, dialect);
                send_line(&sink, exchange.release_response(frame));
            }
            exchange.finish();
        });
    }

    fn handle_notification(&self, method: &str, params: Option<&str>) {
        match method {
            "notifications/cancelled" => self.agent.handle_cancelled(params),
            _ => {
                if method == "notifications/initialized" {
                    self.agent.set_ready();
                }
                if let Some(caller) = self.agent.caller() {
                    self.endpoint
                        .routes
                        .handle_notification(caller, method, params);
                }
            }
        }
    }

    fn handle_response(
        &self,
        text: &ByteString,
        id: Option<RequestId>,
        outcome: Result<&RawValue, &RawValue>,
    ) {
        let Some(id) = id else { return };
        let bytes = |raw: &RawValue| text.slice_ref(raw.get()).into_bytes();
        self.agent
            .settle_callback(&id, outcome.map(bytes).map_err(bytes));
    }

    fn send(&self, frame: Vec<u8>) {
        send_line(&self.sink, Bytes::from(frame));
    }
}

/// Parses the view that the caller requests.
fn parse_view(open: &door::Open) -> Result<CatalogView, Refusal> {
    let bad_params = |why: String| Refusal::BadParams(why);
    match (&open.server, &open.set) {
        (None, None) => Ok(CatalogView::All),
        (Some(id), None) => match ServerId::parse_local_or_remote(id) {
            Ok(id) => Ok(CatalogView::One(id)),
            Err(why) => Err(bad_params(why.to_string())),
        },
        (None, Some(set)) => match SetName::parse(set) {
            Ok(set) => Ok(CatalogView::Set(set)),
            Err(why) => Err(bad_params(why.to_string())),
        },
        (Some(_), Some(_)) => Err(bad_params(
            "a door is of one server or of a set, not both".into(),
        )),
    }
}

/// Polls an answer at once, which is enough for lists (CMCP-099); otherwise continues in a task.
fn run_answer(mut answering: GuardedAnswer, then: impl FnOnce(Outcome) + Send + 'static) {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match Pin::new(&mut answering).poll(&mut cx) {
        std::task::Poll::Ready(outcome) => then(outcome),
        std::task::Poll::Pending => {
            task::spawn_detached("connection.request", async move { then(answering.await) });
        }
    }
}
