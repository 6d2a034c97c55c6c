//! Two linked nodes: one has an agent, the other a scripted server.

use std::collections::{BTreeMap, HashSet};
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use mgp_callers::agent::Agent;
use mgp_callers::request::{AnswerFuture, Caller, CallerSession, Outcome, Request, Routes};
use mgp_callers::{CallRound, CallRounds, Delivery, InFlightCall, Outlet, ReplyPath};
use mgp_cluster::links::{InboundNodeCall, LinkTable, PeerLink};
use mgp_cluster::{PeerServer, PeerTool, PeerTools};
use mgp_engine::cluster::staleness::Stage;
use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::access::Principal;
use mgp_engine::servers::spec::{CallbackAttribution, ServerSpec};
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_protocol::dialect::{ProtocolFamily, Version};
use mgp_protocol::federation::call::timings::CallTimings;
use mgp_protocol::federation::hello::{
    Hello, LifeId, NodeName, ReportedRole, WIRE_VERSIONS, WireFeatures,
};
use mgp_protocol::federation::tool_index::ServerRecord;
use mgp_protocol::ids::{AgentId, ConnectionId, NodeId, ServerId};
use mgp_protocol::jsonrpc::{self, RequestId};
use mgp_protocol::mcp::meta::SUBSCRIPTION_ID;
use mgp_protocol::mcp::{ClientCapabilities, ServerCapabilities};
use mgp_protocol::mgp::discovery::Status;
use mgp_protocol::mgp::negotiation::{self, Features, PLAIN};
use mgp_protocol::refusal::{CallOutcome, Refusal, UnansweredCall};
use mgp_runtime::EventSink;
use mgp_servers::link::{
    Call, Link, LinkEvent, LinkSettings, MetadataHeaders, NodeWire, Peer, Wire,
};
use mgp_sync::{Credit, Snapshot};
use mgp_transports::log::ServerLog;
use mgp_transports::quic::{
    AcceptedPeer, CallOutput, InboundStream, LinkConfig, LinkEndpoint, NewLink, NodeIdentity,
    NodeSigner,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::leak_tests::scene::Scene;
use crate::node_endpoint::NodeEndpoint;
use crate::stateless::Stateless;

/// Deadline for expected events.
pub(super) async fn within_deadline<T>(event: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(60), event).await;
    done.expect("it happens soon")
}

/// A request as received by the owner of the server.
#[derive(Clone, Debug)]
pub(super) struct ReceivedRequest {
    pub(super) agent: AgentId,
    pub(super) operator: bool,
    pub(super) view: CatalogView,
    pub(super) trace: String,
    pub(super) params: Value,
    pub(super) mgp: Features,
}

/// The owner's side of the server `demo`, its only one. Each tool exercises one behaviour.
#[derive(Debug, Default)]
pub(super) struct ScriptedServer {
    pub(super) seen: Mutex<Vec<ReceivedRequest>>,
    pub(super) noted: Mutex<Vec<(AgentId, String)>>,
    pub(super) paced: Arc<Notify>,
    pub(super) cancelled: Arc<Notify>,
    /// Agents that the server is hidden from.
    pub(super) closed: Mutex<HashSet<AgentId>>,
    /// The reason why the server is closed to all agents of other nodes.
    pub(super) lapse: Mutex<Option<String>>,
}

impl ScriptedServer {
    pub(super) fn last(&self) -> ReceivedRequest {
        self.seen.lock().unwrap().last().unwrap().clone()
    }
}

/// Notifies when the work on a call is dropped.
struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

async fn played(request: Request, paced: Arc<Notify>, cancelled: Arc<Notify>) -> Outcome {
    let params = request.params.as_deref().unwrap_or("{}");
    let params: Value = serde_json::from_str(params).unwrap();
    let tool = params["name"].as_str().unwrap_or_default();
    let done = |value: Value| Ok(Bytes::from(value.to_string()));
    let tell = |method: &str, params: Value| {
        let frame = jsonrpc::notification(method, Some(&params.to_string()));
        request.call.send(frame.into(), Delivery::Reliable);
    };
    match (&*request.method, tool) {
        ("subscriptions/listen", _) => {
            let id: Value =
                serde_json::from_str(request.call.rounds().unwrap().id().as_json()).unwrap();
            let tag = json!({SUBSCRIPTION_ID: id});
            let agreed = json!({"notifications": params["notifications"], "_meta": tag});
            tell("notifications/subscriptions/acknowledged", agreed);
            tell(
                "notifications/resources/updated",
                json!({"uri": "a:b", "_meta": tag}),
            );
            request.call.wait_until_cancelled().await;
            Err(Refusal::Cancelled)
        }
        (_, "tells") => {
            let token = &params["_meta"]["progressToken"];
            tell(
                "notifications/progress",
                json!({"progressToken": token, "progress": 1}),
            );
            done(json!({"resultType": "complete", "told": true}))
        }
        (_, "asks") => {
            let asked = r#"{"message":"who?","requestedSchema":{"type":"object"}}"#;
            let rounds = request.call.rounds().unwrap();
            let asking = rounds.send_callback(
                request.call.wait_until_cancelled(),
                "elicitation/create",
                Some(asked),
            );
            let answer = asking.await.unwrap().unwrap();
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            done(json!({"resultType": "complete", "answer": answer}))
        }
        (_, "waits") => {
            let _given_up = NotifyOnDrop(cancelled);
            request.call.wait_until_cancelled().await;
            Err(Refusal::Cancelled)
        }
        (_, "paced") => {
            tell("notifications/begun", json!({}));
            paced.notified().await;
            done(json!({"resultType": "complete"}))
        }
        (_, "timed") => {
            let times: CallTimings = serde_json::from_value(params["arguments"].clone()).unwrap();
            request.call.remote_times().set_local(times);
            tokio::time::sleep(Duration::from_millis(params["ms"].as_u64().unwrap())).await;
            done(json!({"resultType": "complete"}))
        }
        (_, "large") => done(json!({"text": "x".repeat(CallOutput::max_frame())})),
        (_, "hidden" | "none") => Err(Refusal::UnknownTool(tool.into())),
        (_, "lies" | "away" | "broken off" | "wrong") => Err(refused(tool, &params)),
        _ => done(json!({"resultType": "complete", "method": &*request.method})),
    }
}

/// The refusals of a server or its owner's kernel.
fn refused(tool: &str, params: &Value) -> Refusal {
    let server = || ServerId::new("demo");
    match tool {
        // It did its work, and imitates its owner's kernel.
        "lies" => {
            let error = params["error"].as_str().unwrap();
            Refusal::Peer(RawValue::from_string(error.into()).unwrap())
        }
        "away" => Refusal::NotReady {
            server: server(),
            state: "restarting",
            reason: None,
            retry_after_ms: None,
            unreachable: false,
        },
        "broken off" => Refusal::Unanswered(Box::new(UnansweredCall {
            refusal: Refusal::ServerLost {
                server: server(),
                reason: "exit 1".into(),
            },
            outcome: CallOutcome::Unknown,
            call_id: "id".into(),
        })),
        _ => Refusal::BadArguments {
            tool: tool.into(),
            path: "/a".into(),
            keyword: "type".into(),
            message: "it is no number".into(),
        },
    }
}

impl Routes for ScriptedServer {
    fn answer(&self, request: Request) -> AnswerFuture {
        let params = request.params.as_deref().unwrap_or("{}");
        self.seen.lock().unwrap().push(ReceivedRequest {
            agent: request.caller.agent.clone(),
            operator: request.caller.operator,
            view: request.caller.view.clone(),
            trace: request.trace.id.as_str().to_owned(),
            params: serde_json::from_str(params).unwrap(),
            mgp: request.caller.mgp.features(),
        });
        Box::pin(played(request, self.paced.clone(), self.cancelled.clone()))
    }

    fn handle_notification(&self, caller: &Arc<Caller>, method: &str, _params: Option<&str>) {
        let noted = (caller.agent.clone(), method.to_owned());
        self.noted.lock().unwrap().push(noted);
        self.paced.notify_one();
    }

    fn find_tool(
        &self,
        _view: &CatalogView,
        _name: &str,
        _who: &Principal,
    ) -> Option<Arc<CatalogTool>> {
        None
    }

    fn all_tools(&self, _caller: Arc<Caller>) -> AnswerFuture<Result<Vec<Bytes>, Refusal>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn initialize(&self, _caller: Arc<Caller>) -> AnswerFuture {
        panic!("nobody says `initialize` to another node")
    }

    fn is_view_known(&self, view: &CatalogView, who: &Principal) -> bool {
        let closed = self.closed.lock().unwrap();
        let Principal::Agent(agent) = who else {
            panic!("there is no operator at this door")
        };
        *view == CatalogView::One(ServerId::new("demo")) && !closed.contains(agent)
    }

    fn foreign_closure_reason(&self) -> Option<String> {
        self.lapse.lock().unwrap().clone()
    }

    fn recheck(&self, _caller: &Caller, _method: &str, _params: &str) -> Result<(), Refusal> {
        Ok(())
    }

    fn handle_disconnect(&self, _agent: &Agent) {}
}

#[derive(Debug)]
struct TestSigner(NodeKey);

impl NodeSigner for TestSigner {
    fn public_key(&self) -> [u8; 32] {
        self.0.public_key().0
    }

    fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(bytes).0
    }
}

/// One end of the link.
struct LinkedEnd {
    key: NodeKey,
    endpoint: LinkEndpoint,
    at: String,
    accepted: mpsc::UnboundedReceiver<AcceptedPeer>,
}

impl LinkedEnd {
    fn new(n: u8, name: &'static str, features: WireFeatures) -> Self {
        let key = NodeKey::new(&[n; 32]);
        let signer = Arc::new(TestSigner(key.clone()));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap().to_string();
        let config = LinkConfig {
            identity: NodeIdentity::new(signer).unwrap(),
            hello: Arc::new(move || Hello {
                versions: WIRE_VERSIONS,
                features,
                life: LifeId([n; 16]),
                name: NodeName::parse(name).unwrap(),
                role: ReportedRole::Member,
                wall_ms: 5,
            }),
            memory: Credit::new(1 << 30),
            relay: false,
        };
        let (endpoint, mut acceptor) = LinkEndpoint::new(socket, config).unwrap();
        let (sender, accepted) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(one) = acceptor.next().await {
                let _gone = sender.send(one);
            }
        });
        Self {
            key,
            endpoint,
            at,
            accepted,
        }
    }
}

/// Both ends, and the path between them.
pub(super) struct TwoNodes {
    pub(super) home: NodeId,
    pub(super) played: Arc<ScriptedServer>,
    /// The receiver of calls.
    pub(super) node_endpoint: Arc<NodeEndpoint>,
    /// The server at the other node, as used by calls of the agent's node.
    pub(super) link: Arc<Link>,
    pub(super) links: Arc<Snapshot<LinkTable>>,
    /// The link, on the agent's node.
    pub(super) peer: Arc<PeerLink>,
    pub(super) heard: Arc<Mutex<Vec<String>>>,
    _ends: (LinkedEnd, LinkedEnd),
    _dialed: NewLink,
    serving: JoinHandle<()>,
    _scene: Scene,
}

impl Drop for TwoNodes {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl TwoNodes {
    pub(super) async fn new() -> Self {
        let now = WireFeatures::CALLS | WireFeatures::REFUSALS | WireFeatures::SHUTDOWN;
        Self::with_features(now, now).await
    }

    /// Creates nodes with these features.
    pub(super) async fn with_features(home: WireFeatures, owner: WireFeatures) -> Self {
        let home = LinkedEnd::new(1, "desk", home);
        let mut owner = LinkedEnd::new(2, "nas", owner);
        home.endpoint
            .set_pinned_nodes(HashSet::from([owner.key.node_id()]));
        owner
            .endpoint
            .set_pinned_nodes(HashSet::from([home.key.node_id()]));
        let dialed = within_deadline(home.endpoint.dial(owner.key.node_id(), &owner.at))
            .await
            .unwrap();
        let owner_link = match within_deadline(owner.accepted.recv()).await.unwrap() {
            AcceptedPeer::Link(link) => *link,
            AcceptedPeer::Pairing(pairing) => panic!("{pairing:?}"),
        };
        let scene = Scene::new().await;
        let played = Arc::new(ScriptedServer::default());
        let mut context = scene.context.clone();
        context.routes = played.clone();
        context.stateless = Arc::new(Stateless {
            routes: played.clone(),
            suspended: context.stateless.suspended.clone(),
            tasks: context.stateless.tasks.clone(),
            seal: context.stateless.seal.clone(),
            boot: 1,
        });
        let node_endpoint = NodeEndpoint::new(context);
        let calls = node_endpoint.call_sink();
        let at_owner = PeerLink::new(owner_link.link.clone(), &owner.key);
        let (mut streams, held) = parted(owner_link);
        let serving = tokio::spawn(async move {
            let _held = held;
            while let Ok(stream) = streams.next().await {
                if let InboundStream::Call(call) = stream {
                    let peer = at_owner.clone();
                    calls.send(InboundNodeCall { peer, call: *call });
                }
            }
        });
        let peer = PeerLink::new(dialed.link.clone(), &home.key);
        let links = Arc::new(Snapshot::new(table(&peer, owner.key.node_id())));
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let link = server(&owner.key, &links, &heard);
        Self {
            home: home.key.node_id(),
            played,
            node_endpoint,
            link,
            links,
            peer,
            heard,
            _ends: (home, owner),
            _dialed: dialed,
            serving,
            _scene: scene,
        }
    }

    /// Removes the link.
    pub(super) fn unlink(&self) {
        let before = self.links.load();
        self.links.store(Arc::default());
        before.replaced.cancel();
    }

    /// Starts a call of a stateless client of this agent.
    pub(super) fn call(
        &self,
        agent: &str,
        method: &'static str,
        params: Value,
    ) -> (
        JoinHandle<Outcome>,
        mpsc::Receiver<Bytes>,
        Arc<InFlightCall>,
    ) {
        let capabilities = ClientCapabilities {
            elicitation_form: true,
            ..ClientCapabilities::default()
        };
        let (outlet, messages) = mpsc::channel(16);
        let caller = Arc::new(Caller {
            connection: ConnectionId(1),
            agent: AgentId::new(agent),
            groups: Default::default(),
            operator: false,
            view: CatalogView::All,
            version: Version::STATELESS,
            capabilities,
            extensions: None,
            mgp: PLAIN,
            mcpl: None,
            session: CallerSession::Stateless,
            address: None,
            activity: Arc::default(),
        });
        let round = CallRound {
            id: RequestId::from(77),
            outlet: Some(Outlet::Stream(outlet)),
            token: Some("\"mine\"".into()),
            capabilities,
            log_level: None,
            answered_at: None,
        };
        let exchange = InFlightCall::new(ReplyPath::Rounds(Box::new(CallRounds::new(round, true))));
        let (link, own) = (self.link.clone(), exchange.clone());
        let calling = tokio::spawn(async move {
            let call = Call {
                caller: Some(&caller),
                in_flight: &own,
                token: Some("\"mine\""),
                stream: None,
                mgp_progress: false,
                family: ProtocolFamily::Stateless,
                final_check: None,
                metadata_headers: MetadataHeaders {
                    method,
                    name: None,
                    params: &[],
                },
                span: None,
                trace: None,
            };
            let frame = |id: mgp_engine::callers::request_ids::WireId| {
                let mut params = with_meta(params);
                params["_meta"]["progressToken"] = serde_json::from_str(&id.to_string()).unwrap();
                jsonrpc::request(&id.to_string(), method, Some(&params.to_string()))
            };
            link.call(call, frame).await
        });
        (calling, messages, exchange)
    }

    /// The answer to such a call.
    pub(super) async fn answer(
        &self,
        method: &'static str,
        params: Value,
    ) -> Result<Value, Refusal> {
        let (calling, _messages, _exchange) = self.call("agent.alice", method, params);
        let outcome = within_deadline(calling).await.unwrap()?;
        Ok(serde_json::from_slice(&outcome).unwrap())
    }

    /// The id of alice at the other node.
    pub(super) fn alice(&self) -> AgentId {
        AgentId::from_node_agent(&self.home.agent(AgentId::new("agent.alice")))
    }
}

/// Adds the metadata of a stateless request, which offers all of MGP.
pub(super) fn with_meta(mut params: Value) -> Value {
    let capabilities = r#"{"elicitation":{"form":{}}}"#;
    let capabilities =
        negotiation::with_offer(capabilities, ProtocolFamily::Stateless, Features::ALL);
    let capabilities: Value = serde_json::from_str(&capabilities).unwrap();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "mgp", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    params
}

/// Splits a link into its streams and the rest, which must be held.
fn parted(link: NewLink) -> (mgp_transports::quic::InboundStreams, impl Sized) {
    let NewLink {
        link,
        control_input,
        control_output,
        inbound,
        packets,
    } = link;
    (inbound, (link, control_input, control_output, packets))
}

fn table(peer: &Arc<PeerLink>, node: NodeId) -> LinkTable {
    LinkTable {
        links: BTreeMap::from([(node, peer.clone())]),
        ..LinkTable::default()
    }
}

fn server(
    owner: &NodeKey,
    links: &Arc<Snapshot<LinkTable>>,
    heard: &Arc<Mutex<Vec<String>>>,
) -> Arc<Link> {
    let of = owner.node_id().server(ServerId::new("demo"));
    let spec = ServerSpec::for_node_server("nas", of.clone(), None);
    let server_record = PeerServer {
        record: ServerRecord {
            state: Status::Connected,
            specification: None,
            replica: false,
            stateful: false,
            starting: false,
        },
        tools: BTreeMap::from([(
            "hidden".into(),
            PeerTool {
                definition: "{}".into(),
                idempotent: false,
                vector: None,
            },
        )]),
        stage: Stage::Fresh,
    };
    let held = Arc::new(Snapshot::new(PeerTools {
        servers: BTreeMap::from([(of.clone(), Arc::new(server_record))]),
        ..PeerTools::default()
    }));
    let wire = NodeWire::new(of, "nas", links.clone(), held);
    let heard = heard.clone();
    let events = EventSink::new(move |event: LinkEvent| {
        heard.lock().unwrap().push(format!("{event:?}"));
    });
    let ways = LinkSettings {
        offer_mgp: true,
        offer_mcpl: true,
        attribution: CallbackAttribution::ByCall,
        client_extensions: "{}".into(),
        audit: mgp_store::audit::AuditHandle::disabled(),
        interceptors: None,
    };
    let link = Link::new(
        spec.id,
        spec.limits,
        Wire::Node(wire),
        ServerLog::new(),
        events,
        "1",
        ways,
    );
    link.set_peer(Peer {
        version: Version::STATELESS,
        capabilities: ServerCapabilities::default(),
        raw_capabilities: r#"{"resources":{"subscribe":true}}"#.into(),
        info: None,
        instructions: None,
        mgp: PLAIN,
        mcpl: None,
    });
    link
}
