//! Any number of readers, each at its own position, read the last events of one log. The writer never waits, and a
//! reader learns when it missed events.

use std::collections::VecDeque;

use crate::shim::{AtomicUsize, Mutex, Ordering};

#[cfg(all(test, mgp_loom))]
mod loom_tests;
#[cfg(all(test, not(mgp_loom)))]
mod tests;

/// The last events of one source, at positions 1, 2, 3, …; a position without an event belongs to one that was lost
/// upstream.
///
/// Events are cloned and dropped under its lock: let `T` be an `Arc`, `Bytes` or the like.
pub struct Feed<T> {
    log: Mutex<FeedLog<T>>,
}

/// Limits of a feed.
#[derive(Clone, Copy, Debug)]
pub struct FeedLimits {
    /// Most events.
    pub events: usize,
    /// Largest sum of weights, in bytes. A heavier event empties the feed, and is dropped as well.
    pub bytes: usize,
}

/// What follows a reader's position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedRead<T> {
    /// Each with its position.
    pub events: Vec<(u64, T)>,
    /// Events between the reader's position and these were evicted.
    pub has_gap: bool,
}

struct FeedLog<T> {
    events: VecDeque<FeedEvent<T>>,
    bytes: usize,
    /// The last position assigned, 0 before the first.
    newest_position: u64,
    /// The position of the newest evicted event, 0 without one.
    evicted_through: u64,
}

struct FeedEvent<T> {
    position: u64,
    weight: usize,
    item: T,
}

impl<T> Default for Feed<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Feed<T> {
    /// An empty feed.
    #[must_use]
    pub fn new() -> Self {
        let log = FeedLog {
            events: VecDeque::new(),
            bytes: 0,
            newest_position: 0,
            evicted_through: 0,
        };
        Self {
            log: Mutex::new(log),
        }
    }

    /// Adds an event after `missed` lost ones, evicts the oldest beyond the limits, and returns its position.
    pub fn push(&self, item: T, weight: usize, missed: u64, limits: FeedLimits) -> u64 {
        let mut log = self.log.lock();
        log.newest_position = log.newest_position.saturating_add(missed).saturating_add(1);
        log.bytes = log.bytes.saturating_add(weight);
        let position = log.newest_position;
        log.events.push_back(FeedEvent {
            position,
            weight,
            item,
        });
        while log.events.len() > limits.events || log.bytes > limits.bytes {
            let Some(oldest) = log.events.pop_front() else {
                break;
            };
            log.bytes -= oldest.weight;
            log.evicted_through = oldest.position;
        }
        position
    }

    /// The last position assigned: reading from here yields only future events.
    pub fn newest_position(&self) -> u64 {
        self.log.lock().newest_position
    }
}

impl<T: Clone> Feed<T> {
    /// At most `most` events after a position.
    pub fn read(&self, after: u64, most: usize) -> FeedRead<T> {
        let log = self.log.lock();
        let begin = log.events.partition_point(|event| event.position <= after);
        let rest = log.events.range(begin..).take(most);
        FeedRead {
            events: rest
                .map(|event| (event.position, event.item.clone()))
                .collect(),
            has_gap: log.evicted_through > after,
        }
    }
}

opaque_debug!(Feed<T>);

/// Wakes a reader once for any number of events before its next read.
///
/// A writer calls [`signal`](Self::signal) after adding, a reader [`reset`](Self::reset) before reading. Then the
/// reader sees each event or is woken for it.
#[derive(Default)]
pub struct Wakeup(AtomicUsize);

impl Wakeup {
    /// Without a pending signal.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Announces an event. True when the reader must be woken: this is the first signal since its reset.
    #[must_use]
    pub fn signal(&self) -> bool {
        self.0.swap(1, Ordering::AcqRel) == 0
    }

    /// Called by the reader before it reads.
    pub fn reset(&self) {
        self.0.swap(0, Ordering::AcqRel);
    }
}

opaque_debug!(Wakeup);
