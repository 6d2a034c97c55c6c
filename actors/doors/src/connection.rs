//! The actor of one line connection: the owner-only socket, and `mgp stdio` through it.
//! It reads its own socket and gets no messages.

use std::future::Future;
use std::path::{Component, Path};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use mgp_engine::doors::nearest::nearest_name;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::{Dialect, Version};
use mgp_protocol::framing::Frame;
use mgp_protocol::ids::{AgentId, ServerId, SetName};
use mgp_protocol::jsonrpc::torn::{self, Glance};
use mgp_protocol::jsonrpc::{
    self, ErrorObject, INTERNAL_ERROR, INVALID_REQUEST, Malformed, Message, RequestId,
};
use mgp_protocol::mcp;
use mgp_protocol::mgp::door;
use mgp_protocol::mgp::negotiation::PLAIN;
use mgp_protocol::refusal::Refusal;
use mgp_transports::lines::{self, LineSink, QueueLimits};
use mgp_transports::unread::ResponseBudget;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::reception::{AgentPresence, Reception};
use crate::stateless::{self, Arrival};
use mgp_callers::agent::{Agent, Outward, send_line};
use mgp_callers::exchange::rounds::Outlet;
use mgp_callers::request::{
    Caller, CallerSession, GuardedAnswer, Outcome, Request, answer_frame, identity, refused,
};
use mgp_runtime::mailbox::{Alive, Kind};
use mgp_runtime::task;
use mgp_runtime::trace::Trace;

/// An agent that does not read for this long is disconnected.
const STALL: Duration = Duration::from_secs(30);

/// Longest folder that a client may name, in bytes: the longest path of the system.
const FOLDER_MAX: usize = 4096;

/// How long requests may take after the agent has closed its side.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Fixed at construction.
#[derive(Debug)]
pub struct ConnectionActor {
    reception: Reception,
    agent: Arc<Agent>,
}

/// The state of the actor.
#[derive(Debug)]
pub struct ConnectionState {
    /// `None` once the connection has ended in order.
    presence: Option<AgentPresence>,
    _alive: Alive,
}

/// Serves an agent on a pair of byte streams until either side ends, or `leave` says that it is time. Without
/// a `view` the agent may choose one with `mgp/door/open`. Resolves at the end.
pub async fn serve<R, W>(
    reception: Reception,
    id: AgentId,
    operator: bool,
    view: Option<CatalogView>,
    leave: CancellationToken,
    reader: R,
    writer: W,
) where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (sink, lines_out) = lines::sink(QueueLimits::default());
    let (room, longest) = (reception.bodies.room(&id), reception.bodies.longest());
    let agent = Agent::new(id, operator, Outward::Line(sink.clone()));
    let actor = ConnectionActor {
        reception: reception.clone(),
        agent: agent.clone(),
    };
    let cell = reception.agents.get_cell();
    let Ok((actor, ended)) = Actor::spawn_linked(None, actor, (), cell).await else {
        return;
    };
    let mut inbound = Inbound {
        reception,
        agent: agent.clone(),
        sink: sink.clone(),
        view: view.map_or_else(OnceLock::new, OnceLock::from),
        overrun: Glance::default(),
    };
    let writing = task::supervised("connection.write", lines_out.run(writer, STALL));
    let reading = lines::read_within(reader, longest, Some(room), move |frame| {
        inbound.receive(frame);
    });
    tokio::pin!(writing);
    let heard_out = async {
        tokio::select! {
            _ = reading => {}
            () = leave.cancelled() => {}
        }
        // The agent sends no more; calls under way may still be answered.
        let _ = tokio::time::timeout(LAST_WORDS, agent.idle()).await;
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
            presence: Some(AgentPresence::begin(&self.reception, &self.agent)),
            _alive: Alive::new(Kind::Connection),
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

/// The reading side.
struct Inbound {
    reception: Reception,
    agent: Arc<Agent>,
    sink: LineSink,
    view: OnceLock<CatalogView>,
    /// Looks for the id in the start of a line that is over the limit and dropped.
    overrun: Glance,
}

impl Inbound {
    fn receive(&mut self, frame: Frame) {
        match frame {
            Frame::Line(line) => {
                if let Err(broken) = task::guarded("connection.line", || self.line(&line)) {
                    self.failed(&line, &refused(&broken));
                }
            }
            // Answered when the line has ended; what follows is read as usual.
            Frame::Overrun { head } => {
                self.overrun = Glance::at(&head);
            }
            Frame::Oversized { tail, len } => self.oversized(&tail, len),
        }
    }

    fn line(&self, line: &Bytes) {
        match ByteString::try_from(line.clone()) {
            Ok(text) => self.message(&text),
            Err(_) => self.malformed(line, &Malformed::NotJson("not UTF-8".into())),
        }
    }

    /// The handler of a message panicked: if it was a request, it is answered with this error.
    fn failed(&self, line: &[u8], refusal: &Refusal) {
        let seen = Glance::at(line);
        if !seen.answers()
            && let Some(id) = seen.id()
        {
            self.agent.done(&id);
            self.send(refusal.answer(id.as_json(), self.dialect()));
        }
    }

    /// A line over the limit has ended: an error is sent under its id, if that can be read. If it was an
    /// answer, its question fails.
    fn oversized(&mut self, tail: &[u8], len: u64) {
        let seen = std::mem::take(&mut self.overrun);
        let whose = seen.id().or_else(|| torn::id_at_end(tail));
        let (code, words) = self.why_not(len);
        let error = ErrorObject::new(code, words);
        let error = serde_json::to_string(&error).expect("an error object is always JSON");
        match whose {
            Some(id) if seen.answers() => self.agent.settle(&id, Err(error.into())),
            Some(id) => self.send(jsonrpc::error(id.as_json(), &error)),
            None => self.send(jsonrpc::error("null", &error)),
        }
    }

    /// Why a line was dropped: it is too long, or it found no room.
    fn why_not(&self, len: u64) -> (i64, String) {
        let longest = self.reception.bodies.longest();
        match usize::try_from(len).is_ok_and(|len| len <= longest) {
            true => (INTERNAL_ERROR, self.reception.bodies.full()),
            false => (
                INVALID_REQUEST,
                format!(
                    "Invalid Request: a message of {len} bytes, the limit is {longest} (`[limits] max_frame_bytes`)"
                ),
            ),
        }
    }

    fn message(&self, text: &ByteString) {
        match jsonrpc::parse_text(text) {
            Ok(Message::Request {
                id,
                method,
                params,
                trace,
            }) => {
                let trace = Trace::of(params.map(RawValue::get), trace);
                let params = params.map(|p| text.slice_ref(p.get()));
                match stateless::is_modern(params.as_deref()) {
                    true => self.modern(id, method.as_ref(), params, trace),
                    false => self.request(id, method.as_ref(), params, trace),
                }
            }
            Ok(Message::Notification { method, params }) => {
                self.notification(&method, params.map(RawValue::get));
            }
            Ok(Message::Response { id, outcome }) => self.response(text, id, outcome),
            Err(Malformed::Batch) if self.allows_batches() => self.batch(text),
            Err(malformed) => self.malformed(text.as_bytes(), &malformed),
        }
    }

    /// An unreadable answer is not answered, because its id is one of the kernel's.
    fn malformed(&self, text: &[u8], malformed: &Malformed) {
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
        self.agent
            .caller()
            .is_some_and(|c| c.version.allows_batches())
    }

    /// 2025-03-26 only. Each answer may be sent as its own line.
    fn batch(&self, text: &ByteString) {
        for message in jsonrpc::batch(text.as_bytes()).unwrap_or_default() {
            let message = text.slice_ref(message.get());
            match jsonrpc::parse_text(&message) {
                Err(malformed) => self.malformed(message.as_bytes(), &malformed),
                Ok(_) => self.message(&message),
            }
        }
    }

    fn request(&self, id: RequestId, method: &str, params: Option<ByteString>, trace: Trace) {
        let dialect = self.dialect();
        let refuse = |refusal: Refusal| self.send(refusal.answer(id.as_json(), dialect));
        match method {
            // The one request that MCP allows before `initialize` (2025-11-25, lifecycle). It is answered
            // however much is under way.
            "ping" => match self.agent.ping(&id) {
                Ok(answer) => self.send(answer),
                Err(refusal) => refuse(refusal),
            },
            "mgp/door/open" => match self.open(params.as_deref()) {
                Ok(()) => self.send(jsonrpc::result(id.as_json(), "{}")),
                Err(refusal) => refuse(refusal),
            },
            "initialize" => match self.initialize(params.as_deref()) {
                Ok(caller) => self.welcome(id, caller),
                Err(refusal) => refuse(refusal),
            },
            _ => match self.agent.caller() {
                // The operator's own methods need no handshake.
                None if !method.starts_with(mgp_protocol::mgp::PREFIX) => refuse(
                    Refusal::BadRequest("`initialize` comes first on a connection".into()),
                ),
                _ => match self.agent.open(&id, None) {
                    Ok(exchange) => {
                        let caller = self.caller();
                        let method = ByteString::from(method);
                        self.answer(
                            id,
                            Request {
                                caller,
                                exchange,
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

    /// Handles a stateless request, whatever was sent on this connection before (MCP 2026-07-28).
    fn modern(&self, id: RequestId, method: &str, params: Option<ByteString>, trace: Trace) {
        let begun = stateless::read(method, params.as_deref()).map(|(stated, _)| stated);
        let dialect = match &begun {
            Ok(stated) => stated.dialect(),
            Err(_) => Version::MODERN.into(),
        };
        let begun = begun.and_then(|stated| {
            stated.check_version()?;
            let arrival = Arrival {
                agent: self.agent.id().clone(),
                operator: self.agent.is_operator(),
                session: CallerSession::Stateless,
                view: self.view.get().cloned().unwrap_or(CatalogView::All),
                id: id.clone(),
                method: method.into(),
                params,
                trace,
                outlet: Outlet::Line(self.sink.clone()),
            };
            let activity = self.agent.activity.clone();
            activity.introduce_text(stated.client.as_deref(), Version::MODERN);
            let running = self.reception.stateless.open(arrival, stated, activity)?;
            running.exchange().count_response(self.budget());
            self.agent.enroll(&id, running.exchange().clone())?;
            Ok(running)
        });
        let running = match begun {
            Ok(running) => running,
            Err(refusal) => return self.send(refusal.answer(id.as_json(), dialect)),
        };
        let (agent, sink) = (self.agent.clone(), self.sink.clone());
        let exchange = running.exchange().clone();
        run(running.answer(), move |outcome| {
            agent.done(&id);
            // A cancelled request gets no answer (CMCP-054).
            if exchange.stop().is_asked() || !matches!(outcome, Err(Refusal::Cancelled)) {
                let frame = answer_frame(id.as_json(), &outcome, dialect);
                send_line(&sink, exchange.hand_on(frame));
            }
        });
    }

    /// What responses of its agent may take.
    fn budget(&self) -> ResponseBudget {
        let responses = &self.reception.directory.responses;
        responses.budget(self.agent.id())
    }

    /// The caller; for an operator without a handshake, one without capabilities.
    fn caller(&self) -> Arc<Caller> {
        self.agent.caller().cloned().unwrap_or_else(|| {
            Arc::new(Caller {
                connection: self.agent.connection,
                agent: self.agent.id().clone(),
                operator: self.agent.is_operator(),
                view: self.view.get().cloned().unwrap_or(CatalogView::All),
                version: Version::LATEST_LEGACY,
                capabilities: mcp::ClientCapabilities::default(),
                mgp: PLAIN,
                mcpl: None,
                session: CallerSession::Open(Arc::downgrade(&self.agent)),
                activity: self.agent.activity.clone(),
            })
        })
    }

    fn open(&self, params: Option<&str>) -> Result<(), Refusal> {
        let open: door::Open = mcp::read(params)?;
        // Before it says as whom it comes: only the owner is told what there is.
        let owner = self.agent.is_operator();
        if let Some(name) = &open.agent {
            self.stand_for(name)?;
        } else if owner && open.set.is_some() {
            self.stand_for(AgentId::LOCAL)?;
        }
        // What somebody else says of folders opens none: every `mgp stdio` says where it is.
        if let Some(folder) = open.folder.as_deref().filter(|_| owner) {
            self.works_in(folder)?;
        }
        let view = view_of(&open)?;
        let who = identity(self.agent.id(), self.agent.is_operator(), &view);
        if !self.reception.routes.knows(&view, &who) {
            return Err(match view {
                CatalogView::Set(set) => Refusal::BadParams(self.no_set(&set, owner)),
                CatalogView::One(server) if owner => Refusal::BadParams(self.no_server(&server)),
                CatalogView::All | CatalogView::One(_) => Refusal::UnknownServer(view.to_string()),
            });
        }
        self.view
            .set(view)
            .map_err(|_| Refusal::BadRequest("`mgp/door/open` was already said".into()))
    }

    /// Servers may be started in the folder that the owner's client says it works in. Whether it is there is seen
    /// when one is.
    fn works_in(&self, folder: &Path) -> Result<(), Refusal> {
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        let fits = folder.as_os_str().len() <= FOLDER_MAX;
        if !fits || !folder.is_absolute() || !folder.components().all(plain) {
            return Err(Refusal::BadParams(
                "`folder` is the whole path of a folder, without links".into(),
            ));
        }
        self.agent.activity.works_in(folder.into());
        Ok(())
    }

    /// The owner acts as one of the agents.
    fn stand_for(&self, name: &str) -> Result<(), Refusal> {
        if name == AgentId::LOCAL {
            return self.agent.stand_for(AgentId::new(AgentId::LOCAL));
        }
        let id = AgentId::parse(name).map_err(|e| Refusal::BadParams(e.to_string()))?;
        self.agent.stand_for(id.clone())?;
        // Checked afterwards, so that an agent removed meanwhile is either not known or ended with the rest.
        if !self.reception.registered_agents.knows(&id) {
            return Err(Refusal::BadParams(self.nobody(&id)));
        }
        Ok(())
    }

    /// The error for a set that the caller has no door to; the owner is told which there are.
    fn no_set(&self, set: &SetName, owner: bool) -> String {
        const LISTED: &str = "`mgp sets list` shows the known ones";
        let table = self.reception.directory.access();
        let named = &table.sets().named;
        if !owner {
            return format!("no such set for this caller; {LISTED}");
        }
        if named.contains_key(set) {
            let agent = self.agent.id();
            return format!("{agent} is held to another set than {set} (`set` in [agents.*])");
        }
        let near = nearest_name(set.as_str(), named.keys().map(SetName::as_str));
        let near = near.map(|near| format!(" (did you mean {near}?)"));
        format!("no set {set}{}; {LISTED}", near.unwrap_or_default())
    }

    /// The error for an unknown server, with a suggestion. Only the owner can read it.
    fn no_server(&self, server: &ServerId) -> String {
        let near = self.reception.routes.nearest_server(server);
        let near = near.map(|near| format!(" (did you mean {near}?)"));
        format!(
            "no server {server}{}; `mgp servers list` shows the known ones",
            near.unwrap_or_default()
        )
    }

    /// The error for an unknown agent, with a suggestion. Only the owner can read it.
    fn nobody(&self, id: &AgentId) -> String {
        let short = |id: &AgentId| id.as_str()[AgentId::PREFIX.len()..].to_owned();
        let name = short(id);
        let known = self.reception.registered_agents.list();
        let known: Vec<String> = known.iter().map(|(id, _)| short(id)).collect();
        let near = nearest_name(&name, known.iter().map(String::as_str));
        let near = near.map(|near| format!(" (did you mean {near}?)"));
        format!(
            "no agent {name}{}; `mgp agents list` shows the known ones, `mgp agents add {name}` makes it",
            near.unwrap_or_default()
        )
    }

    fn initialize(&self, params: Option<&str>) -> Result<Arc<Caller>, Refusal> {
        let hello: mcp::Initialize<'_> = mcp::read(params)?;
        let view = self.view.get().cloned().unwrap_or(CatalogView::All);
        self.agent.hello(view, &hello)
    }

    fn welcome(&self, id: RequestId, caller: Arc<Caller>) {
        let dialect = caller.dialect();
        let welcome = GuardedAnswer::new(|| self.reception.routes.welcome(caller));
        let (agent, sink) = (self.agent.clone(), self.sink.clone());
        // Registered like any other request, so that it is answered although the client has closed its side.
        let _ = agent.open(&id, None);
        run(welcome, move |outcome| {
            agent.done(&id);
            send_line(&sink, answer_frame(id.as_json(), &outcome, dialect));
        });
    }

    fn answer(&self, id: RequestId, request: Request) {
        let (agent, sink) = (self.agent.clone(), self.sink.clone());
        let (dialect, exchange) = (request.caller.dialect(), request.exchange.clone());
        exchange.count_response(self.budget());
        let answering = GuardedAnswer::new(|| self.reception.routes.answer(request));
        run(answering, move |outcome| {
            agent.done(&id);
            // A cancelled request gets no answer (CMCP-054).
            if exchange.is_awaited() {
                let frame = answer_frame(id.as_json(), &outcome, dialect);
                send_line(&sink, exchange.hand_on(frame));
            }
            exchange.end();
        });
    }

    fn notification(&self, method: &str, params: Option<&str>) {
        match method {
            "notifications/cancelled" => self.agent.cancel(params),
            _ => {
                if method == "notifications/initialized" {
                    self.agent.set_ready();
                }
                if let Some(caller) = self.agent.caller() {
                    self.reception.routes.note(caller, method, params);
                }
            }
        }
    }

    fn response(
        &self,
        text: &ByteString,
        id: Option<RequestId>,
        outcome: Result<&RawValue, &RawValue>,
    ) {
        let Some(id) = id else { return };
        let bytes = |raw: &RawValue| text.slice_ref(raw.get()).into_bytes();
        self.agent.settle(&id, outcome.map(bytes).map_err(bytes));
    }

    fn send(&self, frame: Vec<u8>) {
        send_line(&self.sink, Bytes::from(frame));
    }
}

/// What the caller wants to be shown.
fn view_of(open: &door::Open) -> Result<CatalogView, Refusal> {
    let bad = |why: String| Refusal::BadParams(why);
    match (&open.server, &open.set) {
        (None, None) => Ok(CatalogView::All),
        (Some(id), None) => match ServerId::parse_of_any_node(id) {
            Ok(id) => Ok(CatalogView::One(id)),
            Err(why) => Err(bad(why.to_string())),
        },
        (None, Some(set)) => match SetName::parse(set) {
            Ok(set) => Ok(CatalogView::Set(set)),
            Err(why) => Err(bad(why.to_string())),
        },
        (Some(_), Some(_)) => Err(bad("a door is of one server or of a set, not both".into())),
    }
}

/// Polls an answer at once, which is enough for lists (CMCP-099); otherwise continues in a task.
fn run(mut answering: GuardedAnswer, then: impl FnOnce(Outcome) + Send + 'static) {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match Pin::new(&mut answering).poll(&mut cx) {
        std::task::Poll::Ready(outcome) => then(outcome),
        std::task::Poll::Pending => {
            task::detached("connection.request", async move { then(answering.await) });
        }
    }
}
