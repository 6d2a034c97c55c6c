//! Tests of nodes that reach each other only through a third one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use mgp_protocol::federation::close_codes::LinkClose;

use super::super::{LinkStatus, PeerLink};
use super::scene::{LinkNode, keys, within_deadline};

/// Creates a node for IPv4 only, one for IPv6 only, and one for both; the first two know the address of the
/// third. `relay` enables relaying at the third.
async fn apart(relay: bool) -> (LinkNode, LinkNode, LinkNode) {
    let [a, b, middle] = keys();
    let at = |ip: IpAddr| SocketAddr::new(ip, 0);
    let both = LinkNode::with_relay(&middle, at(Ipv6Addr::UNSPECIFIED.into()), 1, relay).await;
    let a = LinkNode::with_instance(&a, at(Ipv4Addr::LOCALHOST.into()), 1).await;
    let b = LinkNode::with_instance(&b, at(Ipv6Addr::LOCALHOST.into()), 1).await;
    for node in [&a, &b, &both] {
        node.pin(&[&a.key, &b.key, &both.key]).await;
    }
    for (node, ip) in [
        (&a, IpAddr::from(Ipv4Addr::LOCALHOST)),
        (&b, Ipv6Addr::LOCALHOST.into()),
    ] {
        let there = SocketAddr::new(ip, both.at.port());
        node.links.add_hint(both.key.node_id(), there);
    }
    (a, b, both)
}

/// Waits for the link to the other node.
async fn up(node: &mut LinkNode, other: &LinkNode) -> Arc<PeerLink> {
    loop {
        let link = node.up().await;
        if link.link.peer() == other.key.node_id() {
            return link;
        }
    }
}

async fn status(node: &LinkNode, other: &LinkNode) -> LinkStatus {
    let all = node.links.status().await.unwrap();
    let other = other.key.node_id();
    all.into_iter().find(|status| status.node == other).unwrap()
}

/// They link without an address of each other, report the relay, and continue to try a direct path;
/// membership considers both alive. The relay reports the pair.
#[tokio::test]
async fn nodes_that_reach_only_a_third_one_link_through_it() {
    let (mut a, mut b, both) = apart(true).await;
    let relay = Some(both.key.node_id());
    let of_a = up(&mut a, &b).await;
    let of_b = up(&mut b, &a).await;
    assert_eq!(of_a.link.relay(), relay);
    assert_eq!(of_b.link.relay(), relay);
    within_deadline(async {
        loop {
            let status = status(&a, &b).await;
            let linked = status.linked.expect("it stays linked");
            assert_eq!((linked.address, linked.relay), (None, relay));
            // The direct path was tried meanwhile.
            if status.present && status.problem.is_some() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    let pairs = both.links.relayed_pairs();
    assert_eq!(pairs[0].nodes, [a.key.node_id(), b.key.node_id()]);
    assert!(pairs[0].bytes > 0);
    both.links.close(LinkClose::Done).await.unwrap();
    let mut lost = [a.down().await.0, a.down().await.0];
    lost.sort_unstable();
    assert_eq!(lost, [b.key.node_id(), both.key.node_id()]);
}

/// A node with relaying disabled relays nothing, and the others report why they are not linked.
#[tokio::test]
async fn disabled_relay_links_no_nodes() {
    let (mut a, mut b, both) = apart(false).await;
    up(&mut a, &both).await;
    up(&mut b, &both).await;
    within_deadline(async {
        loop {
            if status(&a, &b).await.problem.is_some() && status(&b, &a).await.problem.is_some() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(status(&a, &b).await.linked.is_none());
    assert_eq!(both.links.relayed_pairs(), []);
}
