//! Packets: sent once, and lost on failure. Used by membership and by relays.

pub(super) mod relay;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use mgp_protocol::federation::close_codes::StreamReset;
use mgp_protocol::federation::frames::{PACKET, PacketHeader};
use mgp_protocol::ids::NodeId;
use quinn::SendDatagramError;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use self::relay::Relay;
use super::frames::{StreamFailure, reset_code};
use super::limits::{RELAY_STREAMS, STREAM_OPEN_TIMEOUT};

/// The outcome of sending a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketOutcome {
    /// Sent as a datagram.
    Datagram,
    /// Too long for a datagram, and sent on its own stream.
    Stream,
    /// No capacity, or no link.
    Lost,
    /// Longer than the packet limit.
    TooLong,
}

/// Sends a packet, as a datagram if it fits.
pub(super) async fn send(
    connection: &quinn::Connection,
    long: &Arc<Semaphore>,
    packet: Bytes,
) -> PacketOutcome {
    match connection.send_datagram(packet.clone()) {
        Ok(()) => return PacketOutcome::Datagram,
        Err(SendDatagramError::TooLarge) => {}
        Err(
            SendDatagramError::UnsupportedByPeer
            | SendDatagramError::Disabled
            | SendDatagramError::ConnectionLost(_),
        ) => return PacketOutcome::Lost,
    }
    send_as_stream(connection, long, packet).await
}

async fn send_as_stream(
    connection: &quinn::Connection,
    long: &Arc<Semaphore>,
    packet: Bytes,
) -> PacketOutcome {
    let Ok(_permit) = Arc::clone(long).try_acquire_owned() else {
        return PacketOutcome::Lost;
    };
    let sent = async {
        let mut stream = connection.open_uni().await.ok()?;
        stream.write_chunk(packet).await.ok()?;
        stream.finish().ok()
    };
    match timeout(STREAM_OPEN_TIMEOUT, sent).await {
        Ok(Some(())) => PacketOutcome::Stream,
        Ok(None) | Err(_) => PacketOutcome::Lost,
    }
}

/// Receives packets. If they are not read in time, the oldest are lost.
pub struct PacketInput {
    connection: quinn::Connection,
    /// Bounded by the streams that the peer may open for them.
    long_packets: FuturesUnordered<BoxFuture<'static, Option<Bytes>>>,
    router: Option<PacketRouter>,
}

/// Routes packets by their headers, if both ends use them.
pub(super) struct PacketRouter {
    peer: NodeId,
    /// Set on a direct link. Packets from a relayed one are not relayed again.
    relayed: Option<RelayedPackets>,
}

/// Packets that are relayed over this link, or belong to links through its peer.
struct RelayedPackets {
    relay: Arc<Relay>,
    /// Packets that are too long for this link's datagrams.
    to_stream: mpsc::Receiver<Bytes>,
    permits: Arc<Semaphore>,
    /// Bounded by the permits.
    sending: FuturesUnordered<BoxFuture<'static, PacketOutcome>>,
}

impl PacketRouter {
    /// For a relayed link.
    pub(super) fn new(peer: NodeId) -> Self {
        let relayed = None;
        Self { peer, relayed }
    }

    /// For a direct link.
    pub(super) fn with_relay(
        peer: NodeId,
        relay: Arc<Relay>,
        to_stream: mpsc::Receiver<Bytes>,
    ) -> Self {
        let relayed = Some(RelayedPackets {
            relay,
            to_stream,
            permits: Arc::new(Semaphore::new(RELAY_STREAMS)),
            sending: FuturesUnordered::new(),
        });
        Self { peer, relayed }
    }

    /// The payload of a membership packet; other packets are routed.
    fn route(&self, packet: &Bytes) -> Option<Bytes> {
        match (PacketHeader::parse(packet)?, &self.relayed) {
            ((PacketHeader::Membership, packet), _) => Some(packet),
            ((head, payload), Some(relayed)) => {
                relayed.relay.handle_packet(self.peer, head, payload);
                None
            }
            (_, None) => None,
        }
    }

    /// Sends packets that are too long for a datagram. Never resolves.
    async fn send_long(&mut self, connection: &quinn::Connection) {
        let Some(relayed) = &mut self.relayed else {
            return std::future::pending().await;
        };
        loop {
            tokio::select! {
                Some(packet) = relayed.to_stream.recv() => {
                    if relayed.sending.len() >= RELAY_STREAMS {
                        continue;
                    }
                    let (connection, permits) = (connection.clone(), Arc::clone(&relayed.permits));
                    let sending = async move { send_as_stream(&connection, &permits, packet).await };
                    relayed.sending.push(Box::pin(sending));
                }
                Some(_outcome) = relayed.sending.next() => {}
                else => return std::future::pending().await,
            }
        }
    }
}

impl fmt::Debug for PacketInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketInput").finish_non_exhaustive()
    }
}

impl PacketInput {
    pub(super) fn new(connection: quinn::Connection, router: Option<PacketRouter>) -> Self {
        Self {
            connection,
            long_packets: FuturesUnordered::new(),
            router,
        }
    }

    /// The next packet of membership. Meanwhile relays other packets, and delivers those of relayed links.
    ///
    /// # Errors
    /// The link has ended.
    pub async fn next(&mut self) -> Result<Bytes, StreamFailure> {
        loop {
            let packet = self.next_raw().await?;
            let packet = match &self.router {
                Some(router) => router.route(&packet),
                None => Some(packet),
            };
            if let Some(packet) = packet {
                return Ok(packet);
            }
        }
    }

    async fn next_raw(&mut self) -> Result<Bytes, StreamFailure> {
        let connection = self.connection.clone();
        let sending = async {
            match &mut self.router {
                Some(router) => router.send_long(&connection).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(sending);
        loop {
            tokio::select! {
                packet = self.connection.read_datagram() => {
                    return packet.map_err(|gone| StreamFailure::from_connection_error(&gone));
                }
                () = &mut sending => {}
                stream = self.connection.accept_uni() => {
                    let stream = stream.map_err(|gone| StreamFailure::from_connection_error(&gone))?;
                    self.long_packets.push(Box::pin(read_long_packet(stream)));
                }
                Some(packet) = self.long_packets.next() => {
                    if let Some(packet) = packet {
                        return Ok(packet);
                    }
                }
            }
        }
    }
}

/// A packet on its own stream; `None` when it is too long or too slow.
async fn read_long_packet(mut stream: quinn::RecvStream) -> Option<Bytes> {
    let read = timeout(
        STREAM_OPEN_TIMEOUT,
        stream.read_to_end(PACKET + PacketHeader::MAX_LEN),
    )
    .await;
    match read {
        Ok(Ok(packet)) => Some(Bytes::from(packet)),
        Ok(Err(_)) => {
            let _stopped = stream.stop(reset_code(StreamReset::Oversized));
            None
        }
        Err(_) => {
            let _stopped = stream.stop(reset_code(StreamReset::Late));
            None
        }
    }
}
