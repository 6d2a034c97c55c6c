//! Packets of membership.

use bytes::Bytes;
use mgp_protocol::federation::close_codes::StreamReset;
use mgp_protocol::federation::frames::PACKET;
use quinn::WriteError;

use super::super::PacketOutcome;
use super::scene::{call, echoes, linked, soon};

#[tokio::test]
async fn a_packet_is_sent_as_a_datagram_or_on_its_own_stream() {
    let (_a, dialed, mut taken, _b) = linked().await;
    for (len, fate) in [
        (0, PacketOutcome::Datagram),
        (1000, PacketOutcome::Datagram),
        (20_000, PacketOutcome::Stream),
        (PACKET, PacketOutcome::Stream),
    ] {
        let packet = Bytes::from(vec![7; len]);
        assert_eq!(dialed.link.send_packet(packet.clone()).await, fate, "{len}");
        assert_eq!(soon(taken.packets.next()).await, Ok(packet));
    }
    let long = Bytes::from(vec![7; PACKET + 1]);
    assert_eq!(dialed.link.send_packet(long).await, PacketOutcome::TooLong);
}

/// FED-008: a flood fills a bounded buffer and nothing else: the newest packets remain, and calls continue.
#[tokio::test]
async fn a_flood_of_packets_is_lost_and_delays_nobody() {
    const SIZE: usize = 1000;
    let (_a, dialed, mut taken, _b) = linked().await;
    let answering = echoes(taken.inbound);
    for n in 0..5000u32 {
        let mut packet = vec![0; SIZE];
        packet[..4].copy_from_slice(&n.to_be_bytes());
        let fate = dialed.link.send_packet(packet.into()).await;
        assert_eq!(fate, PacketOutcome::Datagram);
        if n % 50 == 0 {
            call(&dialed.link, Bytes::from_static(b"{}")).await;
        }
    }
    call(&dialed.link, Bytes::from_static(b"{}")).await;
    dialed.link.send_packet(Bytes::from_static(b"last")).await;
    let mut read = 0;
    while soon(taken.packets.next()).await.unwrap() != "last" {
        read += 1;
    }
    assert!((1..=(64 << 10) / SIZE).contains(&read), "{read}");
    answering.abort();
}

/// FED-008: incomplete packet streams take a bounded number of slots, and none of a call.
#[tokio::test]
async fn packets_that_never_end_delay_no_call() {
    let (_a, dialed, mut taken, _b) = linked().await;
    let answering = echoes(taken.inbound);
    let mut open = Vec::new();
    for _ in 0..16 {
        let mut send = soon(dialed.link.connection().open_uni()).await.unwrap();
        send.write_all(b"begun").await.unwrap();
        open.push(send);
    }
    assert_eq!(
        &call(&dialed.link, Bytes::from_static(b"{}")).await[..],
        b"{}"
    );
    dialed.link.send_packet(Bytes::from_static(b"short")).await;
    assert_eq!(soon(taken.packets.next()).await.unwrap(), "short");
    // One that is too long is stopped, and its slot is free again.
    let mut long = open.pop().unwrap();
    let writing = async {
        let error = long.write_all(&vec![0; 1 << 20]).await.unwrap_err();
        let WriteError::Stopped(code) = error else {
            panic!("{error}");
        };
        StreamReset::from_code(code.into_inner())
    };
    tokio::select! {
        why = soon(writing) => assert_eq!(why, StreamReset::Oversized),
        packet = taken.packets.next() => panic!("{packet:?} was read"),
    }
    answering.abort();
}
