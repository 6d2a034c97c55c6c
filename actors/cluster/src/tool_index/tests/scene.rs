//! Test nodes with an index each: pages go over real links, digests are delivered by the test.

use std::collections::{BTreeMap, HashSet};
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mgp_engine::cluster::shares::{Share, ShareAudience, ShareChange, Shares, ToolPattern};
use mgp_engine::cluster::tool_index::{OfferedServer, hash_schemas};
use mgp_engine::node_key::NodeKey;
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::hello::{
    Hello, LifeId, NodeName, ReportedRole, WIRE_VERSIONS, WireFeatures,
};
use mgp_protocol::federation::sync::SyncOpening;
use mgp_protocol::federation::tool_index::{ServerRecord, ToolRecord};
use mgp_protocol::ids::{NodeId, ServerId};
use mgp_protocol::mgp::discovery::Status;
use mgp_runtime::EventSink;
use mgp_store::audit::AuditHandle;
use mgp_sync::{Credit, Snapshot};
use mgp_transports::quic::{
    AcceptedPeer, ControlInput, ControlOutput, InboundStream, InboundStreams, LinkConfig,
    LinkEndpoint, NewLink, NodeIdentity, NodeSigner, SyncStream,
};
use ractor::ActorCell;
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::task::JoinHandle;

use super::super::{PeerTools, PublishedNames, ToolIndexEvent, ToolIndexHandle, ToolIndexStart};
use crate::links::{MessagePermit, PeerLink};

/// Deadline for expected events.
pub(super) async fn within_deadline<T>(event: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(60), event).await;
    done.expect("it happens soon")
}

#[derive(Debug)]
struct SceneKey(NodeKey);

impl NodeSigner for SceneKey {
    fn public_key(&self) -> [u8; 32] {
        self.0.public_key().0
    }

    fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(bytes).0
    }
}

/// The outgoing control messages of a node, by receiver.
type Outputs = Arc<Mutex<BTreeMap<NodeId, mpsc::UnboundedSender<Control>>>>;

pub(super) struct IndexNode {
    n: u8,
    pub(super) id: NodeId,
    pub(super) index: ToolIndexHandle,
    cell: ActorCell,
    pub(super) held: Arc<Snapshot<PeerTools>>,
    names: Arc<Snapshot<PublishedNames>>,
    pub(super) events: AsyncMutex<mpsc::UnboundedReceiver<ToolIndexEvent>>,
    outputs: Outputs,
    pub(super) folder: tempfile::TempDir,
    pub(super) wire: Wire,
}

/// The link socket of a node.
pub(super) struct Wire {
    key: NodeKey,
    endpoint: LinkEndpoint,
    at: String,
    pinned: Mutex<HashSet<NodeId>>,
    accepted: AsyncMutex<mpsc::UnboundedReceiver<NewLink>>,
    _accepting: JoinHandle<()>,
}

impl Wire {
    pub(super) fn new(n: u8) -> Self {
        let key = NodeKey::new(&[n; 32]);
        let identity = NodeIdentity::new(Arc::new(SceneKey(key.clone()))).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap().to_string();
        let hello = Hello {
            versions: WIRE_VERSIONS,
            features: WireFeatures::CALLS,
            life: LifeId([n; 16]),
            name: NodeName::parse("node").unwrap(),
            role: ReportedRole::Member,
            wall_ms: 5,
        };
        let config = LinkConfig {
            identity,
            hello: Arc::new(move || hello.clone()),
            memory: Credit::new(1 << 30),
            relay: false,
        };
        let (endpoint, mut acceptor) = LinkEndpoint::new(socket, config).unwrap();
        let (sender, accepted) = mpsc::unbounded_channel();
        let accepting = tokio::spawn(async move {
            while let Some(one) = acceptor.next().await {
                match one {
                    AcceptedPeer::Link(link) => drop(sender.send(*link)),
                    AcceptedPeer::Pairing(_) => {}
                }
            }
        });
        Self {
            key,
            endpoint,
            at,
            pinned: Mutex::default(),
            accepted: AsyncMutex::new(accepted),
            _accepting: accepting,
        }
    }

    pub(super) fn id(&self) -> NodeId {
        self.key.node_id()
    }
}

/// Both ends of a link, first that of the first node.
pub(super) type Ends = (Arc<PeerLink>, Arc<PeerLink>);

/// One end of a link.
pub(super) struct End {
    pub(super) link: Arc<PeerLink>,
    pub(super) inbound: InboundStreams,
    pub(super) control_input: ControlInput,
    pub(super) control_output: ControlOutput,
}

/// Links two sockets.
pub(super) async fn link_sockets(one: &Wire, other: &Wire) -> (End, End) {
    for (node, peer) in [(one, other), (other, one)] {
        let mut pinned = node.pinned.lock().unwrap();
        pinned.insert(peer.id());
        node.endpoint.set_pinned_nodes(pinned.clone());
    }
    let dialed = within_deadline(one.endpoint.dial(other.id(), &other.at))
        .await
        .unwrap();
    let accepted = within_deadline(other.accepted.lock().await.recv())
        .await
        .unwrap();
    (End::new(one, dialed), End::new(other, accepted))
}

impl End {
    fn new(wire: &Wire, new: NewLink) -> Self {
        Self {
            link: PeerLink::new(new.link, &wire.key),
            inbound: new.inbound,
            control_input: new.control_input,
            control_output: new.control_output,
        }
    }

    /// Attaches the end to a node: reads, writes and serves its messages.
    pub(super) fn attach_to(self, node: &IndexNode) -> Arc<PeerLink> {
        let peer = self.link.link.peer();
        let (sender, outgoing) = mpsc::unbounded_channel();
        node.outputs.lock().unwrap().insert(peer, sender);
        tokio::spawn(write(outgoing, self.control_output));
        tokio::spawn(read(node.index.clone(), peer, self.control_input));
        tokio::spawn(serve(node.index.clone(), peer, self.inbound));
        node.index.link_up(Arc::clone(&self.link));
        self.link
    }
}

async fn write(mut outgoing: mpsc::UnboundedReceiver<Control>, mut output: ControlOutput) {
    while let Some(control) = outgoing.recv().await {
        if output.send(&control).await.is_err() {
            return;
        }
    }
}

async fn read(index: ToolIndexHandle, peer: NodeId, mut input: ControlInput) {
    while let Ok(control) = input.next().await {
        match control.clone() {
            Control::Index(digest) => index.receive_digest(peer, digest, MessagePermit::default()),
            Control::IndexReport(report) => {
                index.receive_report(peer, report, MessagePermit::default())
            }
            Control::Hello(_)
            | Control::Ping(_)
            | Control::Pong(_)
            | Control::Renewal(_)
            | Control::Addresses(_)
            | Control::Logs(_)
            | Control::Leaving(_)
            | Control::Reach(_)
            | Control::Unknown(_) => panic!("{control:?}"),
        }
    }
    index.link_down(peer);
}

impl IndexNode {
    pub(super) async fn new(n: u8) -> Self {
        Self::with_folder(n, tempfile::tempdir().unwrap()).await
    }

    /// Starts a node with this folder.
    pub(super) async fn with_folder(n: u8, folder: tempfile::TempDir) -> Self {
        let wire = Wire::new(n);
        let id = wire.id();
        let held = Arc::new(Snapshot::new(PeerTools::default()));
        let names = Arc::new(Snapshot::new(PublishedNames::default()));
        let (happened, events) = mpsc::unbounded_channel();
        let outputs = Outputs::default();
        let sinks = Arc::clone(&outputs);
        let start = ToolIndexStart {
            node: id,
            folder: folder.path().join("index"),
            published: Arc::clone(&held),
            names: Arc::clone(&names),
            events: EventSink::new(move |event| drop(happened.send(event))),
            control: EventSink::new(move |(node, control)| {
                let outputs = sinks.lock().unwrap();
                drop(outputs.get(&node).map(|output| output.send(control)));
            }),
            audit: AuditHandle::disabled(),
        };
        let (index, cell) = ToolIndexHandle::start(start).await.unwrap();
        Self {
            n,
            id,
            index,
            cell,
            held,
            names,
            events: AsyncMutex::new(events),
            outputs,
            folder,
            wire,
        }
    }

    /// Restarts the node.
    pub(super) async fn restart(self) -> Self {
        self.cell.stop(None);
        Self::with_folder(self.n, self.folder).await
    }

    pub(super) fn offer(&self, servers: &[(&str, &[&str])]) {
        self.offer_words(servers, "1");
    }

    pub(super) fn offer_words(&self, servers: &[(&str, &[&str])], text: &str) {
        let servers = servers
            .iter()
            .map(|(server, names)| (ServerId::new(*server), Arc::new(offered(names, text))));
        self.index.set_offer(servers.collect());
    }

    /// Waits until the published tools match.
    pub(super) async fn wait_for_tools(&self, it: impl Fn(&PeerTools) -> bool) -> Arc<PeerTools> {
        within_deadline(async {
            loop {
                let held = self.held.load();
                if it(&held) {
                    return held;
                }
                held.replaced.cancelled().await;
            }
        })
        .await
    }

    /// Waits until exactly these other nodes have these names.
    pub(super) async fn is_named(&self, wanted: &[(&Self, &str)]) {
        let wanted: BTreeMap<String, NodeId> = wanted
            .iter()
            .map(|(node, name)| ((*name).to_owned(), node.id))
            .collect();
        within_deadline(async {
            loop {
                let named = self.names.load();
                let names = named.names.iter();
                let names: BTreeMap<String, NodeId> =
                    names.map(|(name, node)| (name.to_string(), node)).collect();
                if names == wanted {
                    return;
                }
                named.replaced.cancelled().await;
            }
        })
        .await;
    }

    /// The next event that is not about publications.
    pub(super) async fn report(&self) -> ToolIndexEvent {
        let mut events = self.events.lock().await;
        loop {
            match within_deadline(events.recv()).await.unwrap() {
                ToolIndexEvent::Changed | ToolIndexEvent::Renamed => {}
                event @ (ToolIndexEvent::Reported(..) | ToolIndexEvent::Refused(..)) => {
                    return event;
                }
            }
        }
    }
}

/// Makes all nodes members of one cluster.
pub(super) fn members(nodes: &[&IndexNode]) {
    let all: BTreeMap<NodeId, NodeName> = nodes
        .iter()
        .map(|node| {
            (
                node.id,
                NodeName::parse(&format!("node-{}", node.n)).unwrap(),
            )
        })
        .collect();
    for node in nodes {
        node.index.set_members(all.clone());
    }
}

/// Links two nodes.
pub(super) async fn link(one: &IndexNode, other: &IndexNode) -> Ends {
    let (first, second) = link_sockets(&one.wire, &other.wire).await;
    (first.attach_to(one), second.attach_to(other))
}

async fn serve(index: ToolIndexHandle, peer: NodeId, mut inbound: InboundStreams) {
    while let Ok(stream) = inbound.next().await {
        match stream {
            InboundStream::Sync(mut stream) => {
                assert_eq!(opening(&mut stream).await, SyncOpening::Index);
                index.serve(peer, stream);
            }
            InboundStream::Call(call) => panic!("{call:?}"),
        }
    }
}

pub(super) async fn opening(stream: &mut SyncStream) -> SyncOpening {
    let first = stream.next().await.unwrap().unwrap();
    SyncOpening::decode(&first).unwrap()
}

/// Closes the link.
pub(super) fn unlink(ends: Ends, reason: LinkClose) {
    ends.0.link.close(reason);
    ends.1.link.close(reason);
}

pub(super) fn definition(name: &str, text: &str) -> String {
    let definition = serde_json::json!({
        "name": name, "description": text, "inputSchema": {"type": "object"}
    });
    definition.to_string()
}

pub(super) fn tool(name: &str, text: &str) -> ToolRecord {
    let definition = definition(name, text);
    ToolRecord {
        schemas: hash_schemas(&definition).unwrap(),
        definition,
        idempotent: false,
        vector: None,
    }
}

pub(super) fn server_record() -> ServerRecord {
    ServerRecord {
        state: Status::Connected,
        specification: None,
        replica: false,
        stateful: false,
        starting: false,
    }
}

pub(super) fn offered(names: &[&str], text: &str) -> OfferedServer {
    let tools = names.iter();
    OfferedServer {
        record: server_record(),
        tools: tools
            .map(|name| (Arc::from(*name), tool(name, text)))
            .collect(),
    }
}

pub(super) fn rules(rules: &[(&str, Option<NodeId>, &str)]) -> Arc<Shares> {
    let mut shares = Shares::default();
    for (server, to, tools) in rules {
        shares.apply(&ShareChange::Share(Share {
            server: ServerId::new(*server),
            to: to.map_or(ShareAudience::Cluster, ShareAudience::Node),
            tools: ToolPattern::try_from((*tools).to_owned()).unwrap(),
        }));
    }
    Arc::new(shares)
}

/// All tools, by their owners' names.
pub(super) fn tools(held: &PeerTools) -> Vec<String> {
    let tools = held.servers.iter().flat_map(|(server, held)| {
        let tools = held.tools.keys();
        tools.map(move |tool| format!("{}:{tool}", server.server))
    });
    tools.collect()
}
