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

/// Messages that wait. Each is about something else, so a peer that lets so many wait does not read, and is as
/// good as gone.
const MAX_MESSAGES: usize = 256;
/// Packets that wait: those of a second. The next ones are lost, as packets may be.
pub(super) const MAX_PACKETS: usize = 64;
/// Questions for the clock whose answers are waited for; the oldest ones are given up.
const MAX_CLOCK_PINGS: usize = 4;

/// A question for the peer's clock.
#[derive(Debug)]
struct ClockPing {
    nonce: u64,
    sent_at: Instant,
    sent_ms: u64,
}

/// The messages that wait, filled by the actor and the task that reads, emptied by the one that writes.
#[derive(Debug)]
pub(super) struct Outbox {
    messages: CoalescingQueue<Control>,
    pings: Mutex<VecDeque<ClockPing>>,
    packets: mpsc::Sender<Bytes>,
}

/// There is no capacity: the peer does not read.
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

    /// Puts a message in line. One that says what an older one said, anew, takes its place.
    pub(super) fn push(&self, message: Control) -> Result<(), OutboxFull> {
        let pushed = self.messages.push(message, MAX_MESSAGES, is_superseded);
        pushed.map_err(|_left_out| OutboxFull)
    }

    /// The next message, once there is one.
    pub(super) async fn next(&self) -> Control {
        self.messages.next().await
    }

    /// A packet, which may be lost.
    pub(super) fn send_packet(&self, packet: Vec<u8>) {
        let _lost = self.packets.try_send(packet.into());
    }

    /// Asks for the peer's clock.
    pub(super) fn ask_clock(&self) -> Result<(), OutboxFull> {
        let nonce = u64::from_le_bytes(randomness::random_bytes());
        let mut questions = lock(&self.pings);
        if questions.len() >= MAX_CLOCK_PINGS {
            questions.pop_front();
        }
        questions.push_back(ClockPing {
            nonce,
            sent_at: Instant::now(),
            sent_ms: unix_ms(),
        });
        drop(questions);
        self.push(Control::Ping(Ping { nonce }))
    }

    /// The peer told its clock. True when it was asked.
    pub(super) fn handle_pong(&self, pong: Pong, peer: &PeerLink) -> bool {
        let mut questions = lock(&self.pings);
        let at = questions
            .iter()
            .position(|question| question.nonce == pong.nonce);
        let Some(question) = at.and_then(|at| questions.remove(at)) else {
            return false;
        };
        drop(questions);
        let way_ms = u64::try_from(question.sent_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        peer.record_clock(question.sent_ms, way_ms, pong.wall_ms);
        true
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether nobody needs the older message any more once the newer one is read. Questions and their answers
/// belong to each other, and addresses to different nodes.
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

    /// An index that changes while the peer is slow takes one place, and cuts no link.
    #[tokio::test]
    async fn what_is_said_anew_takes_one_place_and_a_peer_that_does_not_read_is_noticed() {
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
