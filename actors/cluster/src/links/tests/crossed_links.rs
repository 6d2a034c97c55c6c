//! Tests of two links to one node.

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_transports::quic::{LinkGone, StreamFailure};

use super::scene::{BarePeer, LinkNode, keys, within_deadline};

fn replaced() -> LinkGone {
    LinkGone(StreamFailure::LinkClosed(LinkClose::Replaced))
}

/// The link of the smaller id is kept; the other one drains, and is then closed.
#[tokio::test]
async fn link_dialed_by_the_smaller_node_is_kept() {
    let [small, large] = keys();
    let mut node = LinkNode::start(&large).await;
    let mut peer = BarePeer::new(&small, &large);
    node.pin(&[&small]).await;
    node.links.add_hint(small.node_id(), peer.at);
    let first = peer.accepted().await;
    assert!(node.up().await.link.is_dialer());
    let second = peer.dial(&node).await;
    let up = node.up().await;
    assert!(!up.link.is_dialer());
    assert_eq!(up.link.binding(), second.link.binding());
    assert!(
        node.links
            .link(small.node_id())
            .is_some_and(|link| link.link.is_same_link(&up.link))
    );
    assert_eq!(within_deadline(first.link.wait_closed()).await, replaced());
    assert!(second.link.end_reason().is_none());
}

#[tokio::test]
async fn losing_link_is_drained() {
    let [small, large] = keys();
    let mut node = LinkNode::start(&small).await;
    let mut peer = BarePeer::new(&large, &small);
    node.pin(&[&large]).await;
    node.links.add_hint(large.node_id(), peer.at);
    let first = peer.accepted().await;
    let kept = node.up().await;
    let second = peer.dial(&node).await;
    assert_eq!(within_deadline(second.link.wait_closed()).await, replaced());
    assert!(first.link.end_reason().is_none());
    assert!(
        node.links
            .link(large.node_id())
            .is_some_and(|link| link.link.is_same_link(&kept.link))
    );
}

/// The other node chose the link that drains here: it becomes the current one again.
#[tokio::test]
async fn draining_link_becomes_current_when_the_kept_one_is_lost() {
    let [small, large] = keys();
    let mut node = LinkNode::start(&small).await;
    let mut peer = BarePeer::new(&large, &small);
    node.pin(&[&large]).await;
    node.links.add_hint(large.node_id(), peer.at);
    let first = peer.accepted().await;
    node.up().await;
    let second = peer.dial(&node).await;
    // Requested over the second link, so that it was handled.
    let mut packets = second;
    within_deadline(packets.control_input.next()).await.unwrap();
    first.link.close(LinkClose::Done);
    let goes_on = node.up().await;
    assert_eq!(goes_on.link.binding(), packets.link.binding());
}

/// A restarted peer is accepted at once, whichever node dials.
#[tokio::test]
async fn restarted_peer_replaces_its_earlier_instance() {
    let [small, large] = keys();
    let mut node = LinkNode::start(&small).await;
    node.pin(&[&large]).await;
    let mut before = LinkNode::with_instance(&large, super::scene::ANYWHERE, 1).await;
    before.pin(&[&small]).await;
    node.links.add_hint(large.node_id(), before.at);
    let first = node.up().await;
    before.up().await;
    // The port is another one; the earlier instance sends nothing more.
    let after = LinkNode::with_instance(&large, super::scene::ANYWHERE, 2).await;
    after.pin(&[&small]).await;
    after.links.add_hint(small.node_id(), node.at);
    let second = node.up().await;
    assert_ne!(first.link.hello().life, second.link.hello().life);
    assert_eq!(before.down().await, (small.node_id(), replaced()));
}
