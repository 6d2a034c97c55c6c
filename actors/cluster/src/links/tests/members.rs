//! What is known of members, and what is told.

use std::time::Duration;

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::federation::logs::{LogNonce, LogsDigest, LogsDigestReason};
use mgp_protocol::federation::tool_index::{IndexDigest, IndexRoot};

use super::super::LinksEvent;
use super::super::live_link::UNHANDLED_MAX;
use super::scene::{LinkNode, keys, pinned, soon, two};

#[tokio::test]
async fn two_nodes_link_and_what_is_told_arrives() {
    let (a, mut b) = two().await;
    let digest = Control::Index(IndexDigest {
        epoch: 1,
        version: 2,
        root: IndexRoot([3; 32]),
    });
    a.links.send(b.key.node_id(), digest.clone()).unwrap();
    let told = |event| match event {
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
    assert_eq!(b.event(told).await, (a.key.node_id(), digest));
    // Membership and the clock find each other by themselves.
    soon(async {
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

/// A member that tells more than is heeded waits, and fills nobody's mailbox.
#[tokio::test]
async fn what_nobody_has_heeded_waits_at_its_link() {
    let (a, mut b) = two().await;
    let all = 2 * UNHANDLED_MAX + 1;
    for nonce in 0..all {
        let asked = Control::Logs(LogsDigest {
            reason: LogsDigestReason::Ask,
            life: LifeId([1; 16]),
            nonce: Some(LogNonce([u8::try_from(nonce).unwrap(); 16])),
            lease_ms: None,
            heads: Vec::new(),
        });
        a.links.send(b.key.node_id(), asked).unwrap();
    }
    let heard = |event| match event {
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
        waiting.push(b.event(heard).await);
    }
    let beyond = tokio::time::timeout(Duration::from_millis(300), b.event(heard));
    assert!(beyond.await.is_err(), "what comes next waits");
    drop(waiting);
    for _ in UNHANDLED_MAX..all {
        b.event(heard).await;
    }
}

/// The second and the third know where the first is, and hear of each other from it.
#[tokio::test]
async fn a_member_tells_where_the_others_are() {
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
        soon(async {
            while node.links.linked_nodes().len() < 2 {
                node.up().await;
            }
        })
        .await;
    }
}

/// FED-015: names are of places: which node is at which, is found out by its key.
#[tokio::test]
async fn configured_places_lead_to_the_nodes_that_are_there() {
    let [one, two, three] = keys();
    let mut one = LinkNode::start(&one).await;
    let (two, three) = (LinkNode::start(&two).await, LinkNode::start(&three).await);
    two.pin(&[&one.key]).await;
    three.pin(&[&one.key]).await;
    let names = [&two, &three].map(|node| format!("localhost:{}", node.at.port()));
    let peers = pinned(&[&two.key, &three.key]);
    one.links.pin(peers, names.to_vec()).await.unwrap();
    soon(async {
        while one.links.linked_nodes().len() < 2 {
            one.up().await;
        }
    })
    .await;
}

/// FED-022: a node that is killed is missed within three seconds, and its link is lost at once.
#[tokio::test]
async fn a_node_that_is_gone_is_missed_by_link_and_by_membership() {
    let (mut a, b) = two().await;
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
    soon(async {
        while !a.links.linked_nodes().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
