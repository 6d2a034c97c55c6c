//! Two links to one node.

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_transports::quic::{LinkGone, StreamFailure};

use super::scene::{BarePeer, LinkNode, keys, soon};

fn replaced() -> LinkGone {
    LinkGone(StreamFailure::LinkClosed(LinkClose::Replaced))
}

/// The one of the smaller id stays; the other one still works for a while, and is then closed.
#[tokio::test]
async fn of_two_links_the_one_that_the_smaller_node_dialed_stays() {
    let [small, large] = keys();
    let mut node = LinkNode::start(&large).await;
    let mut peer = BarePeer::new(&small, &large);
    node.pin(&[&small]).await;
    node.links.add_hint(small.node_id(), peer.at);
    let first = peer.accepted().await;
    assert!(node.up().await.link.is_dialer());
    let second = peer.dial(&node).await;
    let taken = node.up().await;
    assert!(!taken.link.is_dialer());
    assert_eq!(taken.link.binding(), second.link.binding());
    assert!(
        node.links
            .link(small.node_id())
            .is_some_and(|link| link.link.is_same_link(&taken.link))
    );
    assert_eq!(soon(first.link.wait_closed()).await, replaced());
    assert!(second.link.end_reason().is_none());
}

#[tokio::test]
async fn a_link_that_loses_against_the_one_there_is_drained() {
    let [small, large] = keys();
    let mut node = LinkNode::start(&small).await;
    let mut peer = BarePeer::new(&large, &small);
    node.pin(&[&large]).await;
    node.links.add_hint(large.node_id(), peer.at);
    let first = peer.accepted().await;
    let kept = node.up().await;
    let second = peer.dial(&node).await;
    assert_eq!(soon(second.link.wait_closed()).await, replaced());
    assert!(first.link.end_reason().is_none());
    assert!(
        node.links
            .link(large.node_id())
            .is_some_and(|link| link.link.is_same_link(&kept.link))
    );
}

/// The other end kept the link that is drained here: it takes its place again.
#[tokio::test]
async fn where_the_link_that_was_kept_is_lost_the_other_one_goes_on() {
    let [small, large] = keys();
    let mut node = LinkNode::start(&small).await;
    let mut peer = BarePeer::new(&large, &small);
    node.pin(&[&large]).await;
    node.links.add_hint(large.node_id(), peer.at);
    let first = peer.accepted().await;
    node.up().await;
    let second = peer.dial(&node).await;
    // Asked over the second link, so that it was looked at.
    let mut packets = second;
    soon(packets.control_input.next()).await.unwrap();
    first.link.close(LinkClose::Done);
    let goes_on = node.up().await;
    assert_eq!(goes_on.link.binding(), packets.link.binding());
}

/// A kernel that was killed and is back is believed at once, whoever dials.
#[tokio::test]
async fn another_life_of_the_peer_takes_the_place_of_the_one_before() {
    let [small, large] = keys();
    let mut node = LinkNode::start(&small).await;
    node.pin(&[&large]).await;
    let mut before = LinkNode::with(&large, super::scene::ANYWHERE, 1).await;
    before.pin(&[&small]).await;
    node.links.add_hint(large.node_id(), before.at);
    let first = node.up().await;
    before.up().await;
    // The port is another one; the life before says no word.
    let after = LinkNode::with(&large, super::scene::ANYWHERE, 2).await;
    after.pin(&[&small]).await;
    after.links.add_hint(small.node_id(), node.at);
    let second = node.up().await;
    assert_ne!(first.link.hello().life, second.link.hello().life);
    assert_eq!(before.down().await, (small.node_id(), replaced()));
}
