//! Packets: sent once, and lost when that fails. Those of membership are.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use mgp_protocol::federation::ends::StreamReset;
use mgp_protocol::federation::frames::PACKET;
use quinn::SendDatagramError;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::frames::{StreamFailure, code};
use super::limits::OPENING;

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
    if packet.len() > PACKET {
        return PacketFate::TooLong;
    }
    match connection.send_datagram(packet.clone()) {
        Ok(()) => return PacketFate::Datagram,
        Err(SendDatagramError::TooLarge) => {}
        Err(
            SendDatagramError::UnsupportedByPeer
            | SendDatagramError::Disabled
            | SendDatagramError::ConnectionLost(_),
        ) => return PacketFate::Lost,
    }
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
}

impl fmt::Debug for PacketInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketInput").finish_non_exhaustive()
    }
}

impl PacketInput {
    pub(super) fn new(connection: quinn::Connection) -> Self {
        Self {
            connection,
            long: FuturesUnordered::new(),
        }
    }

    /// The next packet.
    ///
    /// # Errors
    /// The link is gone.
    pub async fn next(&mut self) -> Result<Bytes, StreamFailure> {
        loop {
            tokio::select! {
                packet = self.connection.read_datagram() => {
                    return packet.map_err(|gone| StreamFailure::of_link(&gone));
                }
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
    let read = timeout(OPENING, stream.read_to_end(PACKET)).await;
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
