//! Taps: copies of the messages of one server or one agent, for the operator. Without an open tap, a message costs
//! one relaxed load.
//!
//! Taps are per process, which is one kernel. The sender of a message never waits: a full tap drops and counts it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use mgp_engine::clock::MonotonicTime;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::kernel::recorder::MessageSender;
use tokio::sync::Notify;

use crate::time::{monotonic_now, unix_ms};

/// Concurrent taps: each costs a copy of every message of its subject. More are not needed.
pub const TAPS_MAX: usize = 4;
/// Queued messages of a tap: those that pass while its operator's connection is briefly late.
pub(crate) const QUEUE_MAX: usize = 1_024;
/// Their bytes: some messages of maximum length.
pub(crate) const QUEUE_BYTES_MAX: usize = 16 << 20;
/// Shorter frames are copied, so that they do not keep their larger buffers alive.
const COPY_MAX_BYTES: usize = 64 << 10;

/// The number of open taps.
static OPEN_TAPS: AtomicUsize = AtomicUsize::new(0);
static TAPS: RwLock<Vec<Arc<Tap>>> = RwLock::new(Vec::new());

/// The subject of a tap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TapSubject {
    /// All connections of a server.
    Server(ServerId),
    /// All connections and requests of an agent.
    Agent(AgentId),
}

/// A message that passed.
#[derive(Clone, Debug)]
pub struct TappedMessage {
    /// The time in milliseconds since 1970.
    pub sent_unix_ms: u64,
    /// The time by the kernel's clock.
    pub sent_at: MonotonicTime,
    /// The connection.
    pub connection: u64,
    /// The sender.
    pub from: MessageSender,
    /// The frame.
    pub frame: Bytes,
    /// Set if the request whose id is in `frame` gets no answer: the reason.
    pub abandon_reason: Option<String>,
}

/// Whether any tap is open.
#[inline]
#[must_use]
pub fn has_open_taps() -> bool {
    OPEN_TAPS.load(Ordering::Relaxed) != 0
}

/// Whether a tap on this subject is open.
#[must_use]
pub fn has_tap_on(subject: &TapSubject) -> bool {
    has_open_taps() && any_tap(|tap| tap.subject == *subject)
}

/// Sends a frame to the open taps. Check [`has_open_taps`] first.
pub fn publish(subject: &TapSubject, connection: u64, from: MessageSender, frame: &Bytes) {
    publish_to_taps(subject, connection, from, frame, None);
}

/// Reports that the request with this id, in JSON, gets no answer.
pub fn publish_abandoned(subject: &TapSubject, connection: u64, id: &str, why: String) {
    let id = Bytes::copy_from_slice(id.as_bytes());
    publish_to_taps(subject, connection, MessageSender::Kernel, &id, Some(why));
}

fn publish_to_taps(
    subject: &TapSubject,
    connection: u64,
    from: MessageSender,
    frame: &Bytes,
    abandon_reason: Option<String>,
) {
    let all = TAPS.read().unwrap_or_else(PoisonError::into_inner);
    for tap in all.iter().filter(|tap| tap.subject == *subject) {
        tap.push(frame.len(), || TappedMessage {
            sent_unix_ms: unix_ms(),
            sent_at: monotonic_now(),
            connection,
            from,
            frame: if frame.len() <= COPY_MAX_BYTES {
                Bytes::copy_from_slice(frame)
            } else {
                frame.clone()
            },
            abandon_reason: abandon_reason.clone(),
        });
    }
}

fn any_tap(matches: impl Fn(&Tap) -> bool) -> bool {
    let all = TAPS.read().unwrap_or_else(PoisonError::into_inner);
    all.iter().any(|tap| matches(tap))
}

/// A tap and its queue.
#[derive(Debug)]
struct Tap {
    subject: TapSubject,
    queue: Mutex<TapQueue>,
    wakeup: Notify,
}

#[derive(Debug, Default)]
struct TapQueue {
    messages: VecDeque<TappedMessage>,
    bytes: usize,
    missed_count: u64,
}

impl Tap {
    fn push(&self, bytes: usize, message: impl FnOnce() -> TappedMessage) {
        {
            let mut queue = self.lock_queue();
            // After a gap nothing is queued until everything before it is read, so that the gap is reported in its position.
            let is_full = queue.missed_count > 0
                || queue.messages.len() >= QUEUE_MAX
                || queue.bytes.saturating_add(bytes) > QUEUE_BYTES_MAX;
            if is_full {
                queue.missed_count += 1
            } else {
                queue.bytes += bytes;
                queue.messages.push_back(message());
            }
        }
        self.wakeup.notify_one();
    }

    fn lock_queue(&self) -> MutexGuard<'_, TapQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An item of a tap.
#[derive(Debug)]
pub enum TapEvent {
    /// A message.
    Message(TappedMessage),
    /// The number of missed messages.
    Missed(u64),
}

/// A tap, open until this is dropped.
#[derive(Debug)]
pub struct OpenTap(Arc<Tap>);

impl OpenTap {
    /// `None` while [`TAPS_MAX`] are open.
    #[must_use]
    pub fn open(subject: TapSubject) -> Option<Self> {
        let mut all = TAPS.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= TAPS_MAX {
            return None;
        }
        let tap = Arc::new(Tap {
            subject,
            queue: Mutex::default(),
            wakeup: Notify::new(),
        });
        all.push(tap.clone());
        OPEN_TAPS.store(all.len(), Ordering::Relaxed);
        Some(Self(tap))
    }

    /// The next frame, in order. Missed frames are reported after all queued ones, which came before them.
    pub async fn next(&self) -> TapEvent {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            self.0.wakeup.notified().await;
        }
    }

    fn try_next(&self) -> Option<TapEvent> {
        let mut queue = self.0.lock_queue();
        if let Some(message) = queue.messages.pop_front() {
            queue.bytes -= message.frame.len();
            return Some(TapEvent::Message(message));
        }
        let missed = std::mem::take(&mut queue.missed_count);
        (missed > 0).then_some(TapEvent::Missed(missed))
    }
}

impl Drop for OpenTap {
    fn drop(&mut self) {
        let mut all = TAPS.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|tap| !Arc::ptr_eq(tap, &self.0));
        OPEN_TAPS.store(all.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0068, in one test because taps are global: publishers never wait, missed messages are counted and reported in
    /// their position, and nothing remains when the last tap is closed.
    #[tokio::test]
    async fn a_tap_that_is_not_read_reports_missed_messages() {
        let subject = TapSubject::Server(ServerId::new("a"));
        let frame = Bytes::from_static(b"{}");
        let pass = |of: &TapSubject| publish(of, 1, MessageSender::Server, &frame);
        assert!(!has_open_taps());
        let tap = OpenTap::open(subject.clone()).unwrap();
        assert!(has_tap_on(&subject));
        let other = TapSubject::Agent(AgentId::new("a"));
        assert!(!has_tap_on(&other));
        pass(&other);
        for _ in 0..QUEUE_MAX + 142 {
            pass(&subject);
        }
        for _ in 0..QUEUE_MAX {
            assert!(matches!(tap.next().await, TapEvent::Message(_)));
        }
        assert!(matches!(tap.next().await, TapEvent::Missed(142)));
        for _ in 0..=QUEUE_MAX {
            pass(&subject);
        }
        assert!(matches!(tap.next().await, TapEvent::Message(_)));
        // There is capacity again, but a message now would precede the gap.
        pass(&subject);
        for _ in 1..QUEUE_MAX {
            assert!(matches!(tap.next().await, TapEvent::Message(_)));
        }
        assert!(matches!(tap.next().await, TapEvent::Missed(2)));
        let large = Bytes::from(vec![b' '; QUEUE_BYTES_MAX]);
        super::publish(&subject, 1, MessageSender::Kernel, &large);
        pass(&subject);
        assert!(matches!(tap.next().await, TapEvent::Message(_)));
        assert!(matches!(tap.next().await, TapEvent::Missed(1)));
        // Taken messages free capacity, to the byte.
        let half = large.slice(..QUEUE_BYTES_MAX / 2);
        for _ in 0..3 {
            super::publish(&subject, 1, MessageSender::Kernel, &half);
        }
        for _ in 0..2 {
            assert!(matches!(tap.next().await, TapEvent::Message(_)));
        }
        assert!(matches!(tap.next().await, TapEvent::Missed(1)));
        let more: Vec<_> = (1..TAPS_MAX)
            .map(|_| OpenTap::open(subject.clone()).unwrap())
            .collect();
        assert!(OpenTap::open(subject.clone()).is_none());
        publish_abandoned(&subject, 1, "7", "lost".into());
        for tap in &more {
            let TapEvent::Message(message) = tap.next().await else {
                panic!("nothing was missed");
            };
            assert_eq!(message.abandon_reason.as_deref(), Some("lost"));
        }
        drop(more);
        drop(tap);
        assert!(!has_open_taps());
        pass(&subject);
        assert!(TAPS.read().unwrap().is_empty());
    }
}
