//! Links with an unknown node.

use bytes::Bytes;
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::frames::PAIRING_BODY;

use super::super::limits::PAIRINGS_PER_ADDRESS;
use super::super::{LinkError, MAX_PAIRINGS, StreamFailure, WriteFailure};
use super::scene::{Node, soon};

#[tokio::test]
async fn an_unknown_node_is_admitted_while_a_ticket_is_open() {
    let (a, mut b) = (Node::new(1), Node::new(2));
    let ticket = b.endpoint.open_pairing();
    let mut joining = soon(a.endpoint.dial_pairing(b.id, &b.at)).await.unwrap();
    joining.send(Bytes::from_static(b"proof")).await.unwrap();
    let mut inviting = b.pairing().await;
    assert_eq!((inviting.peer(), joining.peer()), (a.id, b.id));
    assert_eq!(inviting.binding(), joining.binding());
    let heard = soon(inviting.next()).await.unwrap();
    assert_eq!(heard.as_deref(), Some(&b"proof"[..]));
    inviting.send(Bytes::from_static(b"welcome")).await.unwrap();
    let heard = soon(joining.next()).await.unwrap();
    assert_eq!(heard.as_deref(), Some(&b"welcome"[..]));
    let long = Bytes::from(vec![0; PAIRING_BODY + 1]);
    let refused = joining.send(long).await;
    assert!(matches!(refused, Err(WriteFailure::TooLarge { .. })));
    // The ticket is used: the links of other guests are closed.
    drop(ticket);
    let over = Err(StreamFailure::LinkClosed(LinkClose::PairingOver));
    assert_eq!(soon(joining.next()).await, over);
}

/// A ticket allows only pairing, and is required for it.
#[tokio::test]
async fn a_ticket_allows_no_link_and_pairing_requires_one() {
    let (a, mut b) = (Node::new(1), Node::new(2));
    a.pins(&[b.id]);
    let refused = soon(async {
        let mut joining = a.endpoint.dial_pairing(b.id, &b.at).await?;
        joining.next().await.map_err(LinkError::from)
    });
    assert!(matches!(refused.await, Err(LinkError::HelloFailed(_))));
    let _ticket = b.endpoint.open_pairing();
    let refused = soon(a.endpoint.dial(b.id, &b.at)).await.unwrap_err();
    let not_pinned = StreamFailure::LinkClosed(LinkClose::NotPinned);
    assert_eq!(refused, LinkError::HelloFailed(not_pinned));
    assert!(b.accepted.try_recv().is_err());
    assert_eq!(b.endpoint.links(), 0);
}

/// The node that made the ticket is dialed, and no other node can answer instead.
#[tokio::test]
async fn a_pairing_is_with_the_node_of_the_ticket() {
    let (a, b, other) = (Node::new(1), Node::new(2), Node::new(3));
    let _ticket = other.endpoint.open_pairing();
    let refused = soon(a.endpoint.dial_pairing(b.id, &other.at))
        .await
        .unwrap_err();
    assert!(matches!(refused, LinkError::Peer(_)), "{refused}");
}

/// A machine without a proven ticket gets few slots.
#[tokio::test]
async fn one_machine_does_not_take_all_pairing_slots() {
    let mut b = Node::new(2);
    let _ticket = b.endpoint.open_pairing();
    let mut held = Vec::new();
    for n in 0..PAIRINGS_PER_ADDRESS {
        let a = Node::new(10 + u8::try_from(n).unwrap());
        let mut joining = soon(a.endpoint.dial_pairing(b.id, &b.at)).await.unwrap();
        joining.send(Bytes::from_static(b"proof")).await.unwrap();
        held.push((b.pairing().await, joining, a));
    }
    let late = Node::new(9);
    let mut joining = soon(late.endpoint.dial_pairing(b.id, &b.at)).await.unwrap();
    let refused = Err(StreamFailure::LinkClosed(LinkClose::TooMany));
    assert_eq!(soon(joining.next()).await, refused);
    held[0].0.mark_proven();
    let mut joining = soon(late.endpoint.dial_pairing(b.id, &b.at)).await.unwrap();
    joining.send(Bytes::from_static(b"proof")).await.unwrap();
    assert_eq!(b.pairing().await.peer(), late.id);
}

#[tokio::test]
async fn concurrent_pairings_are_bounded() {
    let mut b = Node::new(2);
    let _ticket = b.endpoint.open_pairing();
    let mut held = Vec::new();
    for n in 0..MAX_PAIRINGS {
        let a = Node::new(10 + u8::try_from(n).unwrap());
        let mut joining = soon(a.endpoint.dial_pairing(b.id, &b.at)).await.unwrap();
        joining.send(Bytes::from_static(b"proof")).await.unwrap();
        let inviting = b.pairing().await;
        inviting.mark_proven();
        held.push((inviting, joining, a));
    }
    let late = Node::new(9);
    let mut joining = soon(late.endpoint.dial_pairing(b.id, &b.at)).await.unwrap();
    let refused = Err(StreamFailure::LinkClosed(LinkClose::TooMany));
    assert_eq!(soon(joining.next()).await, refused);
    held.pop();
    let mut joining = soon(late.endpoint.dial_pairing(b.id, &b.at)).await.unwrap();
    joining.send(Bytes::from_static(b"proof")).await.unwrap();
    assert_eq!(b.pairing().await.peer(), late.id);
}
