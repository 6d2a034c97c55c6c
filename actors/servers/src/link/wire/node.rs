//! A server on another node: each request is a stream of the link to that node. The stream's header names the
//! agent, and the stream ends with the answer.

mod owner_confirmation;
mod refusals;
mod shutdowns;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mgp_cluster::links::{LinkTable, PeerLink};
use mgp_cluster::{AgentPermit, PeerServer, PeerTools, needs_permit};
use mgp_json::{can_contain_string, member, unquote};
use mgp_protocol::federation::call::{CallHeader, CallRejection, CallTag, MAX_CALL_MS, MAX_HOPS};
use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::ids::{AgentId, NodeServer};
use mgp_protocol::jsonrpc::{self, Message, RequestId};
use mgp_protocol::mcp::Method;
use mgp_protocol::mcp::subscriptions::Listen;
use mgp_protocol::mgp::callback::Respond;
use mgp_protocol::mgp::discovery::Status;
use mgp_protocol::mgp::events::Subscribe;
use mgp_protocol::mgp::stream::{self, Cancel};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::randomness;
use mgp_runtime::trace::Trace;
use mgp_sync::Snapshot;
use mgp_transports::quic::{BeginCallError, CallFrame, CallInput, CallOutput, StreamFailure};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::link::Link;

/// The most flow control messages of a call that may be queued for the node; more are repeated later, or lost as
/// on any busy connection.
const READER_MESSAGES_MAX: usize = 8;

/// How long to wait for the replacement of a link that ended.
const REPLACEMENT_WAIT: Duration = Duration::from_secs(1);

/// The most tasks whose agents are remembered: as many as a link remembers tasks.
const MAX_TASKS: usize = 10_000;

/// The connection to one server on another node, over whichever link to that node is current.
#[derive(Debug)]
pub struct NodeWire {
    server: NodeServer,
    /// The local name of the node.
    node: Box<str>,
    links: Arc<Snapshot<LinkTable>>,
    peer_tools: Arc<Snapshot<PeerTools>>,
    in_flight: Mutex<HashMap<u64, mpsc::Sender<Bytes>>>,
    /// The agents of the server's tasks; the kernel needs them for its own requests about tasks.
    tasks: Mutex<HashMap<Box<str>, AgentId>>,
}

/// The contents of a request stream's header.
struct NodeRequest<'a> {
    method: &'a str,
    params: Bytes,
    trace: String,
    number: u64,
    /// The calling agent; `None` if the node itself calls.
    agent: Option<AgentId>,
    tool: Option<String>,
    deadline: Instant,
    limit: Duration,
    /// True if the agent has a session (legacy protocol).
    has_session: bool,
}

/// How a stream ended.
enum StreamEnd {
    /// The call is settled.
    Settled,
    /// The node does not know the agent's assertion; it has to be sent.
    UnknownAgent,
    /// The node shuts down or was shut down, and did not start the call.
    NotStarted,
}

impl NodeWire {
    /// Creates a connection to this server, over the links published in `links`.
    #[must_use]
    pub fn new(
        of: NodeServer,
        node: &str,
        links: Arc<Snapshot<LinkTable>>,
        peer_tools: Arc<Snapshot<PeerTools>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            server: of,
            node: node.into(),
            links,
            peer_tools,
            in_flight: Mutex::default(),
            tasks: Mutex::default(),
        })
    }

    /// The local name of the node.
    #[must_use]
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// The current link to the node.
    #[must_use]
    pub(crate) fn peer_link(&self) -> Option<Arc<PeerLink>> {
        let links = self.links.load();
        let peer = links.links.get(&self.server.node)?;
        peer.link.end_reason().is_none().then(|| peer.clone())
    }

    /// The server as the node announced it.
    #[must_use]
    pub(crate) fn peer_server(&self) -> Option<Arc<PeerServer>> {
        self.peer_tools.load().servers.get(&self.server).cloned()
    }

    /// The definitions of its tools, as the owner announced them.
    #[must_use]
    pub(crate) fn tools(&self) -> Vec<Arc<str>> {
        let shared = self.peer_server();
        let tools = shared.iter().flat_map(|shared| shared.tools.values());
        tools.map(|tool| Arc::clone(&tool.definition)).collect()
    }

    /// Resolves when other links or tools than these are published.
    pub(crate) async fn wait_for_change(&self, links: &LinkTable, peer_tools: &PeerTools) {
        tokio::select! {
            () = links.replaced.cancelled() => {}
            () = peer_tools.replaced.cancelled() => {}
        }
    }

    /// The published links and tools.
    pub(crate) fn current(&self) -> (Arc<LinkTable>, Arc<PeerTools>) {
        (self.links.load(), self.peer_tools.load())
    }

    /// Resolves when the node is linked and shares the server, and the server is connected there.
    pub(crate) async fn wait_until_available(&self) {
        loop {
            let (links, peer_tools) = self.current();
            let record = self.peer_server().map(|server| server.record);
            let connected = record.is_some_and(|it| it.state == Status::Connected && !it.starting);
            if connected && self.peer_link().is_some() {
                return;
            }
            self.wait_for_change(&links, &peer_tools).await;
        }
    }

    /// Sends a request and passes the messages that come back to the link.
    pub(in crate::link) async fn call(
        &self,
        link: &Arc<Link>,
        id: u64,
        frame: &Bytes,
        method: &str,
    ) -> Result<(), Refusal> {
        let request = self.parse_request(link, id, frame, method)?;
        let mut peer = match method {
            // A long-lived request is opened when the node is linked again, without polling.
            Listen::METHOD | Subscribe::METHOD => self.wait_for_link(request.deadline).await,
            _ => self.find_link(request.deadline).await,
        };
        // Retried once over the link that replaced a lost one, and once with the signed assertion.
        let (mut link_replaced, mut assertion_sent) = (false, false);
        loop {
            let Some(over) = &peer else {
                return Err(self.unavailable_refusal(link));
            };
            match self.attempt(link, id, &request, over).await {
                Ok(Ok(StreamEnd::Settled)) => return Ok(()),
                Ok(Ok(StreamEnd::UnknownAgent)) if !assertion_sent => assertion_sent = true,
                Ok(Ok(StreamEnd::UnknownAgent)) => {
                    return Err(self.refusal_from_owner(link, &CallRejection::UnknownAssertion));
                }
                Ok(Ok(StreamEnd::NotStarted)) => {
                    peer = self.await_next_link(over, request.deadline).await
                }
                Ok(Err(refusal)) => return Err(refusal),
                Err(BeginCallError::Gone(gone)) if shutdowns::is_shutdown(&gone.0) => {
                    peer = self.await_next_link(over, request.deadline).await;
                }
                Err(BeginCallError::Gone(_)) if !link_replaced => {
                    link_replaced = true;
                    let next = self.peer_link();
                    peer = next.filter(|next| !next.link.is_same_link(&over.link));
                }
                Err(BeginCallError::Gone(_)) => return Err(self.unavailable_refusal(link)),
                Err(
                    not_begun
                    @ (BeginCallError::TooLarge { .. } | BeginCallError::DeadlineExceeded),
                ) => {
                    let refused = not_begun.to_call_refused().unwrap_or(CallRejection::Late);
                    return Err(self.refusal_from_owner(link, &refused));
                }
            }
        }
    }

    /// Makes one attempt over this link.
    async fn attempt(
        &self,
        link: &Arc<Link>,
        id: u64,
        request: &NodeRequest<'_>,
        peer: &Arc<PeerLink>,
    ) -> Result<Result<StreamEnd, Refusal>, BeginCallError> {
        let assertion = request
            .agent
            .as_ref()
            .map(|agent| peer.assertion_for(agent));
        let signed = assertion
            .as_ref()
            .and_then(|assertion| assertion.signed.as_deref());
        let header = CallHeader {
            method: request.method.to_owned(),
            server: Some(self.server.server.to_string()),
            tag: CallTag(randomness::random_bytes()),
            request: request.number,
            trace: request.trace.clone(),
            assertion: assertion.as_ref().map(|assertion| assertion.id),
            signed: signed.cloned(),
            has_session: request.has_session,
            hops: MAX_HOPS,
            left_ms: 0,
        };
        let Some(_permit) = acquire_permit(peer, request).await else {
            return Ok(Err(self.overloaded_refusal(request)));
        };
        let (over, params) = (&peer.link, request.params.clone());
        let (input, output) = match request.method {
            Listen::METHOD => over.open_listen(header, params, request.deadline).await?,
            Subscribe::METHOD => over.open_follow(header, params, request.deadline).await?,
            _ => over.open_call(header, params, request.deadline).await?,
        };
        // A request without chunks sends nothing more, so its stream is closed with the request, which saves a
        // packet each way.
        let output = wants_chunks(&request.params).then_some(output);
        let outcome = self.relay(link, id, request, peer, input, output).await;
        if let Some(assertion) = assertion {
            match &outcome {
                Ok(StreamEnd::UnknownAgent) => peer.forget_assertion(assertion.id),
                Ok(StreamEnd::Settled) => peer.confirm_assertion(assertion.id),
                // The fate of a lost call is unknown; the next call sends the assertion again.
                Ok(StreamEnd::NotStarted) | Err(_) => {}
            }
        }
        Ok(outcome)
    }

    /// Relays messages until the answer, in both directions if there is an output.
    async fn relay(
        &self,
        link: &Arc<Link>,
        id: u64,
        request: &NodeRequest<'_>,
        peer: &PeerLink,
        mut input: CallInput,
        output: Option<CallOutput>,
    ) -> Result<StreamEnd, Refusal> {
        let mut outgoing = output.map(|output| InFlightNodeCall::register(self, id, output));
        let mut begun = false;
        loop {
            let frame = tokio::select! {
                frame = input.next() => frame,
                Some((output, more)) = next_message(outgoing.as_mut()) => {
                    // A lost stream is reported by the input.
                    let _ = output.relay(more).await;
                    continue;
                }
            };
            match frame {
                Ok(CallFrame::Relayed(message)) => {
                    begun = true;
                    link.receive(&message, Some(id));
                }
                Ok(CallFrame::Result(result)) => {
                    self.record_times(link, id, &input);
                    self.record_task_agent(request, &result);
                    link.settle_call(id, Ok(result));
                    return Ok(StreamEnd::Settled);
                }
                Ok(CallFrame::Error(error)) => {
                    self.record_times(link, id, &input);
                    link.settle_call(id, Err(self.refusal_from_error_frame(link, peer, &error)));
                    return Ok(StreamEnd::Settled);
                }
                Ok(CallFrame::OwnerRefusal(refusal)) => {
                    self.record_times(link, id, &input);
                    let refusal = self.translate_owner_refusal(link, peer, request, refusal);
                    link.settle_call(id, Err(refusal));
                    return Ok(StreamEnd::Settled);
                }
                Ok(CallFrame::Refused(CallRejection::UnknownAssertion)) => {
                    return Ok(StreamEnd::UnknownAgent);
                }
                Ok(CallFrame::Refused(CallRejection::ShuttingDown)) => {
                    return Ok(StreamEnd::NotStarted);
                }
                Ok(CallFrame::Refused(refused)) => {
                    return Err(self.refusal_from_owner(link, &refused));
                }
                Err(failure) if !begun && shutdowns::is_shutdown(&failure) => {
                    return Ok(StreamEnd::NotStarted);
                }
                Err(StreamFailure::DeadlineExceeded) => {
                    return Err(self.timeout_refusal(link, request.limit));
                }
                Err(failure) => return Err(link.lost_refusal(&failure.to_string())),
            }
        }
    }

    fn parse_request<'a>(
        &self,
        link: &Arc<Link>,
        id: u64,
        frame: &Bytes,
        method: &'a str,
    ) -> Result<NodeRequest<'a>, Refusal> {
        let Ok(Message::Request {
            id: shown,
            params,
            trace,
            ..
        }) = jsonrpc::parse(frame)
        else {
            return Err(Refusal::Internal("a request that is none".into()));
        };
        let text = params.map(RawValue::get);
        let limit = match method {
            Listen::METHOD | Subscribe::METHOD => Duration::from_millis(MAX_CALL_MS),
            _ => link.limits.call_timeout_max,
        };
        let name = text.filter(|_| method == "tools/call");
        let name = name.and_then(|text| member(text, "name"));
        Ok(NodeRequest {
            method,
            trace: Trace::from_params(text, trace).id.as_str().to_owned(),
            params: match text {
                Some(text) => frame.slice_ref(text.as_bytes()),
                None => Bytes::from_static(b"{}"),
            },
            number: shown.as_u64().unwrap_or(id),
            agent: self.resolve_agent(link, id, method, text),
            has_session: has_session(link, id),
            tool: name.and_then(|name| serde_json::from_str(name).ok()),
            deadline: Instant::now() + limit,
            limit,
        })
    }

    /// The agent for whom the kernel sends a request: the caller, the agent of the call that is stopped or whose
    /// callback is answered, or the agent of a task.
    fn resolve_agent(
        &self,
        link: &Arc<Link>,
        id: u64,
        method: &str,
        params: Option<&str>,
    ) -> Option<AgentId> {
        let caller = |id: u64| {
            let caller = link
                .pending
                .inspect(id, |call| call.caller.clone())
                .flatten();
            caller.map(|caller| caller.remote_identity())
        };
        let of_channel = || {
            link.pending
                .inspect(id, |call| Some(call.channel.as_ref()?.agent.clone()))?
        };
        let of_call = || {
            let named = member(params?, "request_id")?;
            caller(link.find_call(&RequestId::from_json(named)?)?)
        };
        let of_callback = || {
            let named = RequestId::from_json(member(params?, "callback_id")?)?;
            caller(link.mgp_callbacks.call_for(&named)?)
        };
        let of_task = || {
            let named: String = serde_json::from_str(member(params?, "taskId")?).ok()?;
            self.task_agent(&named)
        };
        // All tasks of one listen belong to one agent.
        let of_tasks = || {
            let named = member(member(params?, "notifications")?, "taskIds")?;
            let named: Vec<String> = serde_json::from_str(named).ok()?;
            self.task_agent(named.first()?)
        };
        caller(id).or_else(|| match method {
            Cancel::METHOD => of_call(),
            Respond::METHOD => of_callback(),
            Listen::METHOD => of_tasks(),
            Subscribe::METHOD => of_channel(),
            method if method.starts_with("tasks/") => of_task(),
            _ => None,
        })
    }

    /// The agent of a task, by the server's own id.
    pub(in crate::link) fn task_agent(&self, own: &str) -> Option<AgentId> {
        self.lock_tasks().get(own).cloned()
    }

    /// Adds the owner's share of the call's time to the call's record.
    fn record_times(&self, link: &Link, id: u64, input: &CallInput) {
        if let Some(times) = input.times() {
            let in_flight = link.pending.inspect(id, |call| call.call.clone());
            if let Some(in_flight) = in_flight {
                in_flight.remote_times().add_reported(&self.node, &times);
            }
        }
    }

    fn record_task_agent(&self, request: &NodeRequest<'_>, result: &Bytes) {
        let Some(agent) = &request.agent else { return };
        if !can_contain_string(result, "\"taskId\"") {
            return;
        }
        let text = String::from_utf8_lossy(result);
        let id = member(&text, "taskId").and_then(unquote);
        if let Some(id) = id.filter(|id| id.len() <= 1024) {
            let mut tasks = self.lock_tasks();
            if tasks.len() >= MAX_TASKS {
                tasks.clear();
            }
            tasks.insert(id.into(), agent.clone());
        }
    }

    /// Sends a flow control message on the stream of its call; other messages are not sent to nodes.
    pub(in crate::link) fn send_message(&self, link: &Arc<Link>, frame: &Bytes) {
        let Ok(Message::Notification { params, .. }) = jsonrpc::parse(frame) else {
            return;
        };
        let named = params.and_then(|params| member(params.get(), "request_id"));
        let named = named.and_then(|id| link.find_call(&RequestId::from_json(id)?));
        let sender = named.and_then(|id| self.lock_in_flight().get(&id).cloned());
        if let Some(sender) = sender {
            let _ = sender.try_send(frame.clone());
        }
    }

    /// The run id of the linked node.
    pub(crate) fn linked_run(&self) -> Option<LifeId> {
        Some(self.peer_link()?.link.hello().life)
    }

    /// Resolves when a call that waits at this run of the node is lost: the node is not linked, or has
    /// restarted. Returns the reason. A new link to the same run loses nothing.
    pub(crate) async fn wait_until_run_lost(&self, run: LifeId) -> String {
        loop {
            let (links, _) = self.current();
            match self.peer_link() {
                Some(peer) if peer.link.hello().life != run => {
                    return format!("{} was restarted", self.node);
                }
                Some(peer) => tokio::select! {
                    _ = peer.link.wait_closed() => {}
                    () = links.replaced.cancelled() => {}
                },
                None => {
                    let replaced = links.replaced.cancelled();
                    let _ = tokio::time::timeout(REPLACEMENT_WAIT, replaced).await;
                    if self.peer_link().is_none() {
                        return format!("{} is not linked now", self.node);
                    }
                }
            }
        }
    }

    /// The link to the node, if there is one before the deadline.
    async fn wait_for_link(&self, until: Instant) -> Option<Arc<PeerLink>> {
        let comes = async {
            loop {
                let (links, _) = self.current();
                if let Some(peer) = self.peer_link() {
                    return peer;
                }
                links.replaced.cancelled().await;
            }
        };
        tokio::time::timeout_at(until, comes).await.ok()
    }

    fn lock_in_flight(&self) -> MutexGuard<'_, HashMap<u64, mpsc::Sender<Bytes>>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_tasks(&self) -> MutexGuard<'_, HashMap<Box<str>, AgentId>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that accepts further messages, until dropped.
struct InFlightNodeCall<'a> {
    wire: &'a NodeWire,
    id: u64,
    messages: mpsc::Receiver<Bytes>,
    output: CallOutput,
}

impl<'a> InFlightNodeCall<'a> {
    fn register(wire: &'a NodeWire, id: u64, output: CallOutput) -> Self {
        let (more, messages) = mpsc::channel(READER_MESSAGES_MAX);
        wire.lock_in_flight().insert(id, more);
        Self {
            wire,
            id,
            messages,
            output,
        }
    }
}

impl Drop for InFlightNodeCall<'_> {
    fn drop(&mut self) {
        self.wire.lock_in_flight().remove(&self.id);
    }
}

/// True if the caller has a session. The kernel itself has none.
fn has_session(link: &Link, id: u64) -> bool {
    let is_legacy = link
        .pending
        .inspect(id, |call| Some(call.caller.as_ref()?.version.is_legacy()));
    is_legacy.flatten().unwrap_or(false)
}

/// True if the call reads chunks and may send flow control messages while in flight.
fn wants_chunks(params: &Bytes) -> bool {
    std::str::from_utf8(params).is_ok_and(stream::has_stream_request)
}

/// The next message to send, and its output; never resolves for a call without an output.
async fn next_message<'a>(
    outgoing: Option<&'a mut InFlightNodeCall<'_>>,
) -> Option<(&'a mut CallOutput, Bytes)> {
    match outgoing {
        Some(outgoing) => Some((&mut outgoing.output, outgoing.messages.recv().await?)),
        None => std::future::pending().await,
    }
}

/// A permit of the agent's queue, if the request needs one; `None` if the deadline passes first.
async fn acquire_permit(peer: &PeerLink, request: &NodeRequest<'_>) -> Option<Option<AgentPermit>> {
    let agent = request.agent.as_ref();
    let Some(agent) = agent.filter(|_| needs_permit(request.method)) else {
        return Some(None);
    };
    let permit = tokio::time::timeout_at(request.deadline, peer.outgoing.acquire(agent)).await;
    permit.ok().map(Some)
}
