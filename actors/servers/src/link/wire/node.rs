//! A server of another node: each request is a stream of the link to that node, which says for which agent it
//! is and ends with the answer.

mod confirmed;
mod shutdowns;
mod told;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mgp_cluster::agent_turns::{AgentTurn, takes_turn};
use mgp_cluster::links::{LinkTable, PeerLink};
use mgp_cluster::tool_index::{HeldServer, HeldTools};
use mgp_protocol::federation::call::{CallHeader, CallRefused, CallTag, HOPS, LONGEST_CALL_MS};
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
use mgp_protocol::splice::member;
use mgp_protocol::splice::mention::may_mention;
use mgp_runtime::randomness;
use mgp_runtime::trace::Trace;
use mgp_sync::snapshot::Snapshot;
use mgp_transports::quic::{CallFrame, CallInput, CallNotBegun, CallOutput, StreamFailure};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::link::Link;

/// What of the reader of a call may wait to be told to the server; what is beyond is said again, or lost as
/// on any busy connection.
const MAX_SAID: usize = 8;

/// How long a link that ended may be without the one that replaces it.
const REPLACED: Duration = Duration::from_secs(1);

/// Tasks whose agents are remembered: as many as a link remembers tasks.
const MAX_TASKS: usize = 10_000;

/// The way to one server of another node, whichever link to that node is the present one.
#[derive(Debug)]
pub struct NodeWire {
    of: NodeServer,
    /// What the node is called here.
    node: Box<str>,
    links: Arc<Snapshot<LinkTable>>,
    held: Arc<Snapshot<HeldTools>>,
    under_way: Mutex<HashMap<u64, mpsc::Sender<Bytes>>>,
    /// Whose tasks the server made: the kernel asks about them, too.
    tasks: Mutex<HashMap<Box<str>, AgentId>>,
}

/// A request, as the header of its stream says it.
struct NodeRequest<'a> {
    method: &'a str,
    params: Bytes,
    trace: String,
    number: u64,
    /// Without, the node itself asks.
    agent: Option<AgentId>,
    tool: Option<String>,
    until: Instant,
    limit: Duration,
    /// The agent speaks a version with sessions.
    has_session: bool,
}

/// How a stream ended.
enum Conversed {
    /// The call is settled.
    Settled,
    /// The node does not know which agent calls: it has to be shown.
    Unknown,
    /// The node shuts down, or was shut down, and began nothing of the call.
    NotBegun,
}

impl NodeWire {
    /// The way to this server, over the links that are published there.
    #[must_use]
    pub fn new(
        of: NodeServer,
        node: &str,
        links: Arc<Snapshot<LinkTable>>,
        held: Arc<Snapshot<HeldTools>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            of,
            node: node.into(),
            links,
            held,
            under_way: Mutex::default(),
            tasks: Mutex::default(),
        })
    }

    /// What the node is called here.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The present link to the node.
    #[must_use]
    pub fn linked(&self) -> Option<Arc<PeerLink>> {
        let links = self.links.load();
        let peer = links.links.get(&self.of.node)?;
        peer.link.gone().is_none().then(|| peer.clone())
    }

    /// What the node tells of the server.
    #[must_use]
    pub fn held(&self) -> Option<Arc<HeldServer>> {
        self.held.load().servers.get(&self.of).cloned()
    }

    /// The definitions of its tools, as its owner tells them.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<str>> {
        let held = self.held();
        let tools = held.iter().flat_map(|held| held.tools.values());
        tools.map(|tool| Arc::clone(&tool.definition)).collect()
    }

    /// Resolves when other links, or other tools, are published than these.
    pub(crate) async fn changed(&self, links: &LinkTable, held: &HeldTools) {
        tokio::select! {
            () = links.replaced.cancelled() => {}
            () = held.replaced.cancelled() => {}
        }
    }

    /// What is published now.
    pub(crate) fn now(&self) -> (Arc<LinkTable>, Arc<HeldTools>) {
        (self.links.load(), self.held.load())
    }

    /// Resolves when the node is linked and shares the server, which is connected there.
    pub(crate) async fn there(&self) {
        loop {
            let (links, held) = self.now();
            let record = self.held().map(|held| held.record);
            let connected = record.is_some_and(|it| it.state == Status::Connected && !it.starting);
            if connected && self.linked().is_some() {
                return;
            }
            self.changed(&links, &held).await;
        }
    }

    /// Sends a request and passes what comes back to the link.
    pub(in crate::link) async fn call(
        &self,
        link: &Arc<Link>,
        id: u64,
        frame: &Bytes,
        method: &str,
    ) -> Result<(), Refusal> {
        let request = self.read(link, id, frame, method)?;
        let mut peer = match method {
            // It lasts: it is opened when the node is back, and not asked for again and again.
            Listen::METHOD | Subscribe::METHOD => self.comes(request.until).await,
            _ => self.find_link(request.until).await,
        };
        // Once more over the link that took the place of a lost one, and with the assertion itself.
        let (mut moved, mut shown) = (false, false);
        loop {
            let Some(over) = &peer else {
                return Err(self.away(link));
            };
            match self.attempt(link, id, &request, over).await {
                Ok(Ok(Conversed::Settled)) => return Ok(()),
                Ok(Ok(Conversed::Unknown)) if !shown => shown = true,
                Ok(Ok(Conversed::Unknown)) => {
                    return Err(self.refused(link, &CallRefused::UnknownAssertion));
                }
                Ok(Ok(Conversed::NotBegun)) => {
                    peer = self.await_next_link(over, request.until).await
                }
                Ok(Err(refusal)) => return Err(refusal),
                Err(CallNotBegun::Gone(gone)) if shutdowns::is_shutdown(&gone.0) => {
                    peer = self.await_next_link(over, request.until).await;
                }
                Err(CallNotBegun::Gone(_)) if !moved => {
                    moved = true;
                    let next = self.linked();
                    peer = next.filter(|next| !next.link.is(&over.link));
                }
                Err(CallNotBegun::Gone(_)) => return Err(self.away(link)),
                Err(not_begun @ (CallNotBegun::TooLarge { .. } | CallNotBegun::Late)) => {
                    let refused = not_begun.refused().unwrap_or(CallRefused::Late);
                    return Err(self.refused(link, &refused));
                }
            }
        }
    }

    /// One stream, over this link.
    async fn attempt(
        &self,
        link: &Arc<Link>,
        id: u64,
        request: &NodeRequest<'_>,
        peer: &Arc<PeerLink>,
    ) -> Result<Result<Conversed, Refusal>, CallNotBegun> {
        let assertion = request.agent.as_ref().map(|agent| peer.assertion_of(agent));
        let shown = assertion.as_ref().and_then(|said| said.signed.as_deref());
        let header = CallHeader {
            method: request.method.to_owned(),
            server: Some(self.of.server.to_string()),
            tag: CallTag(randomness::bytes()),
            request: request.number,
            trace: request.trace.clone(),
            assertion: assertion.as_ref().map(|said| said.id),
            signed: shown.cloned(),
            has_session: request.has_session,
            hops: HOPS,
            left_ms: 0,
        };
        let Some(_turn) = turn(peer, request).await else {
            return Ok(Err(self.crowded(request)));
        };
        let (over, params) = (&peer.link, request.params.clone());
        let (input, output) = match request.method {
            Listen::METHOD => over.listen(header, params, request.until).await?,
            Subscribe::METHOD => over.follow(header, params, request.until).await?,
            _ => over.call(header, params, request.until).await?,
        };
        // Of one that asks for no chunks nothing more is said: it ends with its request, which is one packet less
        // each way.
        let output = asks_for_chunks(&request.params).then_some(output);
        let outcome = self.converse(link, id, request, peer, input, output).await;
        if let Some(assertion) = assertion {
            match &outcome {
                Ok(Conversed::Unknown) => peer.assertion_forgotten(assertion.id),
                Ok(Conversed::Settled) => peer.assertion_taken(assertion.id),
                // Of a call that was lost it is not known; the next one shows it again.
                Ok(Conversed::NotBegun) | Err(_) => {}
            }
        }
        Ok(outcome)
    }

    /// Relays both ways until the answer; without an output, only what comes in.
    async fn converse(
        &self,
        link: &Arc<Link>,
        id: u64,
        request: &NodeRequest<'_>,
        peer: &PeerLink,
        mut input: CallInput,
        output: Option<CallOutput>,
    ) -> Result<Conversed, Refusal> {
        let mut outgoing = output.map(|output| NodeCallUnderWay::enter(self, id, output));
        let mut begun = false;
        loop {
            let frame = tokio::select! {
                frame = input.next() => frame,
                Some((output, more)) = said(outgoing.as_mut()) => {
                    // Lost with the call, which learns that by what it reads.
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
                    self.learn_times(link, id, &input);
                    self.learn_task(request, &result);
                    link.settle(id, Ok(result));
                    return Ok(Conversed::Settled);
                }
                Ok(CallFrame::Error(error)) => {
                    self.learn_times(link, id, &input);
                    link.settle(id, Err(self.relay_error(link, peer, &error)));
                    return Ok(Conversed::Settled);
                }
                Ok(CallFrame::OwnerRefusal(refusal)) => {
                    self.learn_times(link, id, &input);
                    let refusal = self.refuse_for_owner(link, peer, request, refusal);
                    link.settle(id, Err(refusal));
                    return Ok(Conversed::Settled);
                }
                Ok(CallFrame::Refused(CallRefused::UnknownAssertion)) => {
                    return Ok(Conversed::Unknown);
                }
                Ok(CallFrame::Refused(CallRefused::ShuttingDown)) => {
                    return Ok(Conversed::NotBegun);
                }
                Ok(CallFrame::Refused(refused)) => return Err(self.refused(link, &refused)),
                Err(failure) if !begun && shutdowns::is_shutdown(&failure) => {
                    return Ok(Conversed::NotBegun);
                }
                Err(StreamFailure::Late) => return Err(self.overdue(link, request.limit)),
                Err(failure) => return Err(link.lost(&failure.to_string())),
            }
        }
    }

    fn read<'a>(
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
            return Err(Refusal::Broken("a request that is none".into()));
        };
        let text = params.map(RawValue::get);
        let limit = match method {
            Listen::METHOD | Subscribe::METHOD => Duration::from_millis(LONGEST_CALL_MS),
            _ => link.limits.call_timeout_max,
        };
        let name = text.filter(|_| method == "tools/call");
        let name = name.and_then(|text| member(text, "name"));
        Ok(NodeRequest {
            method,
            trace: Trace::of(text, trace).id.as_str().to_owned(),
            params: match text {
                Some(text) => frame.slice_ref(text.as_bytes()),
                None => Bytes::from_static(b"{}"),
            },
            number: shown.as_u64().unwrap_or(id),
            agent: self.agent(link, id, method, text),
            has_session: has_session(link, id),
            tool: name.and_then(|name| serde_json::from_str(name).ok()),
            until: Instant::now() + limit,
            limit,
        })
    }

    /// For whom the kernel asks: the caller, that of the call which is to be stopped or in which the server asked
    /// what is answered, or the one whose task it is.
    fn agent(
        &self,
        link: &Arc<Link>,
        id: u64,
        method: &str,
        params: Option<&str>,
    ) -> Option<AgentId> {
        let caller = |id: u64| {
            let caller = link.pending.with(id, |call| call.caller.clone()).flatten();
            caller.map(|caller| caller.abroad())
        };
        let of_channel = || {
            link.pending
                .with(id, |call| Some(call.channel.as_ref()?.agent.clone()))?
        };
        let of_call = || {
            let named = member(params?, "request_id")?;
            caller(link.meant(&RequestId::from_json(named)?)?)
        };
        let of_callback = || {
            let named = RequestId::from_json(member(params?, "callback_id")?)?;
            caller(link.callbacks.call_of(&named)?)
        };
        let of_task = || {
            let named: String = serde_json::from_str(member(params?, "taskId")?).ok()?;
            self.agent_of_task(&named)
        };
        // Those of one listen are of one agent.
        let of_tasks = || {
            let named = member(member(params?, "notifications")?, "taskIds")?;
            let named: Vec<String> = serde_json::from_str(named).ok()?;
            self.agent_of_task(named.first()?)
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

    /// Whose task it is, by the server's own id.
    pub(in crate::link) fn agent_of_task(&self, own: &str) -> Option<AgentId> {
        self.tasks().get(own).cloned()
    }

    /// What the owner says of where its part of the call's time went, for the call's record.
    fn learn_times(&self, link: &Link, id: u64, input: &CallInput) {
        if let Some(times) = input.times() {
            let exchange = link.pending.with(id, |call| call.exchange.clone());
            if let Some(exchange) = exchange {
                exchange.times_abroad().hear(&self.node, &times);
            }
        }
    }

    fn learn_task(&self, request: &NodeRequest<'_>, result: &Bytes) {
        let Some(agent) = &request.agent else { return };
        if !may_mention(result, "\"taskId\"") {
            return;
        }
        let text = String::from_utf8_lossy(result);
        let id = member(&text, "taskId").and_then(|id| serde_json::from_str::<String>(id).ok());
        if let Some(id) = id.filter(|id| id.len() <= 1024) {
            let mut tasks = self.tasks();
            if tasks.len() >= MAX_TASKS {
                tasks.clear();
            }
            tasks.insert(id.into(), agent.clone());
        }
    }

    /// What the reader of a call says goes on the stream of that call; nothing else is told to another node.
    pub(in crate::link) fn tell(&self, link: &Arc<Link>, frame: &Bytes) {
        let Ok(Message::Notification { params, .. }) = jsonrpc::parse(frame) else {
            return;
        };
        let named = params.and_then(|params| member(params.get(), "request_id"));
        let named = named.and_then(|id| link.meant(&RequestId::from_json(id)?));
        let said = named.and_then(|id| self.calls().get(&id).cloned());
        if let Some(said) = said {
            let _ = said.try_send(frame.clone());
        }
    }

    /// Which run of the node is linked.
    pub(crate) fn run(&self) -> Option<LifeId> {
        Some(self.linked()?.link.hello().life)
    }

    /// Resolves when a call that waits there for an answer is lost: the node is not linked, or was started anew since
    /// that run; says which. A link that is replaced by another one to the same run loses nothing.
    pub(crate) async fn run_lost(&self, run: LifeId) -> String {
        loop {
            let (links, _) = self.now();
            match self.linked() {
                Some(peer) if peer.link.hello().life != run => {
                    return format!("{} was started anew", self.node);
                }
                Some(peer) => tokio::select! {
                    _ = peer.link.ended() => {}
                    () = links.replaced.cancelled() => {}
                },
                None => {
                    let replaced = links.replaced.cancelled();
                    let _ = tokio::time::timeout(REPLACED, replaced).await;
                    if self.linked().is_none() {
                        return format!("{} is not linked now", self.node);
                    }
                }
            }
        }
    }

    /// The link to the node, when there is one before then.
    async fn comes(&self, until: Instant) -> Option<Arc<PeerLink>> {
        let comes = async {
            loop {
                let (links, _) = self.now();
                if let Some(peer) = self.linked() {
                    return peer;
                }
                links.replaced.cancelled().await;
            }
        };
        tokio::time::timeout_at(until, comes).await.ok()
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<u64, mpsc::Sender<Bytes>>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<Box<str>, AgentId>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call to which more can be said, until dropped.
struct NodeCallUnderWay<'a> {
    wire: &'a NodeWire,
    id: u64,
    said: mpsc::Receiver<Bytes>,
    output: CallOutput,
}

impl<'a> NodeCallUnderWay<'a> {
    fn enter(wire: &'a NodeWire, id: u64, output: CallOutput) -> Self {
        let (more, said) = mpsc::channel(MAX_SAID);
        wire.calls().insert(id, more);
        Self {
            wire,
            id,
            said,
            output,
        }
    }
}

impl Drop for NodeCallUnderWay<'_> {
    fn drop(&mut self) {
        self.wire.calls().remove(&self.id);
    }
}

/// Whether the caller speaks a version with sessions. The kernel itself does not.
fn has_session(link: &Link, id: u64) -> bool {
    let is_legacy = link
        .pending
        .with(id, |call| Some(call.caller.as_ref()?.version.is_legacy()));
    is_legacy.flatten().unwrap_or(false)
}

/// Whether more may be said of a call with these params while it is under way: how fast its chunks are read.
fn asks_for_chunks(params: &Bytes) -> bool {
    std::str::from_utf8(params).is_ok_and(stream::asks)
}

/// What is said next, and where it goes; of a call of which nothing more is said never anything.
async fn said<'a>(
    outgoing: Option<&'a mut NodeCallUnderWay<'_>>,
) -> Option<(&'a mut CallOutput, Bytes)> {
    match outgoing {
        Some(outgoing) => Some((&mut outgoing.output, outgoing.said.recv().await?)),
        None => std::future::pending().await,
    }
}

/// The turn of a call that has one; none when its time is over before it comes.
async fn turn(peer: &PeerLink, request: &NodeRequest<'_>) -> Option<Option<AgentTurn>> {
    let agent = request.agent.as_ref();
    let Some(agent) = agent.filter(|_| takes_turn(request.method)) else {
        return Some(None);
    };
    let turn = tokio::time::timeout_at(request.until, peer.outgoing.enter(agent)).await;
    turn.ok().map(Some)
}
