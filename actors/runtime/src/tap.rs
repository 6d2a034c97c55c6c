//! Taps: copies of the messages of one server or one agent, for an operator who looks on. While nobody does, a message
//! that passes costs one relaxed load.
//!
//! They are this process's, which is one kernel. Whoever passes a message never waits: a tap that is full misses it,
//! and counts that.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use mgp_engine::clock::MonotonicTime;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::kernel::recorder::MessageSender;
use tokio::sync::Notify;

use crate::time::{moment, unix_ms};

/// Taps at once: each costs every message of what it is on a copy. More people than that do not look on.
pub const TAPS_MAX: usize = 4;
/// Messages that wait in a tap: what passes while its operator's connection is a moment late.
pub const WAITING_MAX: usize = 1_024;
/// Bytes of them: some messages as long as they may be.
pub const WAITING_BYTES_MAX: usize = 16 << 20;
/// Shorter frames are copied, so that they do not hold on to what they came in.
const COPIED: usize = 64 << 10;

/// How many taps are open.
static OPEN: AtomicUsize = AtomicUsize::new(0);
static TAPS: RwLock<Vec<Arc<Tap>>> = RwLock::new(Vec::new());

/// What a tap is on.
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
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// When, by the kernel's clock.
    pub at: MonotonicTime,
    /// Over which connection.
    pub connection: u64,
    /// Who sent it.
    pub from: MessageSender,
    /// The frame.
    pub frame: Bytes,
    /// `frame` is the id of a request that gets no answer, and this is why.
    pub given_up: Option<String>,
}

/// Whether anybody looks on at all.
#[inline]
#[must_use]
pub fn is_open() -> bool {
    OPEN.load(Ordering::Relaxed) != 0
}

/// Whether anybody looks on here.
#[must_use]
pub fn is_on(subject: &TapSubject) -> bool {
    is_open() && taps(|tap| tap.subject == *subject)
}

/// Passes a frame to who looks on. To be asked for by [`is_open`] first.
pub fn pass(subject: &TapSubject, connection: u64, from: MessageSender, frame: &Bytes) {
    hand_on(subject, connection, from, frame, None);
}

/// Passes that the request with this id, in JSON, gets no answer.
pub fn pass_given_up(subject: &TapSubject, connection: u64, id: &str, why: String) {
    let id = Bytes::copy_from_slice(id.as_bytes());
    hand_on(subject, connection, MessageSender::Kernel, &id, Some(why));
}

fn hand_on(
    subject: &TapSubject,
    connection: u64,
    from: MessageSender,
    frame: &Bytes,
    given_up: Option<String>,
) {
    let all = TAPS.read().unwrap_or_else(PoisonError::into_inner);
    for tap in all.iter().filter(|tap| tap.subject == *subject) {
        tap.take(frame.len(), || TappedMessage {
            at_ms: unix_ms(),
            at: moment(),
            connection,
            from,
            frame: match frame.len() <= COPIED {
                true => Bytes::copy_from_slice(frame),
                false => frame.clone(),
            },
            given_up: given_up.clone(),
        });
    }
}

fn taps(is_it: impl Fn(&Tap) -> bool) -> bool {
    let all = TAPS.read().unwrap_or_else(PoisonError::into_inner);
    all.iter().any(|tap| is_it(tap))
}

/// What waits for one who looks on.
#[derive(Debug)]
struct Tap {
    subject: TapSubject,
    waiting: Mutex<TapQueue>,
    came: Notify,
}

#[derive(Debug, Default)]
struct TapQueue {
    messages: VecDeque<TappedMessage>,
    bytes: usize,
    missed: u64,
}

impl Tap {
    fn take(&self, bytes: usize, message: impl FnOnce() -> TappedMessage) {
        {
            let mut queue = self.queue();
            // After a gap nothing more is taken until what came before it is: it is told in its place.
            let full = queue.missed > 0
                || queue.messages.len() >= WAITING_MAX
                || queue.bytes.saturating_add(bytes) > WAITING_BYTES_MAX;
            match full {
                true => queue.missed += 1,
                false => {
                    queue.bytes += bytes;
                    queue.messages.push_back(message());
                }
            }
        }
        self.came.notify_one();
    }

    fn queue(&self) -> MutexGuard<'_, TapQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one who looks on takes from a tap.
#[derive(Debug)]
pub enum TapNews {
    /// A message.
    Message(TappedMessage),
    /// So many were missed since.
    Missed(u64),
}

/// A tap, open until this is dropped.
#[derive(Debug)]
pub struct OpenTap(Arc<Tap>);

impl OpenTap {
    /// `None` while [`TAPS_MAX`] are open.
    #[must_use]
    pub fn on(subject: TapSubject) -> Option<Self> {
        let mut all = TAPS.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= TAPS_MAX {
            return None;
        }
        let tap = Arc::new(Tap {
            subject,
            waiting: Mutex::default(),
            came: Notify::new(),
        });
        all.push(tap.clone());
        OPEN.store(all.len(), Ordering::Relaxed);
        Some(Self(tap))
    }

    /// What passed, in order. What was missed is said when all that waited is taken: it came after that.
    pub async fn next(&self) -> TapNews {
        loop {
            if let Some(news) = self.waiting() {
                return news;
            }
            self.0.came.notified().await;
        }
    }

    fn waiting(&self) -> Option<TapNews> {
        let mut queue = self.0.queue();
        if let Some(message) = queue.messages.pop_front() {
            queue.bytes -= message.frame.len();
            return Some(TapNews::Message(message));
        }
        let missed = std::mem::take(&mut queue.missed);
        (missed > 0).then_some(TapNews::Missed(missed))
    }
}

impl Drop for OpenTap {
    fn drop(&mut self) {
        let mut all = TAPS.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|tap| !Arc::ptr_eq(tap, &self.0));
        OPEN.store(all.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0068: one story, because taps are the process's: who passes messages never waits, what is too much
    /// is counted and told in its place, and nothing is left when the last tap is closed.
    #[tokio::test]
    async fn a_tap_that_is_not_read_misses_messages_and_says_how_many() {
        let subject = TapSubject::Server(ServerId::new("a"));
        let frame = Bytes::from_static(b"{}");
        let pass = |of: &TapSubject| pass(of, 1, MessageSender::Server, &frame);
        assert!(!is_open());
        let tap = OpenTap::on(subject.clone()).unwrap();
        assert!(is_on(&subject));
        let other = TapSubject::Agent(AgentId::new("a"));
        assert!(!is_on(&other));
        pass(&other);
        for _ in 0..WAITING_MAX + 142 {
            pass(&subject);
        }
        for _ in 0..WAITING_MAX {
            assert!(matches!(tap.next().await, TapNews::Message(_)));
        }
        assert!(matches!(tap.next().await, TapNews::Missed(142)));
        for _ in 0..=WAITING_MAX {
            pass(&subject);
        }
        assert!(matches!(tap.next().await, TapNews::Message(_)));
        // There is room again, but what comes now would stand before the gap.
        pass(&subject);
        for _ in 1..WAITING_MAX {
            assert!(matches!(tap.next().await, TapNews::Message(_)));
        }
        assert!(matches!(tap.next().await, TapNews::Missed(2)));
        let large = Bytes::from(vec![b' '; WAITING_BYTES_MAX]);
        super::pass(&subject, 1, MessageSender::Kernel, &large);
        pass(&subject);
        assert!(matches!(tap.next().await, TapNews::Message(_)));
        assert!(matches!(tap.next().await, TapNews::Missed(1)));
        // What was taken makes room, to the byte.
        let half = large.slice(..WAITING_BYTES_MAX / 2);
        for _ in 0..3 {
            super::pass(&subject, 1, MessageSender::Kernel, &half);
        }
        for _ in 0..2 {
            assert!(matches!(tap.next().await, TapNews::Message(_)));
        }
        assert!(matches!(tap.next().await, TapNews::Missed(1)));
        let more: Vec<_> = (1..TAPS_MAX)
            .map(|_| OpenTap::on(subject.clone()).unwrap())
            .collect();
        assert!(OpenTap::on(subject.clone()).is_none());
        pass_given_up(&subject, 1, "7", "lost".into());
        for tap in &more {
            let TapNews::Message(message) = tap.next().await else {
                panic!("nothing was missed");
            };
            assert_eq!(message.given_up.as_deref(), Some("lost"));
        }
        drop(more);
        drop(tap);
        assert!(!is_open());
        pass(&subject);
        assert!(TAPS.read().unwrap().is_empty());
    }
}
