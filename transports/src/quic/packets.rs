//! Packets: sent once, and lost when that fails. Those of membership are, and those that a relay passes on.

pub(super) mod relay;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use mgp_protocol::federation::ends::StreamReset;
use mgp_protocol::federation::frames::{PACKET, PacketHead};
use mgp_protocol::ids::NodeId;
use quinn::SendDatagramError;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use self::relay::Relay;
use super::frames::{StreamFailure, code};
use super::limits::{OPENING, RELAY_STREAMS};

/// What became of a packet on this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFate {
    /// It left as a datagram.
    Datagram,
    /// It was too long for one and left on a stream of its own.
    Stream,
    /// There was no room for it, or no link.
    Lost,
    /// It is longer than a packet may be.
    TooLong,
}

/// Sends a packet, as a datagram if it fits.
pub(super) async fn send(
    connection: &quinn::Connection,
    long: &Arc<Semaphore>,
    packet: Bytes,
) -> PacketFate {
    match connection.send_datagram(packet.clone()) {
        Ok(()) => return PacketFate::Datagram,
        Err(SendDatagramError::TooLarge) => {}
        Err(
            SendDatagramError::UnsupportedByPeer
            | SendDatagramError::Disabled
            | SendDatagramError::ConnectionLost(_),
        ) => return PacketFate::Lost,
    }
    send_as_stream(connection, long, packet).await
}

async fn send_as_stream(
    connection: &quinn::Connection,
    long: &Arc<Semaphore>,
    packet: Bytes,
) -> PacketFate {
    let Ok(_turn) = Arc::clone(long).try_acquire_owned() else {
        return PacketFate::Lost;
    };
    let sent = async {
        let mut stream = connection.open_uni().await.ok()?;
        stream.write_chunk(packet).await.ok()?;
        stream.finish().ok()
    };
    match timeout(OPENING, sent).await {
        Ok(Some(())) => PacketFate::Stream,
        Ok(None) | Err(_) => PacketFate::Lost,
    }
}

/// Packets as they come. Of those that nobody reads in time the oldest are lost.
pub struct PacketInput {
    connection: quinn::Connection,
    /// At most as many as the peer may have streams for them.
    long: FuturesUnordered<BoxFuture<'static, Option<Bytes>>>,
    heads: Option<PacketHeads>,
}

/// What is done by the heads of packets, where both ends have them.
pub(super) struct PacketHeads {
    peer: NodeId,
    /// On a direct link. Nothing is passed on that came by a relayed one.
    relayed: Option<RelayedPackets>,
}

/// Packets that are passed on over this link, or belong to links through its peer.
struct RelayedPackets {
    relay: Arc<Relay>,
    /// Those that are too long for this link's datagrams.
    to_stream: mpsc::Receiver<Bytes>,
    turns: Arc<Semaphore>,
    /// At most as many as there are turns.
    sending: FuturesUnordered<BoxFuture<'static, PacketFate>>,
}

impl PacketHeads {
    /// Of a relayed link.
    pub(super) fn new(peer: NodeId) -> Self {
        let relayed = None;
        Self { peer, relayed }
    }

    /// Of a direct link.
    pub(super) fn with_relay(
        peer: NodeId,
        relay: Arc<Relay>,
        to_stream: mpsc::Receiver<Bytes>,
    ) -> Self {
        let relayed = Some(RelayedPackets {
            relay,
            to_stream,
            turns: Arc::new(Semaphore::new(RELAY_STREAMS)),
            sending: FuturesUnordered::new(),
        });
        Self { peer, relayed }
    }

    /// The packet of membership that this is, if it is one.
    fn sort(&self, packet: &Bytes) -> Option<Bytes> {
        match (PacketHead::read(packet)?, &self.relayed) {
            ((PacketHead::Membership, packet), _) => Some(packet),
            ((head, payload), Some(relayed)) => {
                relayed.relay.take(self.peer, head, payload);
                None
            }
            (_, None) => None,
        }
    }

    /// Sends what is too long for a datagram. Never over.
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
                    let (connection, turns) = (connection.clone(), Arc::clone(&relayed.turns));
                    let sending = async move { send_as_stream(&connection, &turns, packet).await };
                    relayed.sending.push(Box::pin(sending));
                }
                Some(_fate) = relayed.sending.next() => {}
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
    pub(super) fn new(connection: quinn::Connection, heads: Option<PacketHeads>) -> Self {
        Self {
            connection,
            long: FuturesUnordered::new(),
            heads,
        }
    }

    /// The next packet of membership. What is to be passed on meanwhile is passed on, and what belongs to a relayed
    /// link is brought to it.
    ///
    /// # Errors
    /// The link is gone.
    pub async fn next(&mut self) -> Result<Bytes, StreamFailure> {
        loop {
            let packet = self.next_of_any_kind().await?;
            let packet = match &self.heads {
                Some(heads) => heads.sort(&packet),
                None => Some(packet),
            };
            if let Some(packet) = packet {
                return Ok(packet);
            }
        }
    }

    async fn next_of_any_kind(&mut self) -> Result<Bytes, StreamFailure> {
        let connection = self.connection.clone();
        let sending = async {
            match &mut self.heads {
                Some(heads) => heads.send_long(&connection).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(sending);
        loop {
            tokio::select! {
                packet = self.connection.read_datagram() => {
                    return packet.map_err(|gone| StreamFailure::of_link(&gone));
                }
                () = &mut sending => {}
                stream = self.connection.accept_uni() => {
                    let stream = stream.map_err(|gone| StreamFailure::of_link(&gone))?;
                    self.long.push(Box::pin(long_packet(stream)));
                }
                Some(packet) = self.long.next() => {
                    if let Some(packet) = packet {
                        return Ok(packet);
                    }
                }
            }
        }
    }
}

/// A packet on a stream of its own; `None` when it is too long or takes too long.
async fn long_packet(mut stream: quinn::RecvStream) -> Option<Bytes> {
    let read = timeout(OPENING, stream.read_to_end(PACKET + PacketHead::LONGEST)).await;
    match read {
        Ok(Ok(packet)) => Some(Bytes::from(packet)),
        Ok(Err(_)) => {
            let _stopped = stream.stop(code(StreamReset::Oversized));
            None
        }
        Err(_) => {
            let _stopped = stream.stop(code(StreamReset::Late));
            None
        }
    }
}
