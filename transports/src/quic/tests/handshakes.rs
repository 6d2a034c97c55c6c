//! Which nodes get a link.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::hello::{LifeId, WireFeatures, WireVersions};
use quinn::ClientConfig;

use super::super::handshake::LinkPurpose;
use super::super::{
    Acceptor, LINKS_PER_NODE, LinkConfig, LinkEndpoint, LinkError, MAX_HANDSHAKES,
    NodeCertificateError, NodeIdentity, NodeSigner, PeerError, StreamFailure,
};
use super::bad_wire::{BadWire, Faults};
use super::scene::{Key, Node, call, echoes, hello, id, linked, soon, two};

#[tokio::test]
async fn two_nodes_that_know_each_other_are_linked() {
    let (a, dialed, taken, b) = linked().await;
    assert_eq!((dialed.link.peer(), taken.link.peer()), (b.id, a.id));
    assert!(dialed.link.is_dialer() && !taken.link.is_dialer());
    assert_eq!(dialed.link.hello().name.as_str(), "nas");
    assert_eq!(dialed.link.negotiated().features, WireFeatures::CALLS);
    // Both have the same value, and no other link has it.
    assert_eq!(dialed.link.binding(), taken.link.binding());
    let again = soon(a.endpoint.dial(b.id, &b.at)).await.unwrap();
    assert_ne!(again.link.binding(), dialed.link.binding());
    let answering = echoes(taken.inbound);
    let answer = call(&dialed.link, Bytes::from_static(b"{}")).await;
    assert_eq!(&answer[..], b"{}");
    dialed.link.close(LinkClose::Replaced);
    let gone = soon(answering).await.unwrap();
    assert_eq!(gone, StreamFailure::LinkClosed(LinkClose::Replaced));
}

/// FED-006: an unpinned node gets no link, and pinned ones still do.
#[tokio::test]
async fn an_unknown_node_is_rejected_and_the_acceptor_continues() {
    let (a, mut b) = two();
    let stranger = Node::new(3);
    stranger.pins(&[b.id]);
    for _ in 0..3 {
        let refused = soon(stranger.endpoint.dial(b.id, &b.at)).await.unwrap_err();
        // During the handshake: nothing that it sent was read.
        let not_pinned = StreamFailure::LinkClosed(LinkClose::NotPinned);
        assert_eq!(refused, LinkError::HelloFailed(not_pinned));
    }
    assert!(b.accepted.try_recv().is_err());
    assert_eq!(b.endpoint.links(), 0);
    let _link = soon(a.endpoint.dial(b.id, &b.at)).await.unwrap();
    assert_eq!(b.link().await.link.peer(), a.id);
}

/// FED-006: another node at the dialed address, pinned or not.
#[tokio::test]
async fn only_the_dialed_node_is_accepted() {
    let (a, b) = two();
    let other = Node::new(3);
    a.pins(&[b.id, other.id]);
    other.pins(&[a.id]);
    let refused = soon(a.endpoint.dial(b.id, &other.at)).await.unwrap_err();
    let (dialed, found) = (b.id, other.id);
    assert_eq!(
        refused,
        LinkError::Peer(PeerError::OtherNode { dialed, found })
    );
    a.pins(&[other.id]);
    let refused = soon(a.endpoint.dial(b.id, &b.at)).await.unwrap_err();
    assert_eq!(refused, LinkError::Peer(PeerError::NotPinned(b.id)));
    let refused = soon(a.endpoint.dial(a.id, &a.at)).await.unwrap_err();
    assert_eq!(refused, LinkError::Itself);
}

/// Presents the key of one node and signs with that of another, from a certain signature on.
#[derive(Debug)]
struct Pretender {
    shown: Key,
    own: Key,
    honest: AtomicUsize,
}

impl NodeSigner for Pretender {
    fn public_key(&self) -> [u8; 32] {
        self.shown.public_key()
    }

    fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        let less = |left: usize| left.checked_sub(1);
        let order = Ordering::Relaxed;
        match self.honest.fetch_update(order, order, less) {
            Ok(_) => self.shown.sign(bytes),
            Err(_) => self.own.sign(bytes),
        }
    }
}

fn pretender(honest: usize) -> Node {
    let pretender = Pretender {
        shown: Key::new(2),
        own: Key::new(3),
        honest: AtomicUsize::new(honest),
    };
    Node::with(Arc::new(pretender), hello())
}

/// FED-006: the key in the certificate did not sign it.
#[tokio::test]
async fn a_certificate_that_its_key_did_not_sign_is_rejected_by_both_sides() {
    let a = Node::new(1);
    let false_b = pretender(0);
    assert_eq!(false_b.id, id(2));
    a.pins(&[id(2)]);
    false_b.pins(&[a.id]);
    let refused = soon(a.endpoint.dial(id(2), &false_b.at)).await.unwrap_err();
    let fault = PeerError::Certificate(NodeCertificateError::Signature);
    assert_eq!(refused, LinkError::Peer(fault));
    let refused = soon(false_b.endpoint.dial(a.id, &a.at)).await.unwrap_err();
    assert!(matches!(refused, LinkError::HelloFailed(_)), "{refused}");
    assert_eq!(a.endpoint.links(), 0);
}

/// FED-006: every dialing node has received a node's certificate; without its key it is useless.
#[tokio::test]
async fn a_copied_certificate_is_useless() {
    let mut a = Node::new(1);
    let false_b = pretender(1);
    a.pins(&[id(2)]);
    false_b.pins(&[a.id]);
    let refused = soon(a.endpoint.dial(id(2), &false_b.at)).await.unwrap_err();
    assert!(matches!(refused, LinkError::Unreachable(..)), "{refused}");
    let refused = soon(false_b.endpoint.dial(a.id, &a.at)).await.unwrap_err();
    assert!(matches!(refused, LinkError::HelloFailed(_)), "{refused}");
    assert!(a.accepted.try_recv().is_err());
}

/// FED-007: no session is resumed: its peer would not be verified again.
#[tokio::test]
async fn no_link_starts_before_its_handshake_is_complete() {
    let (a, b) = two();
    let core = a.endpoint.core();
    let (crypto, _findings) = core.handshakes.client_config(b.id, LinkPurpose::Link);
    let config = ClientConfig::new(Arc::new(crypto));
    let to = b.at.parse().unwrap();
    for _ in 0..2 {
        let connecting = core.socket.connect_with(config.clone(), to, "node.invalid");
        let connecting = match connecting.unwrap().into_0rtt() {
            Ok(_) => panic!("data leave before the peer is known"),
            Err(connecting) => connecting,
        };
        let connection = soon(connecting).await.unwrap();
        // A ticket would arrive with the first data of the server.
        let (mut send, mut receive) = soon(connection.open_bi()).await.unwrap();
        send.write_all(&[9; 64]).await.unwrap();
        let _end = soon(receive.read_to_end(100)).await;
    }
}

/// FED-020: when the pins are changed, the links of other nodes are closed, and calls with them.
#[tokio::test]
async fn a_revoked_node_loses_its_links_at_once() {
    let (a, dialed, mut taken, b) = linked().await;
    let running = super::scene::header("tools/call");
    let until = super::scene::long();
    let params = Bytes::from_static(b"{}");
    let (mut input, _output) = dialed.link.open_call(running, params, until).await.unwrap();
    let _call = super::scene::inbound(&mut taken.inbound).await;
    b.pins(&[]);
    let revoked = StreamFailure::LinkClosed(LinkClose::Revoked);
    assert_eq!(soon(dialed.link.wait_closed()).await.0, revoked);
    assert_eq!(soon(input.next()).await, Err(revoked));
    assert!(taken.link.end_reason().is_some());
    let refused = soon(a.endpoint.dial(b.id, &b.at)).await.unwrap_err();
    assert!(matches!(refused, LinkError::HelloFailed(_)), "{refused}");
    b.pins(&[a.id]);
    assert!(soon(a.endpoint.dial(b.id, &b.at)).await.is_ok());
}

#[tokio::test]
async fn nodes_without_a_common_version_report_it() {
    let mut next = hello();
    next.versions = WireVersions {
        lowest: 2,
        highest: 3,
    };
    let (a, b) = (Node::new(1), Node::with(Arc::new(Key::new(2)), next));
    a.pins(&[b.id]);
    b.pins(&[a.id]);
    let refused = soon(a.endpoint.dial(b.id, &b.at)).await.unwrap_err();
    assert!(matches!(refused, LinkError::Version(_)), "{refused}");
    assert!(refused.to_string().contains("2 to 3"), "{refused}");
    let refused = soon(b.endpoint.dial(a.id, &a.at)).await.unwrap_err();
    assert!(matches!(refused, LinkError::Version(_)), "{refused}");
    assert_eq!((a.endpoint.links(), b.endpoint.links()), (0, 0));
}

/// FED-059: a kernel with a deliberately changed wire links with a current one.
#[tokio::test]
async fn a_changed_wire_negotiates_the_common_version() {
    let mut next = hello();
    next.versions = WireVersions {
        lowest: 1,
        highest: 2,
    };
    next.features = WireFeatures::CALLS | WireFeatures::WIRE_NEXT;
    next.life = LifeId([7; 16]);
    let (a, mut b) = (Node::new(1), Node::with(Arc::new(Key::new(2)), next));
    a.pins(&[b.id]);
    b.pins(&[a.id]);
    let dialed = soon(a.endpoint.dial(b.id, &b.at)).await.unwrap();
    let taken = b.link().await;
    for agreed in [dialed.link.negotiated(), taken.link.negotiated()] {
        assert_eq!((agreed.version, agreed.features), (1, WireFeatures::CALLS));
    }
    assert!(
        dialed
            .link
            .hello()
            .features
            .contains(WireFeatures::WIRE_NEXT)
    );
}

#[tokio::test]
async fn the_links_of_a_node_are_bounded() {
    let (a, b) = two();
    let mut held = Vec::new();
    for _ in 0..LINKS_PER_NODE {
        held.push(soon(a.endpoint.dial(b.id, &b.at)).await.unwrap());
    }
    let refused = soon(a.endpoint.dial(b.id, &b.at)).await.unwrap_err();
    let told = LinkError::HelloFailed(StreamFailure::LinkClosed(LinkClose::TooMany));
    let own = LinkError::LinkRejected(LinkClose::TooMany);
    assert!(refused == told || refused == own, "{refused}");
    drop(held.pop());
    // The slot is free once the peer knows, too.
    soon(async { while a.endpoint.dial(b.id, &b.at).await.is_err() {} }).await;
}

/// A name is resolved at each dial: earlier addresses are not reused.
#[tokio::test]
async fn a_name_is_resolved_each_time() {
    let (a, b) = two();
    let port = b.at.rsplit(':').next().unwrap();
    let refused = soon(a.endpoint.dial(b.id, "nowhere.invalid:1"))
        .await
        .unwrap_err();
    assert!(matches!(refused, LinkError::Unresolved(..)), "{refused}");
    for _ in 0..2 {
        let link = soon(a.endpoint.dial(b.id, &format!("localhost:{port}"))).await;
        assert_eq!(link.unwrap().link.address().unwrap().to_string(), b.at);
    }
}

/// FED-009: a peer that cannot receive our packets gets less than it sends, and takes no handshake slot.
#[tokio::test]
async fn answers_to_unverified_addresses_are_limited() {
    let (a, b) = two();
    let wire = BadWire::to(&b.at, Faults::default()).await;
    wire.counts.deaf.store(true, Ordering::Relaxed);
    let refused = soon(a.endpoint.dial(b.id, &wire.at)).await.unwrap_err();
    assert!(matches!(refused, LinkError::Unreachable(..)), "{refused}");
    let (up, down) = (
        wire.counts.up.load(Ordering::Relaxed),
        wire.counts.down.load(Ordering::Relaxed),
    );
    assert!(up >= 1200 && down > 0, "{up} bytes and {down} in answer");
    assert!(down <= up, "{down} bytes in answer to {up}");
    assert_eq!(b.endpoint.connections(), 0);
}

/// FED-008: handshakes that never end take a bounded number of slots.
#[tokio::test]
async fn handshakes_of_one_address_are_bounded() {
    let key: Arc<dyn NodeSigner> = Arc::new(Key::new(2));
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap().to_string();
    let config = LinkConfig {
        identity: NodeIdentity::new(key).unwrap(),
        hello: Arc::new(hello),
        memory: mgp_sync::Credit::new(1 << 20),
        relay: true,
    };
    let (endpoint, mut acceptor) = LinkEndpoint::new(socket, config).unwrap();
    endpoint.set_pinned_nodes([id(1)].into());
    let a = Node::new(1);
    a.pins(&[id(2)]);
    let mut dials = tokio::task::JoinSet::new();
    for _ in 0..24 {
        // Its answer to the retry passes, its later packets do not.
        let wire = BadWire::to(&at, Faults::default()).await;
        let counts = Arc::clone(&wire.counts);
        let endpoint = a.endpoint.clone();
        dials.spawn(async move {
            let wire = wire;
            let cutting = async {
                while counts.up_packets.load(Ordering::Relaxed) < 2 {
                    tokio::task::yield_now().await;
                }
                counts.cut.store(true, Ordering::Relaxed);
                std::future::pending().await
            };
            tokio::select! {
                () = cutting => {}
                _refused = endpoint.dial(id(2), &wire.at) => {}
            }
        });
    }
    let most = most_under_way(&mut acceptor, &mut dials).await;
    assert!((1..=8).contains(&most) && most < MAX_HANDSHAKES, "{most}");
    // These slots are free again.
    let (taken, mut linked) = tokio::sync::mpsc::unbounded_channel();
    let accepting = tokio::spawn(async move {
        while let Some(one) = acceptor.next().await {
            let _gone = taken.send(one);
        }
    });
    soon(async { while a.endpoint.dial(id(2), &at).await.is_err() {} }).await;
    assert!(soon(linked.recv()).await.is_some());
    accepting.abort();
}

async fn most_under_way(acceptor: &mut Acceptor, dials: &mut tokio::task::JoinSet<()>) -> usize {
    let mut most = 0;
    loop {
        tokio::select! {
            _accepted = acceptor.next() => {}
            ended = dials.join_next() => if ended.is_none() {
                return most;
            },
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
        most = most.max(acceptor.pending_handshakes());
    }
}
