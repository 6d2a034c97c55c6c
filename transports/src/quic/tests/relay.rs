//! Links through a third node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use mgp_protocol::federation::frames::{PacketHeader, RelayRefusal};
use mgp_protocol::federation::hello::{Hello, WireFeatures};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::super::limits::LONG_PACKETS;
use super::super::packets;
use super::super::{IDLE, LinkError, NewLink, NodeLink, PacketInput, StreamFailure};
use super::scene::{Key, Node, call, echoes, header, hello, long, soon};

/// A marker to search for in the packets that a relay sees.
const SECRET: &[u8] = b"a payload that no relay may read";

fn node(n: u8, relay: bool) -> Node {
    let hello = Hello {
        features: WireFeatures::CALLS | WireFeatures::RELAY,
        ..hello()
    };
    Node::with_relay(Arc::new(Key::new(n)), hello, relay)
}

/// Two nodes and a third one with links to both; each knows the others. `relay` enables the third one as a relay.
async fn between(relay: bool) -> (Node, Node, Node) {
    let nodes = [node(1, true), node(2, true), node(3, relay)];
    let ids = [nodes[0].id, nodes[1].id, nodes[2].id];
    for node in &nodes {
        node.pins(&ids);
    }
    let [a, b, middle] = nodes;
    (a, b, middle)
}

/// A link to the node in the middle, from both ends.
async fn link(end: &Node, middle: &mut Node) -> (NewLink, NewLink) {
    let dialed = soon(end.endpoint.dial(middle.id, &middle.at)).await;
    (dialed.unwrap(), middle.link().await)
}

/// Reads the packets of a link until it ends, as its owner does.
fn reads(link: NewLink) -> (NodeLink, JoinHandle<()>) {
    let NewLink {
        link, mut packets, ..
    } = link;
    let held = link.clone();
    let reading = tokio::spawn(async move {
        while packets.next().await.is_ok() {}
        drop(held);
    });
    (link, reading)
}

/// Calls, lists and packets pass in both directions, and the link is not reported as direct.
#[tokio::test]
async fn two_nodes_link_through_a_third_one() {
    let (a, mut b, mut middle) = between(true).await;
    let (to_a, of_a) = link(&a, &mut middle).await;
    let (to_b, of_b) = link(&b, &mut middle).await;
    let _reading = [to_a, of_a, to_b, of_b].map(reads);
    let dialed = soon(a.endpoint.dial_through(b.id, middle.id))
        .await
        .unwrap();
    let mut taken = b.link().await;
    for (new, peer) in [(&dialed, b.id), (&taken, a.id)] {
        assert_eq!(new.link.peer(), peer);
        assert_eq!(new.link.relay(), Some(middle.id));
        assert_eq!(new.link.address(), None);
    }
    assert_eq!(dialed.link.binding(), taken.link.binding());
    dialed
        .link
        .send_packet(Bytes::from_static(b"membership"))
        .await;
    assert_eq!(soon(taken.packets.next()).await.unwrap(), "membership");
    let answering = echoes(taken.inbound);
    let large = Bytes::from(vec![b'7'; 2 << 20]);
    assert_eq!(call(&dialed.link, large.clone()).await, large);
    let pairs = middle.endpoint.relayed_pairs();
    let [one, two] = [a.id.min(b.id), a.id.max(b.id)];
    assert_eq!(pairs.len(), 1);
    assert_eq!(pairs[0].nodes, [one, two]);
    assert!(pairs[0].bytes > 2 * large.len() as u64);
    assert_eq!(a.endpoint.relayed_pairs(), []);
    answering.abort();
}

#[tokio::test]
async fn a_relay_that_is_disabled_or_has_no_link_refuses_at_once() {
    for (relay, linked, why) in [
        (false, true, RelayRefusal::Off),
        (true, false, RelayRefusal::Unlinked),
    ] {
        let (a, b, mut middle) = between(relay).await;
        let (to_a, of_a) = link(&a, &mut middle).await;
        let _reading = [to_a, of_a].map(reads);
        let mut held = Vec::new();
        if linked {
            let (to_b, of_b) = link(&b, &mut middle).await;
            held.extend([to_b, of_b].map(reads));
        }
        let refused = tokio::time::timeout(IDLE, a.endpoint.dial_through(b.id, middle.id));
        let relay = middle.id;
        assert_eq!(
            refused.await.unwrap().unwrap_err(),
            LinkError::RelayRefused { relay, why }
        );
        assert_eq!(middle.endpoint.relayed_pairs(), []);
    }
}

/// No packet takes two relays: a relayed link relays nothing.
#[tokio::test]
async fn a_relayed_link_relays_nothing() {
    let (a, mut b, mut middle) = between(true).await;
    let far = node(4, true);
    for node in [&a, &b, &middle, &far] {
        node.pins(&[a.id, b.id, middle.id, far.id]);
    }
    let (to_a, of_a) = link(&a, &mut middle).await;
    let (to_b, of_b) = link(&b, &mut middle).await;
    let (to_far, of_far) = link(&far, &mut b).await;
    let _reading = [to_a, of_a, to_b, of_b, to_far, of_far].map(reads);
    let dialed = soon(a.endpoint.dial_through(b.id, middle.id))
        .await
        .unwrap();
    let mut taken = b.link().await;
    let refused = soon(a.endpoint.dial_through(far.id, b.id)).await;
    assert!(matches!(refused, Err(LinkError::RelaySilent { .. })));
    // Nor by hand.
    let packet = PacketHeader::RelayTo(far.id).to_packet(&[0; 100]);
    dialed.link.connection().send_datagram(packet).unwrap();
    dialed
        .link
        .send_packet(Bytes::from_static(b"after it"))
        .await;
    assert_eq!(soon(taken.packets.next()).await.unwrap(), "after it");
    assert_eq!(b.endpoint.relayed_pairs(), []);
}

/// A malicious relay that inspects and changes packets.
struct Tamperer {
    tampers: Arc<AtomicBool>,
    seen: mpsc::UnboundedReceiver<Bytes>,
    _passing: [JoinHandle<()>; 2],
}

impl Tamperer {
    /// Forwards packets between two links by hand.
    fn between(of_a: &NewLink, of_b: &NewLink) -> Self {
        let tampers = Arc::new(AtomicBool::new(false));
        let (see, seen) = mpsc::unbounded_channel();
        let pass = |from: &NodeLink, to: &NodeLink| {
            let (from, to) = (from.clone(), to.clone());
            let (tampers, see) = (Arc::clone(&tampers), see.clone());
            tokio::spawn(async move {
                let mut packets = PacketInput::new(from.connection().clone(), None);
                let turns = Arc::new(Semaphore::new(LONG_PACKETS));
                while let Ok(packet) = packets.next().await {
                    let Some((PacketHeader::RelayTo(_), payload)) = PacketHeader::parse(&packet)
                    else {
                        continue;
                    };
                    let _seen = see.send(payload.clone());
                    let mut payload = BytesMut::from(&payload[..]);
                    if let (true, Some(last)) =
                        (tampers.load(Ordering::Relaxed), payload.last_mut())
                    {
                        *last ^= 1;
                    }
                    let packet = PacketHeader::RelayedFrom(from.peer()).to_packet(&payload);
                    let _fate = packets::send(to.connection(), &turns, packet).await;
                }
            })
        };
        let passing = [pass(&of_a.link, &of_b.link), pass(&of_b.link, &of_a.link)];
        Self {
            tampers,
            seen,
            _passing: passing,
        }
    }

    /// Whether the secret was readable in the relayed packets.
    fn saw_secret(&mut self) -> (usize, bool) {
        let (mut packets, mut saw) = (0, false);
        while let Ok(packet) = self.seen.try_recv() {
            packets += 1;
            saw |= packet.windows(SECRET.len()).any(|part| part == SECRET);
        }
        (packets, saw)
    }
}

/// A relay cannot read the traffic, and packets that it changes or forges end no other link.
#[tokio::test]
async fn a_relay_cannot_read_or_forge_packets() {
    let (a, mut b, mut middle) = between(true).await;
    let (to_a, of_a) = link(&a, &mut middle).await;
    let (to_b, of_b) = link(&b, &mut middle).await;
    let mut tamperer = Tamperer::between(&of_a, &of_b);
    let direct = [reads(to_a), reads(to_b)];
    let dialed = soon(a.endpoint.dial_through(b.id, middle.id))
        .await
        .unwrap();
    let taken = b.link().await;
    let answering = echoes(taken.inbound);
    for _ in 0..20 {
        let answer = call(&dialed.link, Bytes::from_static(SECRET)).await;
        assert_eq!(answer, SECRET);
    }
    let (packets, saw) = tamperer.saw_secret();
    assert!(packets > 40 && !saw, "{packets} packets");
    // A forged packet does not belong to the link.
    let forged = PacketHeader::RelayedFrom(a.id).to_packet(&[0x45; 200]);
    of_b.link.connection().send_datagram(forged).unwrap();
    let answer = call(&dialed.link, Bytes::from_static(SECRET)).await;
    assert_eq!(answer, SECRET);

    tamperer.tampers.store(true, Ordering::Relaxed);
    let begun = dialed
        .link
        .open_call(header("tools/call"), Bytes::from_static(SECRET), long());
    let under_way = begun.await;
    for link in [&dialed.link, &taken.link] {
        let gone = soon(link.wait_closed()).await.0;
        assert!(
            matches!(
                gone,
                StreamFailure::LinkLost(_) | StreamFailure::LinkClosed(_)
            ),
            "{gone}"
        );
    }
    if let Ok((mut input, _output)) = under_way {
        assert!(
            soon(input.next()).await.is_err(),
            "nothing changed got through"
        );
    }
    for (link, _) in &direct {
        assert!(link.end_reason().is_none(), "the link to the relay lives");
    }
    answering.abort();
}
