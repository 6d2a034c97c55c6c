//! Links with an unknown node: only while a ticket is open, few, small and short.
//!
//! The messages are not verified here: the ticket's secret decides, and a person.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use mgp_protocol::federation::assertion::LinkBinding;
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::frames::{FrameKind, PAIRING_BODY};
use mgp_protocol::ids::NodeId;
use tokio::time::{Instant, timeout_at};

use super::frames::{FrameReader, FrameWriter, StreamFailure, WriteFailure};
use super::limits::{MAX_PAIRINGS, PAIRING_TIMEOUT, PAIRINGS_PER_ADDRESS, TICKET_TIMEOUT};
use super::pinned::close_connection;

/// QUIC error codes that carry a TLS alert (RFC 9001 §4.8).
const HANDSHAKE_CODES: std::ops::Range<u64> = 0x100..0x200;

/// A guest, and whether it has proven a ticket.
#[derive(Debug)]
struct GuestConnection {
    guest: quinn::Connection,
    is_proven: bool,
}

#[derive(Debug, Default)]
struct GateState {
    tickets: usize,
    guests: Vec<GuestConnection>,
}

/// Admits unknown nodes while a ticket is open.
#[derive(Debug, Default)]
pub(super) struct PairingGate(Mutex<GateState>);

impl PairingGate {
    pub(super) fn is_open(&self) -> bool {
        self.state().tickets > 0
    }

    /// Admits a guest after its handshake, if a ticket is still open.
    pub(super) fn admit_guest(
        self: &Arc<Self>,
        connection: &quinn::Connection,
    ) -> Result<GuestSlot, LinkClose> {
        let mut state = self.state();
        if state.tickets == 0 {
            return Err(LinkClose::PairingOver);
        }
        let from = connection.remote_address().ip();
        let unproven = state.guests.iter().filter(|slot| !slot.is_proven);
        let from_address = unproven.filter(|slot| slot.guest.remote_address().ip() == from);
        if state.guests.len() >= MAX_PAIRINGS || from_address.count() >= PAIRINGS_PER_ADDRESS {
            return Err(LinkClose::TooMany);
        }
        state.guests.push(GuestConnection {
            guest: connection.clone(),
            is_proven: false,
        });
        Ok(GuestSlot {
            gate: Arc::clone(self),
            stable_id: connection.stable_id(),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, GateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a ticket open. When the last one is dropped, the links of guests are closed.
#[derive(Debug)]
pub struct PairingGuard(Arc<PairingGate>);

impl PairingGuard {
    pub(super) fn new(gate: Arc<PairingGate>) -> Self {
        gate.state().tickets += 1;
        Self(gate)
    }
}

impl Drop for PairingGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.tickets -= 1;
        if state.tickets == 0 {
            for slot in &state.guests {
                close_connection(&slot.guest, LinkClose::PairingOver);
            }
        }
    }
}

/// The slot of one guest.
#[derive(Debug)]
pub(super) struct GuestSlot {
    gate: Arc<PairingGate>,
    stable_id: usize,
}

impl Drop for GuestSlot {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        state
            .guests
            .retain(|slot| slot.guest.stable_id() != self.stable_id);
    }
}

/// A link with an unknown node, or with one that does not know this node. Closed when it is dropped.
#[derive(Debug)]
pub struct PairingLink {
    pub(super) connection: quinn::Connection,
    pub(super) key: [u8; 32],
    pub(super) binding: LinkBinding,
    pub(super) reader: FrameReader,
    pub(super) writer: FrameWriter,
    pub(super) deadline: Instant,
    pub(super) guest: Option<GuestSlot>,
}

impl PairingLink {
    /// The deadline of a pairing that begins now.
    pub(super) fn deadline() -> Instant {
        Instant::now() + PAIRING_TIMEOUT
    }

    /// Longest message.
    pub(super) const MESSAGE_BYTES_MAX: usize = PAIRING_BODY;

    /// The node at the other end: it has proven this key, and nothing else.
    #[must_use]
    pub fn peer(&self) -> NodeId {
        NodeId::from_key(&self.key)
    }

    /// Its public key.
    #[must_use]
    pub fn peer_key(&self) -> [u8; 32] {
        self.key
    }

    /// The value that only the two ends share: the proof of the ticket's secret covers it.
    #[must_use]
    pub fn binding(&self) -> LinkBinding {
        self.binding
    }

    /// The peer's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.connection.remote_address()
    }

    /// Whether the peer aborted the handshake: no ticket is open there. It verifies after this end is done.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        is_handshake_refused(&self.connection)
    }

    /// Writes one message.
    ///
    /// # Errors
    /// [`WriteFailure`].
    pub async fn send(&mut self, message: Bytes) -> Result<(), WriteFailure> {
        let writing = self.writer.write(FrameKind::Message, message);
        let late = Err(WriteFailure::Gone(StreamFailure::DeadlineExceeded));
        timeout_at(self.deadline, writing).await.unwrap_or(late)
    }

    /// Marks the guest's ticket as proven: it keeps its slot until the pairing ends.
    pub fn mark_proven(&self) {
        let Some(guest) = &self.guest else { return };
        let mut state = guest.gate.state();
        let mut slots = state.guests.iter_mut();
        if let Some(slot) = slots.find(|slot| slot.guest.stable_id() == guest.stable_id) {
            slot.is_proven = true;
        }
    }

    /// The first message, which a node that requests pairing sends at once.
    ///
    /// # Errors
    /// [`StreamFailure`].
    pub async fn first_message(&mut self) -> Result<Option<Bytes>, StreamFailure> {
        self.read_until(Instant::now() + TICKET_TIMEOUT).await
    }

    /// The next message; `None` after the last one.
    ///
    /// # Errors
    /// [`StreamFailure`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, StreamFailure> {
        self.read_until(self.deadline).await
    }

    async fn read_until(&mut self, until: Instant) -> Result<Option<Bytes>, StreamFailure> {
        let read = timeout_at(until, self.reader.next()).await;
        match read.unwrap_or(Err(StreamFailure::DeadlineExceeded))? {
            Some((FrameKind::Message, body)) => Ok(Some(body)),
            Some(_) => Err(StreamFailure::Malformed("a frame of a call")),
            None => Ok(None),
        }
    }

    /// Ends the pairing; waits until the peer has read everything.
    pub async fn finish(mut self) {
        self.writer.finish();
        let _stopped = timeout_at(self.deadline, self.writer.wait_stopped()).await;
    }
}

impl Drop for PairingLink {
    fn drop(&mut self) {
        close_connection(&self.connection, LinkClose::PairingOver);
    }
}

/// Whether the peer aborted the handshake itself.
pub(super) fn is_handshake_refused(connection: &quinn::Connection) -> bool {
    match connection.close_reason() {
        Some(quinn::ConnectionError::ConnectionClosed(close)) => {
            HANDSHAKE_CODES.contains(&u64::from(close.error_code))
        }
        Some(_) | None => false,
    }
}
