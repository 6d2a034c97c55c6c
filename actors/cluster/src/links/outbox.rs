//! The send queue of one link.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use mgp_protocol::federation::control::{Control, Ping, Pong};
use mgp_protocol::federation::logs::LogsDigestReason;
use mgp_runtime::randomness;
use mgp_runtime::time::unix_ms;
use mgp_sync::CoalescingQueue;
use tokio::sync::mpsc;

use super::PeerLink;

/// The most queued messages. Each has another subject, so a peer that lets so many queue up does not read,
/// and counts as disconnected.
const MAX_MESSAGES: usize = 256;
/// The most queued packets: those of a second. Further ones are dropped, as packets may be.
pub(super) const MAX_PACKETS: usize = 64;
/// The most clock requests without an answer; the oldest are dropped.
const MAX_CLOCK_PINGS: usize = 4;

/// A request for the peer's clock.
#[derive(Debug)]
struct ClockPing {
    nonce: u64,
    sent_at: Instant,
    sent_ms: u64,
}

/// The queued messages, filled by the actor and the reading task, emptied by the writing task.
#[derive(Debug)]
pub(super) struct Outbox {
    messages: CoalescingQueue<Control>,
    pings: Mutex<VecDeque<ClockPing>>,
    packets: mpsc::Sender<Bytes>,
}

/// The queue is full: the peer does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutboxFull;

impl Outbox {
    pub(super) fn new() -> (Self, mpsc::Receiver<Bytes>) {
        let (packets, to_send) = mpsc::channel(MAX_PACKETS);
        let outbox = Self {
            messages: CoalescingQueue::default(),
            pings: Mutex::default(),
            packets,
        };
        (outbox, to_send)
    }

    /// Queues a message. It replaces an older one that it supersedes.
    pub(super) fn push(&self, message: Control) -> Result<(), OutboxFull> {
        let pushed = self.messages.push(message, MAX_MESSAGES, is_superseded);
        pushed.map_err(|_left_out| OutboxFull)
    }

    /// The next message; resolves once there is one.
    pub(super) async fn next(&self) -> Control {
        self.messages.next().await
    }

    /// Queues a packet, which may be dropped.
    pub(super) fn send_packet(&self, packet: Vec<u8>) {
        let _lost = self.packets.try_send(packet.into());
    }

    /// Queues a request for the peer's clock.
    pub(super) fn ask_clock(&self) -> Result<(), OutboxFull> {
        let nonce = u64::from_le_bytes(randomness::random_bytes());
        let mut pings = lock(&self.pings);
        if pings.len() >= MAX_CLOCK_PINGS {
            pings.pop_front();
        }
        pings.push_back(ClockPing {
            nonce,
            sent_at: Instant::now(),
            sent_ms: unix_ms(),
        });
        drop(pings);
        self.push(Control::Ping(Ping { nonce }))
    }

    /// Handles the peer's clock; false if it was not asked for.
    pub(super) fn handle_pong(&self, pong: Pong, peer: &PeerLink) -> bool {
        let mut pings = lock(&self.pings);
        let at = pings.iter().position(|ping| ping.nonce == pong.nonce);
        let Some(ping) = at.and_then(|at| pings.remove(at)) else {
            return false;
        };
        drop(pings);
        let way_ms = u64::try_from(ping.sent_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        peer.record_clock(ping.sent_ms, way_ms, pong.wall_ms);
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if the newer message makes the older one obsolete. Requests and their answers belong together, and
/// addresses to different nodes.
fn is_superseded(newer: &Control, older: &Control) -> bool {
    match (newer, older) {
        (Control::Renewal(_), Control::Renewal(_))
        | (Control::Index(_), Control::Index(_))
        | (Control::IndexReport(_), Control::IndexReport(_))
        | (Control::Reach(_), Control::Reach(_)) => true,
        (Control::Logs(newer), Control::Logs(older)) => {
            newer.reason == LogsDigestReason::Tell && older.reason == LogsDigestReason::Tell
        }
        (
            Control::Hello(_)
            | Control::Ping(_)
            | Control::Pong(_)
            | Control::Renewal(_)
            | Control::Addresses(_)
            | Control::Logs(_)
            | Control::Index(_)
            | Control::IndexReport(_)
            | Control::Leaving(_)
            | Control::Reach(_)
            | Control::Unknown(_),
            _,
        ) => false,
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::federation::tool_index::{IndexDigest, IndexRoot};

    use super::*;

    fn digest(version: u64) -> Control {
        Control::Index(IndexDigest {
            epoch: 1,
            version,
            root: IndexRoot([0; 32]),
        })
    }

    /// An index that changes while the peer is slow takes one queue entry, and closes no link.
    #[tokio::test]
    async fn newer_message_replaces_older_and_full_outbox_is_reported() {
        let (outbox, _packets) = Outbox::new();
        for version in 0..10_000 {
            assert_eq!(outbox.push(digest(version)), Ok(()));
        }
        for nonce in 1..MAX_MESSAGES as u64 {
            assert_eq!(outbox.push(Control::Ping(Ping { nonce })), Ok(()));
        }
        assert_eq!(
            outbox.push(Control::Ping(Ping { nonce: 0 })),
            Err(OutboxFull)
        );
        assert_eq!(
            outbox.push(digest(10_000)),
            Ok(()),
            "it takes the place it had"
        );
        assert_eq!(outbox.next().await, Control::Ping(Ping { nonce: 1 }));
    }
}
