//! Test nodes, and scripted peers.

use std::collections::{BTreeMap, HashSet};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::node_key::NodeKey;
use mgp_protocol::federation::hello::{
    Hello, LifeId, NodeName, ReportedRole, WIRE_VERSIONS, WireFeatures,
};
use mgp_protocol::ids::NodeId;
use mgp_runtime::EventSink;
use mgp_sync::{Credit, Snapshot};
use mgp_transports::quic::{
    AcceptedPeer, LinkConfig, LinkEndpoint, NewLink, NodeIdentity, NodeSigner,
};
use ractor::ActorCell;
use tokio::sync::mpsc;

use super::super::{
    LinkTimeouts, LinksActor, LinksEvent, LinksHandle, LinksStart, PeerLink, PinnedPeer,
};

/// Deadline for expected events.
pub(crate) async fn within_deadline<T>(event: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(30), event).await;
    done.expect("it happens soon")
}

pub(crate) const ANYWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Keys in the order of their nodes.
pub(crate) fn keys<const N: usize>() -> [NodeKey; N] {
    let mut keys = [0; N].map(|_| NodeKey::new(&[0; 32]));
    for (n, key) in (1..).zip(&mut keys) {
        *key = NodeKey::new(&[n; 32]);
    }
    keys.sort_by_key(NodeKey::node_id);
    keys
}

pub(crate) struct LinkNode {
    pub(crate) key: NodeKey,
    pub(crate) links: LinksHandle,
    pub(crate) cell: ActorCell,
    pub(crate) events: mpsc::UnboundedReceiver<LinksEvent>,
    pub(crate) at: SocketAddr,
}

pub(crate) fn name(key: &NodeKey) -> NodeName {
    NodeName::parse(&format!("n{}", &key.node_id().short_id()[..4])).unwrap()
}

pub(crate) fn pinned(keys: &[&NodeKey]) -> BTreeMap<NodeId, PinnedPeer> {
    let peers = keys.iter().map(|key| {
        let peer = PinnedPeer {
            key: key.public_key(),
            name: name(key).as_str().to_owned(),
            role: ReportedRole::Member,
            has_duplicate_key: false,
        };
        (key.node_id(), peer)
    });
    peers.collect()
}

impl LinkNode {
    pub(crate) async fn start(key: &NodeKey) -> Self {
        Self::with_instance(key, ANYWHERE, 1).await
    }

    pub(crate) async fn with_instance(key: &NodeKey, listen: SocketAddr, life: u8) -> Self {
        Self::with_relay(key, listen, life, true).await
    }

    /// Creates a node that relays packets for others, or does not.
    pub(crate) async fn with_relay(
        key: &NodeKey,
        listen: SocketAddr,
        life: u8,
        relay: bool,
    ) -> Self {
        let (sent, events) = mpsc::unbounded_channel();
        let start = LinksStart {
            key: key.clone(),
            name: name(key),
            role: ReportedRole::Member,
            instance: LifeId([life; 16]),
            table: Arc::new(Snapshot::new(super::super::LinkTable::default())),
            events: EventSink::new(move |event| drop(sent.send(event))),
            memory: Credit::new(1 << 30),
            times: LinkTimeouts {
                clock: Duration::from_millis(50),
                drain: Duration::from_millis(300),
                reopen: Duration::from_millis(50),
            },
            relay,
        };
        let (links, cell) = LinksActor::start(start).await.unwrap();
        let at = within_deadline(links.open(listen)).await.unwrap();
        Self {
            key: key.clone(),
            links,
            cell,
            events,
            at,
        }
    }

    pub(crate) async fn pin(&self, keys: &[&NodeKey]) {
        self.links.pin(pinned(keys), Vec::new()).await.unwrap();
    }

    /// Waits for the first event that matches.
    pub(crate) async fn event<T>(&mut self, look: impl Fn(LinksEvent) -> Option<T>) -> T {
        within_deadline(async {
            loop {
                let event = self.events.recv().await.expect("the actor lives");
                if let Some(found) = look(event) {
                    return found;
                }
            }
        })
        .await
    }

    pub(crate) async fn up(&mut self) -> Arc<PeerLink> {
        let up = |event| match event {
            LinksEvent::Up(link) => Some(link),
            LinksEvent::Down { .. }
            | LinksEvent::Present(_)
            | LinksEvent::Missing(_)
            | LinksEvent::Control(..)
            | LinksEvent::Sync(..)
            | LinksEvent::Call(_)
            | LinksEvent::Clock(..)
            | LinksEvent::Pairing(_) => None,
        };
        self.event(up).await
    }

    /// Waits for the next lost node, and the reason.
    pub(crate) async fn down(&mut self) -> (NodeId, mgp_transports::quic::LinkGone) {
        let down = |event| match event {
            LinksEvent::Down { node, why } => Some((node, why)),
            LinksEvent::Up(_)
            | LinksEvent::Present(_)
            | LinksEvent::Missing(_)
            | LinksEvent::Control(..)
            | LinksEvent::Sync(..)
            | LinksEvent::Call(_)
            | LinksEvent::Clock(..)
            | LinksEvent::Pairing(_) => None,
        };
        self.event(down).await
    }
}

/// Creates two linked nodes, the smaller one first.
pub(crate) async fn linked_pair() -> (LinkNode, LinkNode) {
    let [a, b] = keys();
    let (mut a, mut b) = (LinkNode::start(&a).await, LinkNode::start(&b).await);
    a.pin(&[&b.key]).await;
    b.pin(&[&a.key]).await;
    a.links.add_hint(b.key.node_id(), b.at);
    a.up().await;
    b.up().await;
    (a, b)
}

#[derive(Debug)]
struct PlainSigner(NodeKey);

impl NodeSigner for PlainSigner {
    fn public_key(&self) -> [u8; 32] {
        self.0.public_key().0
    }

    fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(bytes).0
    }
}

/// A peer without an actor.
pub(crate) struct BarePeer {
    pub(crate) endpoint: LinkEndpoint,
    pub(crate) at: SocketAddr,
    accepted: mpsc::UnboundedReceiver<NewLink>,
}

impl BarePeer {
    pub(crate) fn new(key: &NodeKey, knows: &NodeKey) -> Self {
        let own = name(key);
        let hello = move || Hello {
            versions: WIRE_VERSIONS,
            features: WireFeatures::NONE,
            life: LifeId([9; 16]),
            name: own.clone(),
            role: ReportedRole::Member,
            wall_ms: 0,
        };
        let config = LinkConfig {
            identity: NodeIdentity::new(Arc::new(PlainSigner(key.clone()))).unwrap(),
            hello: Arc::new(hello),
            memory: Credit::new(1 << 30),
            relay: false,
        };
        let socket = UdpSocket::bind(ANYWHERE).unwrap();
        let (endpoint, mut acceptor) = LinkEndpoint::new(socket, config).unwrap();
        endpoint.set_pinned_nodes(HashSet::from([knows.node_id()]));
        let (sender, accepted) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(AcceptedPeer::Link(link)) = acceptor.next().await {
                let _gone = sender.send(*link);
            }
        });
        let at = endpoint.address().unwrap();
        Self {
            endpoint,
            at,
            accepted,
        }
    }

    pub(crate) async fn accepted(&mut self) -> NewLink {
        within_deadline(self.accepted.recv()).await.unwrap()
    }

    pub(crate) async fn dial(&self, node: &LinkNode) -> NewLink {
        let at = node.at.to_string();
        within_deadline(self.endpoint.dial(node.key.node_id(), &at))
            .await
            .unwrap()
    }
}
