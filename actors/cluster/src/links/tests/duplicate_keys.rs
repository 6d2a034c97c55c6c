//! Tests of a node of which two live instances were found.

use std::time::Duration;

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_transports::quic::{LinkGone, StreamFailure};
use tokio::net::UdpSocket;

use super::scene::{linked_pair, pinned};

/// FEDERATION, cloned: each instance is notified why it has no link, reports it, and retries rarely.
#[tokio::test]
async fn duplicated_node_is_notified_and_retries_rarely() {
    let (mut a, mut b) = linked_pair().await;
    let (a_node, b_node) = (a.key.node_id(), b.key.node_id());
    let twice = LinkGone(StreamFailure::LinkClosed(LinkClose::TwoLives));
    let mut pins = pinned(&[&b.key]);
    pins.get_mut(&b_node).unwrap().has_duplicate_key = true;
    a.links.pin(pins, Vec::new()).await.unwrap();
    assert!(a.links.linked_nodes().is_empty());
    assert_eq!(a.down().await, (b_node, twice.clone()));
    assert_eq!(b.down().await, (a_node, twice));
    let status = b.links.status().await.unwrap();
    let trouble = status[0].problem.clone().unwrap_or_default();
    assert!(
        status[0].is_blocked && trouble.contains("mgp nodes rekey"),
        "{trouble}"
    );
    // A hint does not cause an earlier retry.
    let elsewhere = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    b.links.add_hint(a_node, elsewhere.local_addr().unwrap());
    let mut packet = [0; 1];
    let comes = elsewhere.recv_from(&mut packet);
    let early = tokio::time::timeout(Duration::from_millis(700), comes).await;
    assert!(early.is_err(), "it came at once");
    let status = a.links.status().await.unwrap();
    assert!(status[0].linked.is_none() && !status[0].is_blocked);
    assert!(
        a.events.try_recv().is_err(),
        "no link came about, and none was dialed"
    );
    // A node that is allowed again is linked at its next retry.
    a.pin(&[&b.key]).await;
    a.up().await;
    b.up().await;
    assert!(!b.links.status().await.unwrap()[0].is_blocked);
}
