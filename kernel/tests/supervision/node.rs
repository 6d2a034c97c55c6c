//! A server of another node in the tree: no process, and a life that outlasts its link.

use std::collections::{BTreeMap, HashSet};
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mgp_cluster::links::{LinkTable, PeerLink};
use mgp_cluster::{PeerServer, PeerTool, PeerTools};
use mgp_engine::cluster::staleness::Stage;
use mgp_engine::node_key::NodeKey;
use mgp_engine::servers::spec::ServerSpec;
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::hello::{
    Hello, LifeId, NodeName, ReportedRole, WIRE_VERSIONS, WireFeatures,
};
use mgp_protocol::federation::tool_index::ServerRecord;
use mgp_protocol::ids::{NodeId, NodeServer, ServerId};
use mgp_protocol::mgp::discovery::Status;
use mgp_protocol::mgp::health::Health;
use mgp_sync::Credit;
use mgp_tools::registrar::ServerTree;
use mgp_transports::quic::{
    AcceptedPeer, InboundCall, InboundStream, LinkConfig, LinkEndpoint, NewLink, NodeIdentity,
    NodeLink, NodeSigner,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::scene::{DEADLINE, Kernel, call, connected, until};

#[derive(Debug)]
struct EndSigner(NodeKey);

impl NodeSigner for EndSigner {
    fn public_key(&self) -> [u8; 32] {
        self.0.public_key().0
    }

    fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(bytes).0
    }
}

/// One of two nodes.
struct EndOfLink {
    key: NodeKey,
    endpoint: LinkEndpoint,
    at: String,
    accepted: mpsc::UnboundedReceiver<AcceptedPeer>,
}

impl EndOfLink {
    fn new(n: u8) -> Self {
        let key = NodeKey::new(&[n; 32]);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap().to_string();
        let config = LinkConfig {
            identity: NodeIdentity::new(Arc::new(EndSigner(key.clone()))).unwrap(),
            hello: Arc::new(move || Hello {
                versions: WIRE_VERSIONS,
                features: WireFeatures::CALLS,
                life: LifeId([n; 16]),
                name: NodeName::parse("nas").unwrap(),
                role: ReportedRole::Member,
                wall_ms: 5,
            }),
            memory: Credit::new(1 << 30),
            relay: false,
        };
        let (endpoint, mut acceptor) = LinkEndpoint::new(socket, config).unwrap();
        let (taken, accepted) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(one) = acceptor.next().await {
                let _gone = taken.send(one);
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

/// The owner of the server answers one call.
async fn played(call: InboundCall) {
    let InboundCall {
        header,
        params,
        mut output,
        ..
    } = call;
    let params: Value = serde_json::from_slice(&params).unwrap();
    let answer = match header.method.as_str() {
        "server/discover" => json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {"listChanged": true}, "prompts": {"listChanged": true}},
        }),
        "subscriptions/listen" => {
            let tag = json!({"io.modelcontextprotocol/subscriptionId": header.request});
            let told = json!({
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": {"notifications": params["notifications"], "_meta": tag},
            });
            output.relay(told.to_string().into()).await.unwrap();
            output.wait_stopped().await;
            return;
        }
        "prompts/list" => json!({"resultType": "complete", "prompts": [{"name": "greet"}]}),
        "tools/call" => json!({"resultType": "complete", "content": [], "called": params["name"]}),
        other => panic!("{other} is not asked of another node"),
    };
    let _ = output.send_result(Bytes::from(answer.to_string())).await;
}

/// A kernel and another node.
struct KernelAndNode {
    kernel: Kernel,
    home: EndOfLink,
    owner: EndOfLink,
    of: NodeServer,
    kept: Vec<NewLink>,
    /// The owner's end of the last link.
    at_owner: Option<NodeLink>,
}

impl KernelAndNode {
    async fn new() -> Self {
        let (home, owner) = (EndOfLink::new(1), EndOfLink::new(2));
        home.endpoint
            .set_pinned_nodes(HashSet::from([owner.key.node_id()]));
        owner
            .endpoint
            .set_pinned_nodes(HashSet::from([home.key.node_id()]));
        let of = owner.key.node_id().server(ServerId::new("demo"));
        let kernel = Kernel::grow(&[]).await;
        let spec = ServerSpec::for_node_server("nas", of.clone(), None);
        assert!(kernel.tree.start_server(spec).await);
        Self {
            kernel,
            home,
            owner,
            of,
            kept: Vec::new(),
            at_owner: None,
        }
    }

    fn node(&self) -> NodeId {
        self.of.node
    }

    /// The two are linked.
    async fn link(&mut self) -> Arc<PeerLink> {
        let dialing = self.home.endpoint.dial(self.node(), &self.owner.at);
        let dialed = dialing.await.unwrap();
        let taken = self.owner.accepted.recv().await.unwrap();
        let AcceptedPeer::Link(mut taken) = taken else {
            panic!("{taken:?}")
        };
        self.at_owner = Some(taken.link.clone());
        tokio::spawn(async move {
            while let Ok(stream) = taken.inbound.next().await {
                if let InboundStream::Call(call) = stream {
                    tokio::spawn(played(*call));
                }
            }
        });
        let peer = PeerLink::new(dialed.link.clone(), &self.home.key);
        self.kept.push(dialed);
        self.links(BTreeMap::from([(self.node(), peer.clone())]));
        peer
    }

    fn links(&self, links: BTreeMap<NodeId, Arc<PeerLink>>) {
        self.publish(LinkTable {
            links,
            ..LinkTable::default()
        });
    }

    fn publish(&self, links: LinkTable) {
        let table = &self.kernel.connector.links;
        let before = table.load();
        table.store(Arc::new(links));
        before.replaced.cancel();
    }

    /// The owner ends the link, and says why.
    async fn owner_closes(&self, peer: &PeerLink, why: LinkClose) {
        self.at_owner.as_ref().unwrap().close(why);
        peer.link.wait_closed().await;
    }

    /// The owner shares these tools.
    fn shares(&self, tools: &[&str]) {
        let tool = |name: &&str| {
            let definition = json!({"name": name, "inputSchema": {"type": "object"}});
            let tool = PeerTool {
                definition: definition.to_string().into(),
                idempotent: false,
                vector: None,
            };
            (Arc::from(*name), tool)
        };
        let server = PeerServer {
            record: ServerRecord {
                state: Status::Connected,
                specification: None,
                replica: false,
                stateful: false,
                starting: false,
            },
            tools: tools.iter().map(tool).collect(),
            stage: Stage::Fresh,
        };
        let held = &self.kernel.connector.peer_tools;
        let before = held.load();
        held.store(Arc::new(PeerTools {
            servers: BTreeMap::from([(self.of.clone(), Arc::new(server))]),
            ..PeerTools::default()
        }));
        before.replaced.cancel();
    }
}

/// It is there when it is shared and its node is linked; its tools are those that were told of it, its prompts
/// those that it has. While its node is away its calls are refused as those of a server that is away, and go on
/// over the next link.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_node_is_there_while_its_node_is_linked() {
    let mut nodes = KernelAndNode::new().await;
    let server = nodes.kernel.server("nas/demo");
    let peer = nodes.link().await;
    tokio::task::yield_now().await;
    assert!(server.link().is_none(), "it is not shared yet");
    nodes.shares(&["time"]);
    connected(&server, -1).await;
    let tools = || {
        server
            .tools()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(tools(), ["time"]);
    assert!(call(&server, "time", "{}").await.contains("called"));
    let number = server.link().unwrap().number;

    nodes.shares(&["time", "date"]);
    until("its tools are those that are told", || tools().len() == 2).await;
    let last = server.last_offer().unwrap();
    assert!(last.offers_item(mgp_engine::tools::catalog::ListKind::Prompts, "greet"));

    peer.link.close(LinkClose::Done);
    nodes.links(BTreeMap::new());
    until("it is seen to be away", || {
        server.health() == Some(Health::Unhealthy)
    })
    .await;
    let link = server.link().unwrap();
    let away = link
        .request("tools/call", Some(r#"{"name":"time"}"#))
        .await
        .unwrap_err();
    assert!(away.to_string().contains("nas is away"), "{away}");

    let _peer = nodes.link().await;
    until("it is back", || server.health() == Some(Health::Healthy)).await;
    assert!(call(&server, "time", "{}").await.contains("called"));
    assert_eq!(server.link().unwrap().number, number, "its life went on");
    let stopped = nodes
        .kernel
        .tree
        .stop_server(ServerId::new("nas/demo"))
        .await;
    tokio::time::timeout(DEADLINE, stopped.unwrap())
        .await
        .unwrap()
        .unwrap();
}

/// A call that comes while its owner restarts waits for it; one that comes when its owner was lost does not, and neither
/// does one long after a shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_an_owner_that_was_shut_down() {
    let mut nodes = KernelAndNode::new().await;
    let server = nodes.kernel.server("nas/demo");
    nodes.shares(&["time"]);
    let peer = nodes.link().await;
    connected(&server, -1).await;
    let link = server.link().unwrap();
    let begin = || {
        let link = link.clone();
        tokio::spawn(async move { link.request("tools/call", Some(r#"{"name":"time"}"#)).await })
    };
    nodes.owner_closes(&peer, LinkClose::Shutdown).await;
    let at_once = begin();
    nodes.publish(LinkTable {
        shut_down: BTreeMap::from([(nodes.node(), Instant::now())]),
        ..LinkTable::default()
    });
    let meanwhile = begin();
    tokio::task::yield_now().await;
    let peer = nodes.link().await;
    for call in [at_once, meanwhile] {
        let answer = tokio::time::timeout(DEADLINE, call).await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&answer.unwrap()).contains("called"));
    }

    nodes.owner_closes(&peer, LinkClose::Done).await;
    let lost = begin().await.unwrap().unwrap_err();
    assert!(lost.to_string().contains("nas is away"), "{lost}");
    let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    nodes.publish(LinkTable {
        shut_down: BTreeMap::from([(nodes.node(), long_ago)]),
        ..LinkTable::default()
    });
    let stopped = begin().await.unwrap().unwrap_err();
    assert!(
        stopped.to_string().contains("nas was shut down"),
        "{stopped}"
    );
}
