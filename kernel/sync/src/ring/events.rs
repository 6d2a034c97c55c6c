//! Held events with consecutive numbers, each with its lane.

use std::collections::VecDeque;

pub(super) struct RingEvent<T> {
    pub(super) lane: u64,
    pub(super) weight: usize,
    pub(super) item: T,
}

/// Grows at the newest end and shrinks at the oldest; the last event is number `newest`.
pub(super) struct RingEvents<T> {
    events: VecDeque<RingEvent<T>>,
    newest_seq: u64,
}

impl<T> RingEvents<T> {
    pub(super) fn new() -> Self {
        Self {
            events: VecDeque::new(),
            newest_seq: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// The last number assigned, 0 before the first.
    pub(super) fn newest_seq(&self) -> u64 {
        self.newest_seq
    }

    /// The number of the oldest event, or of the next one if none is held.
    fn oldest_seq(&self) -> u64 {
        self.newest_seq + 1 - self.events.len() as u64
    }

    pub(super) fn push(&mut self, event: RingEvent<T>) {
        self.events.push_back(event);
        self.newest_seq += 1;
    }

    /// Undoes the latest push.
    pub(super) fn pop_newest(&mut self) -> Option<RingEvent<T>> {
        let event = self.events.pop_back()?;
        self.newest_seq -= 1;
        Some(event)
    }

    pub(super) fn pop_oldest(&mut self) -> Option<(u64, RingEvent<T>)> {
        let oldest = self.oldest_seq();
        self.events.pop_front().map(|event| (oldest, event))
    }

    /// The weight of the event at an index, 0 being the oldest.
    pub(super) fn weight_at(&self, index: usize) -> usize {
        self.events[index].weight
    }

    pub(super) fn lane_for_seq(&self, seq: u64) -> Option<u64> {
        let index = usize::try_from(seq.checked_sub(self.oldest_seq())?).ok()?;
        self.events.get(index).map(|event| event.lane)
    }

    /// All events with their numbers, oldest first.
    pub(super) fn iter_numbered(&self) -> impl Iterator<Item = (u64, &RingEvent<T>)> {
        (self.oldest_seq()..).zip(&self.events)
    }

    /// The first event of a lane after `cursor`, which is not in the future. Skips events of other lanes; a reader
    /// skips each event once.
    pub(super) fn first_after(&self, lane: u64, cursor: u64) -> Option<(u64, &T)> {
        let oldest = self.oldest_seq();
        let start = (cursor + 1).max(oldest);
        let index = usize::try_from(start - oldest).expect("it is within what is held");
        let mut rest = (start..).zip(self.events.range(index..));
        let (seq, event) = rest.find(|(_, event)| event.lane == lane)?;
        Some((seq, &event.item))
    }
}
