//! Tests of the socket, and of failures of the socket and the actor.

use mgp_protocol::federation::close_codes::LinkClose;
use ractor::ActorStatus;

use super::super::OpenError;
use super::scene::{ANYWHERE, LinkNode, keys, linked_pair, within_deadline};

#[tokio::test]
async fn address_in_use_is_reported() {
    let [a, b] = keys();
    let (a, b) = (LinkNode::start(&a).await, LinkNode::start(&b).await);
    let failed = a.links.open(b.at).await.unwrap_err();
    assert!(matches!(failed, OpenError::Listen(at, _) if at == b.at));
    assert!(failed.to_string().contains(&b.at.to_string()), "{failed}");
    assert_eq!((a.links.address(), b.links.address()), (None, Some(b.at)));
    assert!(a.links.open(ANYWHERE).await.is_ok());
}

/// A broken socket is opened again at its address, and its links are restored.
#[tokio::test]
async fn broken_socket_is_opened_again() {
    let (mut a, mut b) = linked_pair().await;
    a.links.endpoint().unwrap().close(LinkClose::Done);
    a.down().await;
    b.down().await;
    a.up().await;
    b.up().await;
    assert_eq!(a.links.address(), Some(a.at));
}

#[tokio::test]
async fn restarted_actor_restores_its_state() {
    let (a, mut b) = linked_pair().await;
    a.links.mailbox.panic();
    within_deadline(async {
        while a.cell.get_status() != ActorStatus::Stopped {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let _again = a.links.start().await.unwrap();
    b.up().await;
    within_deadline(async {
        while a.links.linked_nodes() != [b.key.node_id()] {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(a.links.address(), Some(a.at));
}

/// A restarted node at the same address is found without a new hint.
#[tokio::test]
async fn restarted_node_is_linked_again() {
    let (mut a, b) = linked_pair().await;
    b.links.close(LinkClose::Done).await.unwrap();
    a.down().await;
    b.cell.stop(None);
    let again = LinkNode::with_instance(&b.key, b.at, 2).await;
    again.pin(&[&a.key]).await;
    let link = a.up().await;
    assert_eq!(link.link.hello().life.0, [2; 16]);
}
