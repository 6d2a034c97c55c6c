//! The socket, and what happens when it or the actor breaks.

use mgp_protocol::federation::close_codes::LinkClose;
use ractor::ActorStatus;

use super::super::OpenError;
use super::scene::{ANYWHERE, LinkNode, keys, soon, two};

#[tokio::test]
async fn an_address_that_is_taken_is_said_and_nothing_is_open() {
    let [a, b] = keys();
    let (a, b) = (LinkNode::start(&a).await, LinkNode::start(&b).await);
    let failed = a.links.open(b.at).await.unwrap_err();
    assert!(matches!(failed, OpenError::Listen(at, _) if at == b.at));
    assert!(failed.to_string().contains(&b.at.to_string()), "{failed}");
    assert_eq!((a.links.address(), b.links.address()), (None, Some(b.at)));
    assert!(a.links.open(ANYWHERE).await.is_ok());
}

/// A socket that breaks is opened again where it was, and its links come back.
#[tokio::test]
async fn a_socket_that_breaks_is_opened_again() {
    let (mut a, mut b) = two().await;
    a.links.endpoint().unwrap().close(LinkClose::Done);
    a.down().await;
    b.down().await;
    a.up().await;
    b.up().await;
    assert_eq!(a.links.address(), Some(a.at));
}

#[tokio::test]
async fn after_a_failure_the_actor_goes_on_where_it_stopped() {
    let (a, mut b) = two().await;
    a.links.mailbox.panic();
    soon(async {
        while a.cell.get_status() != ActorStatus::Stopped {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let _again = a.links.start().await.unwrap();
    b.up().await;
    soon(async {
        while a.links.linked_nodes() != [b.key.node_id()] {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(a.links.address(), Some(a.at));
}

/// The same key in another life at the same place: found without a new hint.
#[tokio::test]
async fn a_node_that_starts_again_is_linked_again() {
    let (mut a, b) = two().await;
    b.links.close(LinkClose::Done).await.unwrap();
    a.down().await;
    b.cell.stop(None);
    let again = LinkNode::with(&b.key, b.at, 2).await;
    again.pin(&[&a.key]).await;
    let link = a.up().await;
    assert_eq!(link.link.hello().life.0, [2; 16]);
}
