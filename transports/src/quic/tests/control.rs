//! The control stream.

use std::sync::Arc;

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::control::{Control, Ping, Pong, UnknownControl};
use mgp_protocol::federation::frames::CONTROL_BODY;

use super::super::handshake::LinkPurpose;
use super::super::negotiation::HandshakenConnection;
use super::super::{LinkError, StreamFailure, WriteFailure};
use super::scene::{Node, hello, linked, soon};

#[tokio::test]
async fn ping_and_pong_carry_the_peers_clock() {
    let (_a, mut dialed, mut taken, _b) = linked().await;
    let ping = Control::Ping(Ping { nonce: 7 });
    dialed.control_output.send(&ping).await.unwrap();
    assert_eq!(soon(taken.control_input.next()).await, Ok(ping));
    let (nonce, wall_ms) = (7, 1_790_000_000_000);
    let pong = Control::Pong(Pong { nonce, wall_ms });
    taken.control_output.send(&pong).await.unwrap();
    assert_eq!(soon(dialed.control_input.next()).await, Ok(pong));
}

/// FED-011: messages of the next version are passed on, and end nothing.
#[tokio::test]
async fn a_message_of_a_later_version_is_passed_on_unchanged() {
    let (_a, mut dialed, mut taken, _b) = linked().await;
    let bytes = b"\x82\xa4kind\xa5drain\xa5after\x05".to_vec();
    let kind = "drain".to_owned();
    let later = Control::Unknown(UnknownControl { kind, bytes });
    dialed.control_output.send(&later).await.unwrap();
    assert_eq!(soon(taken.control_input.next()).await, Ok(later));
    let ping = Control::Ping(Ping { nonce: 1 });
    dialed.control_output.send(&ping).await.unwrap();
    assert_eq!(soon(taken.control_input.next()).await, Ok(ping));
}

#[tokio::test]
async fn a_control_message_beyond_the_limit_ends_the_link_with_its_reason() {
    let (_a, mut dialed, mut taken, _b) = linked().await;
    let bytes = vec![0x80; CONTROL_BODY + 1];
    let kind = "long".to_owned();
    let long = Control::Unknown(UnknownControl { kind, bytes });
    let refused = dialed.control_output.send(&long).await;
    assert!(matches!(refused, Err(WriteFailure::TooLarge { .. })));
    assert!(dialed.link.end_reason().is_none());
    let over = (CONTROL_BODY as u32 + 1).to_be_bytes();
    let head = [&[1][..], &over[..]].concat();
    dialed.control_output.writer().write_raw(&head).await;
    let (size, limit) = (CONTROL_BODY as u64 + 1, CONTROL_BODY as u64);
    let refused = Err(StreamFailure::Oversized { size, limit });
    assert_eq!(soon(taken.control_input.next()).await, refused);
    let told = StreamFailure::LinkClosed(LinkClose::Oversized);
    assert_eq!(soon(dialed.link.wait_closed()).await.0, told);
}

#[tokio::test]
async fn a_malformed_control_message_ends_the_link_with_its_reason() {
    let second_hello = Control::Hello(hello()).encode();
    for body in [&b"\x00"[..], &b"{}"[..], &second_hello[..]] {
        let (_a, mut dialed, mut taken, _b) = linked().await;
        let len = u32::try_from(body.len()).unwrap().to_be_bytes();
        let frame = [&[1][..], &len[..], body].concat();
        dialed.control_output.writer().write_raw(&frame).await;
        let read = soon(taken.control_input.next()).await;
        assert!(matches!(read, Err(StreamFailure::Malformed(_))), "{read:?}");
        let told = StreamFailure::LinkClosed(LinkClose::Malformed);
        assert_eq!(soon(dialed.link.wait_closed()).await.0, told);
    }
}

/// A peer that sends a hello and is already gone makes no link: nobody would ever answer on it.
#[tokio::test]
async fn the_hello_of_a_closed_link_is_not_accepted() {
    let (a, b) = (Node::new(1), Node::idle(2));
    a.pins(&[b.id]);
    b.pins(&[a.id]);
    let (dialing, raw) = (a.endpoint.core(), b.endpoint.core());
    let (crypto, findings) = dialing.handshakes.client_config(b.id, LinkPurpose::Link);
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let to = b.at.parse().unwrap();
    let connecting = dialing
        .socket
        .connect_with(config, to, "node.invalid")
        .unwrap();
    let accepting = async {
        loop {
            let incoming = raw.socket.accept().await.unwrap();
            if incoming.remote_address_validated() {
                return incoming.accept().unwrap().await.unwrap();
            }
            incoming.retry().unwrap();
        }
    };
    let (connection, accepted) = tokio::join!(soon(connecting), soon(accepting));
    let (connection, key) = (connection.unwrap(), findings.peer().unwrap().1);
    let held = connection.clone();
    let mut greeting = Box::pin(dialing.negotiate(
        HandshakenConnection {
            connection,
            key,
            relay: None,
        },
        true,
    ));
    let opened = tokio::select! {
        linked = &mut greeting => panic!("{linked:?}"),
        opened = accepted.accept_bi() => opened,
    };
    // The answer arrives, and then the end, before either is read.
    let (mut send, _receive) = opened.unwrap();
    let hello = Control::Hello(hello()).encode();
    let len = u32::try_from(hello.len()).unwrap().to_be_bytes();
    send.write_all(&[&[1][..], &len[..], &hello].concat())
        .await
        .unwrap();
    send.finish().unwrap();
    soon(send.stopped()).await.unwrap();
    accepted.close(0u32.into(), b"");
    soon(held.closed()).await;
    let gone = StreamFailure::LinkClosed(LinkClose::Done);
    assert_eq!(
        soon(greeting).await.unwrap_err(),
        LinkError::HelloFailed(gone)
    );
    assert_eq!(a.endpoint.links(), 0);
}
