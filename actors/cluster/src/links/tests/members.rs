//! Tests of membership and of messages to members.

use std::time::Duration;

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::federation::logs::{LogNonce, LogsDigest, LogsDigestReason};
use mgp_protocol::federation::tool_index::{IndexDigest, IndexRoot};

use super::super::LinksEvent;
use super::super::live_link::UNHANDLED_MAX;
use super::scene::{LinkNode, keys, linked_pair, pinned, within_deadline};

#[tokio::test]
async fn linked_nodes_receive_each_others_messages() {
    let (a, mut b) = linked_pair().await;
    let digest = Control::Index(IndexDigest {
        epoch: 1,
        version: 2,
        root: IndexRoot([3; 32]),
    });
    a.links.send(b.key.node_id(), digest.clone()).unwrap();
    let is_message = |event| match event {
        LinksEvent::Control(node, message, _) => Some((node, message)),
        LinksEvent::Up(_)
        | LinksEvent::Down { .. }
        | LinksEvent::Present(_)
        | LinksEvent::Missing(_)
        | LinksEvent::Clock(..)
        | LinksEvent::Sync(..)
        | LinksEvent::Call(_)
        | LinksEvent::Pairing(_) => None,
    };
    assert_eq!(b.event(is_message).await, (a.key.node_id(), digest));
    // Membership and the clock are measured without further input.
    within_deadline(async {
        loop {
            let status = a.links.status().await.unwrap();
            let linked = status[0].linked.unwrap();
            if status[0].present && linked.clock.is_some() {
                assert_eq!((linked.address, linked.relay), (Some(b.at), None));
                assert_eq!(status[0].problem, None);
                assert!(linked.loss.sent > 0);
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// A member that sends faster than its messages are handled waits, and fills no mailbox.
#[tokio::test]
async fn unhandled_messages_wait_at_their_link() {
    let (a, mut b) = linked_pair().await;
    let all = 2 * UNHANDLED_MAX + 1;
    for nonce in 0..all {
        let message = Control::Logs(LogsDigest {
            reason: LogsDigestReason::Ask,
            life: LifeId([1; 16]),
            nonce: Some(LogNonce([u8::try_from(nonce).unwrap(); 16])),
            lease_ms: None,
            heads: Vec::new(),
        });
        a.links.send(b.key.node_id(), message).unwrap();
    }
    let is_handled = |event| match event {
        LinksEvent::Control(_, message, turn) => Some((message, turn)),
        LinksEvent::Up(_)
        | LinksEvent::Down { .. }
        | LinksEvent::Present(_)
        | LinksEvent::Missing(_)
        | LinksEvent::Clock(..)
        | LinksEvent::Sync(..)
        | LinksEvent::Call(_)
        | LinksEvent::Pairing(_) => None,
    };
    let mut waiting = Vec::new();
    for _ in 0..UNHANDLED_MAX {
        waiting.push(b.event(is_handled).await);
    }
    let timed_out = tokio::time::timeout(Duration::from_millis(300), b.event(is_handled));
    assert!(timed_out.await.is_err(), "what comes next waits");
    drop(waiting);
    for _ in UNHANDLED_MAX..all {
        b.event(is_handled).await;
    }
}

/// The second and the third node know the address of the first, and learn each other's from it.
#[tokio::test]
async fn member_exchanges_addresses_of_others() {
    let [one, two, three] = keys();
    let mut one = LinkNode::start(&one).await;
    let mut two = LinkNode::start(&two).await;
    let mut three = LinkNode::start(&three).await;
    one.pin(&[&two.key, &three.key]).await;
    two.pin(&[&one.key, &three.key]).await;
    three.pin(&[&one.key, &two.key]).await;
    for node in [&two, &three] {
        node.links.add_hint(one.key.node_id(), one.at);
    }
    for node in [&mut one, &mut two, &mut three] {
        within_deadline(async {
            while node.links.linked_nodes().len() < 2 {
                node.up().await;
            }
        })
        .await;
    }
}

/// FED-015: names are addresses: the node at each is identified by its key.
#[tokio::test]
async fn configured_addresses_are_dialed_and_nodes_identified_by_key() {
    let [one, two, three] = keys();
    let mut one = LinkNode::start(&one).await;
    let (two, three) = (LinkNode::start(&two).await, LinkNode::start(&three).await);
    two.pin(&[&one.key]).await;
    three.pin(&[&one.key]).await;
    let names = [&two, &three].map(|node| format!("localhost:{}", node.at.port()));
    let peers = pinned(&[&two.key, &three.key]);
    one.links.pin(peers, names.to_vec()).await.unwrap();
    within_deadline(async {
        while one.links.linked_nodes().len() < 2 {
            one.up().await;
        }
    })
    .await;
}

/// FED-022: a killed node is reported dead within three seconds, and its link is lost at once.
#[tokio::test]
async fn killed_node_is_detected_by_link_and_membership() {
    let (mut a, b) = linked_pair().await;
    let node = b.key.node_id();
    let present = |event| matches!(event, LinksEvent::Present(_)).then_some(());
    a.event(present).await;
    b.links.close(LinkClose::Done).await.unwrap();
    let missing = |event| match event {
        LinksEvent::Missing(node) => Some(node),
        LinksEvent::Up(_)
        | LinksEvent::Down { .. }
        | LinksEvent::Present(_)
        | LinksEvent::Control(..)
        | LinksEvent::Sync(..)
        | LinksEvent::Call(_)
        | LinksEvent::Clock(..)
        | LinksEvent::Pairing(_) => None,
    };
    assert_eq!(a.event(missing).await, node);
    within_deadline(async {
        while !a.links.linked_nodes().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
