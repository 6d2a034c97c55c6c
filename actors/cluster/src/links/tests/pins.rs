//! Tests of the nodes that may have links.

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_transports::quic::{LinkGone, StreamFailure};

use super::scene::{LinkNode, keys, linked_pair, within_deadline};

/// FED-020: a removed node has no link when the change is acknowledged.
#[tokio::test]
async fn removed_node_is_disconnected_before_acknowledgement() {
    let (mut a, mut b) = linked_pair().await;
    let link = a.links.link(b.key.node_id()).unwrap();
    let table = a.links.parts.table.load();
    a.pin(&[]).await;
    assert!(link.link.end_reason().is_some());
    assert!(a.links.linked_nodes().is_empty() && table.replaced.is_cancelled());
    let revoked = LinkGone(StreamFailure::LinkClosed(LinkClose::Revoked));
    assert_eq!(a.down().await, (b.key.node_id(), revoked.clone()));
    assert_eq!(b.down().await, (a.key.node_id(), revoked));
    // It dials again without success, and reports where to look.
    within_deadline(async {
        loop {
            let status = b.links.status().await.unwrap();
            let trouble = status[0].problem.clone().unwrap_or_default();
            if status[0].linked.is_none() && trouble.contains("revoked there") {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(a.links.linked_nodes().is_empty());
}

/// A node that is allowed again is dialed again.
#[tokio::test]
async fn node_that_is_pinned_again_is_linked_again() {
    let (mut a, b) = linked_pair().await;
    a.pin(&[]).await;
    assert_eq!(a.down().await.0, b.key.node_id());
    a.pin(&[&b.key]).await;
    // Its addresses are forgotten: the other node dials.
    a.up().await;
}

/// Only allowed nodes are linked.
#[tokio::test]
async fn unknown_node_gets_no_link() {
    let [a, b] = keys();
    let (mut a, b) = (LinkNode::start(&a).await, LinkNode::start(&b).await);
    b.pin(&[&a.key]).await;
    a.links.add_hint(b.key.node_id(), b.at);
    b.links.add_hint(a.key.node_id(), a.at);
    within_deadline(async {
        while b.links.status().await.unwrap()[0].problem.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(a.links.status().await.unwrap().is_empty() && a.links.linked_nodes().is_empty());
    assert!(a.events.try_recv().is_err());
}
