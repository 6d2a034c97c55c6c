//! Any number of readers, each at a place of its own, read the last events of one log; the writer waits for
//! none of them, and what a reader missed is told.

use std::collections::VecDeque;

use crate::shim::{AtomicUsize, Mutex, Ordering};

#[cfg(all(test, mgp_loom))]
mod loom_tests;
#[cfg(all(test, not(mgp_loom)))]
mod tests;

/// The last events of one source. Each has a place: 1, 2, 3, …; a place without an event is one of an event
/// that was lost before it came here.
///
/// Events are cloned and dropped under its lock: let `T` be an `Arc`, `Bytes` or the like.
pub struct Feed<T> {
    log: Mutex<FeedLog<T>>,
}

/// How much a feed holds.
#[derive(Clone, Copy, Debug)]
pub struct FeedLimits {
    /// Events, at most.
    pub events: usize,
    /// The sum of their weights, at most, in bytes. An event above it leaves none, not even itself.
    pub bytes: usize,
}

/// What a reader finds after its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedRead<T> {
    /// Each with its place.
    pub events: Vec<(u64, T)>,
    /// Events between the reader's place and these are gone.
    pub has_gap: bool,
}

struct FeedLog<T> {
    events: VecDeque<FeedEvent<T>>,
    bytes: usize,
    /// The last place given, 0 before the first.
    newest_position: u64,
    /// The place of the newest event that is gone, 0 when none is.
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
    /// Without events.
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

    /// Adds an event after `missed` places of events that were lost, and drops the oldest beyond the limits.
    /// Gives its place.
    pub fn push(&self, item: T, weight: usize, missed: u64, limits: FeedLimits) -> u64 {
        let mut log = self.log.lock();
        log.newest_position = log.newest_position.saturating_add(missed).saturating_add(1);
        log.bytes = log.bytes.saturating_add(weight);
        let place = log.newest_position;
        log.events.push_back(FeedEvent {
            position: place,
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
        place
    }

    /// The last place given: who reads from here on reads only what comes.
    pub fn newest_position(&self) -> u64 {
        self.log.lock().newest_position
    }
}

impl<T: Clone> Feed<T> {
    /// The events after a place, at most so many.
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

/// Wakes a reader once, however often there is something new before it looks.
///
/// Who adds something rings after adding it; who reads settles before reading. Then nothing is added that a
/// reader neither sees nor is woken for.
#[derive(Default)]
pub struct Wakeup(AtomicUsize);

impl Wakeup {
    /// Not rung.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// There is something new. True when the reader is to be woken: it was not rung for since it settled.
    #[must_use]
    pub fn signal(&self) -> bool {
        self.0.swap(1, Ordering::AcqRel) == 0
    }

    /// The reader is about to look.
    pub fn reset(&self) {
        self.0.swap(0, Ordering::AcqRel);
    }
}

opaque_debug!(Wakeup);
