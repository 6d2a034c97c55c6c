//! Nodes, links between them, and a peer that answers.

use std::collections::HashSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mgp_protocol::federation::assertion::AssertionId;
use mgp_protocol::federation::call::{CallHeader, CallTag};
use mgp_protocol::federation::hello::{
    Hello, LifeId, NodeName, ReportedRole, WIRE_VERSIONS, WireFeatures,
};
use mgp_protocol::ids::NodeId;
use mgp_sync::Credit;
use ring::signature::{Ed25519KeyPair, KeyPair};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::{
    AcceptedPeer, CallFrame, CallInput, InboundCall, InboundStream, InboundStreams, LinkConfig,
    LinkEndpoint, NewLink, NodeIdentity, NodeLink, NodeSigner, PairingLink, StreamFailure,
};

/// The time limit for anything that should happen.
pub(super) async fn soon<T>(event: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(60), event).await;
    done.expect("it happens soon")
}

/// Long enough for anything that is not about time.
pub(super) fn long() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[derive(Debug)]
pub(super) struct Key(Ed25519KeyPair);

impl Key {
    pub(super) fn new(n: u8) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[n; 32]).unwrap())
    }

    pub(super) fn id(&self) -> NodeId {
        NodeId::from_key(&self.public_key())
    }
}

impl NodeSigner for Key {
    fn public_key(&self) -> [u8; 32] {
        self.0.public_key().as_ref().try_into().unwrap()
    }

    fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(bytes).as_ref().try_into().unwrap()
    }
}

pub(super) fn id(n: u8) -> NodeId {
    Key::new(n).id()
}

pub(super) fn hello() -> Hello {
    Hello {
        versions: WIRE_VERSIONS,
        features: WireFeatures::CALLS,
        life: LifeId([1; 16]),
        name: NodeName::parse("nas").unwrap(),
        role: ReportedRole::Member,
        wall_ms: 5,
    }
}

/// A node that accepts all permitted peers.
pub(super) struct Node {
    pub(super) endpoint: LinkEndpoint,
    pub(super) id: NodeId,
    pub(super) at: String,
    pub(super) memory: Arc<Credit>,
    pub(super) accepted: mpsc::UnboundedReceiver<AcceptedPeer>,
    pub(super) accepting: JoinHandle<()>,
}

impl Node {
    pub(super) fn new(n: u8) -> Self {
        Self::with(Arc::new(Key::new(n)), hello())
    }

    /// A node that accepts nobody.
    pub(super) fn idle(n: u8) -> Self {
        let node = Self::new(n);
        node.accepting.abort();
        node
    }

    pub(super) fn with(signer: Arc<dyn NodeSigner>, hello: Hello) -> Self {
        Self::with_relay(signer, hello, true)
    }

    /// A node that relays packets, or does not.
    pub(super) fn with_relay(signer: Arc<dyn NodeSigner>, hello: Hello, relay: bool) -> Self {
        let identity = NodeIdentity::new(signer).unwrap();
        let id = identity.id();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap().to_string();
        let memory = Credit::new(1 << 30);
        let config = LinkConfig {
            identity,
            hello: Arc::new(move || hello.clone()),
            memory: Arc::clone(&memory),
            relay,
        };
        let (endpoint, mut acceptor) = LinkEndpoint::new(socket, config).unwrap();
        let (taken, accepted) = mpsc::unbounded_channel();
        let accepting = tokio::spawn(async move {
            while let Some(one) = acceptor.next().await {
                let _gone = taken.send(one);
            }
        });
        Self {
            endpoint,
            id,
            at,
            memory,
            accepted,
            accepting,
        }
    }

    pub(super) fn pins(&self, nodes: &[NodeId]) {
        self.endpoint
            .set_pinned_nodes(nodes.iter().copied().collect::<HashSet<_>>());
    }

    /// The next accepted node.
    pub(super) async fn link(&mut self) -> NewLink {
        match soon(self.accepted.recv()).await.unwrap() {
            AcceptedPeer::Link(link) => *link,
            AcceptedPeer::Pairing(pairing) => panic!("{pairing:?}"),
        }
    }

    pub(super) async fn pairing(&mut self) -> PairingLink {
        match soon(self.accepted.recv()).await.unwrap() {
            AcceptedPeer::Link(link) => panic!("{link:?}"),
            AcceptedPeer::Pairing(pairing) => *pairing,
        }
    }
}

/// Two nodes that know each other.
pub(super) fn two() -> (Node, Node) {
    let (a, b) = (Node::new(1), Node::new(2));
    a.pins(&[b.id]);
    b.pins(&[a.id]);
    (a, b)
}

/// Two nodes with a link, from both ends: the dialer's first.
pub(super) async fn linked() -> (Node, NewLink, NewLink, Node) {
    let (a, mut b) = two();
    let dialed = soon(a.endpoint.dial(b.id, &b.at)).await.unwrap();
    let taken = b.link().await;
    (a, dialed, taken, b)
}

pub(super) fn header(method: &str) -> CallHeader {
    CallHeader {
        method: method.to_owned(),
        server: Some("files".to_owned()),
        tag: CallTag([1; 16]),
        request: 1,
        trace: "trace-1".to_owned(),
        assertion: Some(AssertionId([2; 16])),
        signed: None,
        has_session: false,
        hops: 1,
        left_ms: 1,
    }
}

/// The next incoming call.
pub(super) async fn inbound(streams: &mut InboundStreams) -> InboundCall {
    match soon(streams.next()).await.unwrap() {
        InboundStream::Call(call) => *call,
        InboundStream::Sync(sync) => panic!("{sync:?}"),
    }
}

/// Answers every call with its own parameters, concurrently, until the link ends.
pub(super) fn echoes(streams: InboundStreams) -> JoinHandle<StreamFailure> {
    answers(streams, None)
}

/// Answers every call with the same answer.
pub(super) fn answers(
    mut streams: InboundStreams,
    always: Option<Bytes>,
) -> JoinHandle<StreamFailure> {
    tokio::spawn(async move {
        loop {
            match streams.next().await {
                Ok(InboundStream::Call(call)) => {
                    let answer = always.clone().unwrap_or(call.params);
                    tokio::spawn(call.output.send_result(answer));
                }
                Ok(InboundStream::Sync(mut sync)) => {
                    tokio::spawn(async move {
                        while let Ok(Some(message)) = sync.next().await {
                            if sync.send(message).await.is_err() {
                                return;
                            }
                        }
                        sync.finish();
                    });
                }
                Err(gone) => return gone,
            }
        }
    })
}

/// Calls, and waits for the result.
pub(super) async fn call(link: &NodeLink, params: Bytes) -> Bytes {
    let (mut input, _output) = link
        .open_call(header("tools/call"), params, long())
        .await
        .unwrap();
    result(&mut input).await
}

pub(super) async fn result(input: &mut CallInput) -> Bytes {
    let CallFrame::Result(result) = soon(input.next()).await.unwrap() else {
        panic!("something else in the place of a result");
    };
    result
}
