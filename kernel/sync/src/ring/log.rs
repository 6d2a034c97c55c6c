//! The state under the ring's lock: held events, lanes, and the cursors of readers.
//!
//! Methods return wakers, which the ring wakes after it has released the lock.

use std::task::Waker;

use super::events::{RingEvent, RingEvents};
use super::{AdmissionError, RingLimits, RingNext};
use crate::number_map::NumberMap;

pub(super) struct RingLog<T> {
    events: RingEvents<T>,
    /// Count of the oldest beyond the limits, held only because a reader awaits the first.
    over_limit: usize,
    /// Weight of the events within the limits.
    bytes: usize,
    lanes: NumberMap<RingLane>,
    /// The newest event of all forgotten lanes.
    removed_through: u64,
    last_reader_id: u64,
    closed: bool,
}

#[derive(Default)]
struct RingLane {
    reader: Option<ReaderSlot>,
    /// Its newest event, 0 before the first.
    newest_seq: u64,
    /// Its newest evicted event; equal to `newest` if none is left.
    evicted_through: u64,
    closed: bool,
}

/// The only reader of a lane.
struct ReaderSlot {
    reader_id: u64,
    /// Up to here everything of the lane was taken or reported as lost.
    cursor: u64,
    has_lost_events: bool,
    waker: Option<Waker>,
}

impl<T> RingLog<T> {
    pub(super) fn new() -> Self {
        Self {
            events: RingEvents::new(),
            over_limit: 0,
            bytes: 0,
            lanes: NumberMap::default(),
            removed_through: 0,
            last_reader_id: 0,
            closed: false,
        }
    }

    pub(super) fn lane_for_seq(&self, seq: u64) -> Option<u64> {
        self.events.lane_for_seq(seq)
    }

    /// Returns the event's number and the waker of its waiting reader.
    pub(super) fn push(
        &mut self,
        event: RingEvent<T>,
        limits: &RingLimits,
    ) -> Result<(u64, Option<Waker>), AdmissionError<T>> {
        let (key, weight) = (event.lane, event.weight);
        if self.closed || self.lanes.get(&key).is_some_and(|lane| lane.closed) {
            return Err(AdmissionError::Closed(event.item));
        }
        self.events.push(event);
        let (overdue, bytes) = self.over_limit_after(weight, limits);
        if overdue - self.evictable_count(overdue) > limits.max_undelivered {
            let event = self.events.pop_newest().expect("it has just been pushed");
            return Err(AdmissionError::Full(event.item));
        }
        (self.over_limit, self.bytes) = (overdue, bytes);
        let lane = self.lanes.entry(key).or_default();
        lane.newest_seq = self.events.newest_seq();
        let waker = lane.reader.as_mut().and_then(|slot| slot.waker.take());
        self.evict();
        Ok((self.events.newest_seq(), waker))
    }

    /// The count beyond the limits, and the weight of the rest, after an event of `weight` arrived.
    fn over_limit_after(&self, weight: usize, limits: &RingLimits) -> (usize, usize) {
        let (mut overdue, mut bytes) = (self.over_limit, self.bytes + weight);
        while self.events.len() - overdue > limits.events || bytes > limits.bytes {
            bytes -= self.events.weight_at(overdue);
            overdue += 1;
        }
        (overdue, bytes)
    }

    /// How many of the `overdue` oldest can be evicted before the first awaited one.
    fn evictable_count(&self, overdue: usize) -> usize {
        let overdue = self.events.iter_numbered().take(overdue);
        let free = overdue.take_while(|&(seq, event)| !self.is_awaited(seq, event));
        free.count()
    }

    /// True until the reader of its lane has taken it.
    fn is_awaited(&self, seq: u64, event: &RingEvent<T>) -> bool {
        let lane = self.lanes.get(&event.lane);
        let slot = lane.and_then(|lane| lane.reader.as_ref());
        slot.is_some_and(|slot| slot.cursor < seq)
    }

    fn evict(&mut self) {
        for _ in 0..self.evictable_count(self.over_limit) {
            let (seq, event) = self.events.pop_oldest().expect("what is overdue is held");
            self.over_limit -= 1;
            let lane = self.lanes.get_mut(&event.lane);
            let lane = lane.expect("a lane outlives its events");
            lane.evicted_through = seq;
            self.remove_finished_lane(event.lane);
        }
    }

    fn remove_finished_lane(&mut self, key: u64) {
        let Some(lane) = self.lanes.get(&key) else {
            return;
        };
        if lane.closed && lane.reader.is_none() && lane.evicted_through == lane.newest_seq {
            self.removed_through = self.removed_through.max(lane.evicted_through);
            self.lanes.remove(&key);
        }
    }

    /// Returns the reader's number and the waker of its predecessor.
    pub(super) fn attach(&mut self, key: u64, after: u64) -> (u64, Option<Waker>) {
        self.last_reader_id += 1;
        let forgotten = (1..=self.events.newest_seq()).contains(&after);
        let evicted_through = if forgotten { self.removed_through } else { 0 };
        let lane = self.lanes.entry(key).or_insert_with(|| RingLane {
            reader: None,
            newest_seq: evicted_through,
            evicted_through,
            closed: forgotten || self.closed,
        });
        let after = after.min(self.events.newest_seq());
        let former = lane.reader.replace(ReaderSlot {
            reader_id: self.last_reader_id,
            cursor: after.max(lane.evicted_through),
            has_lost_events: after < lane.evicted_through,
            waker: None,
        });
        self.evict();
        (self.last_reader_id, former.and_then(|slot| slot.waker))
    }

    /// The reader's next item; `None` if it has to wait.
    pub(super) fn take_next(&mut self, key: u64, reader: u64) -> Option<RingNext<T>>
    where
        T: Clone,
    {
        let lane = self.lanes.get_mut(&key);
        let attached =
            lane.and_then(|lane| Some((lane.newest_seq, lane.closed, lane.reader_slot(reader)?)));
        let Some((newest, closed, slot)) = attached else {
            return Some(RingNext::Detached);
        };
        if std::mem::take(&mut slot.has_lost_events) {
            return Some(RingNext::Lost);
        }
        if newest <= slot.cursor {
            return closed.then_some(RingNext::End);
        }
        let next = self.events.first_after(key, slot.cursor);
        let (seq, item) = next.expect("what a reader has not taken is held");
        let item = item.clone();
        slot.cursor = seq;
        self.evict();
        Some(RingNext::Event { seq, item })
    }

    /// Registers the waker of a reader that found nothing, and returns its previous one.
    pub(super) fn register_waker(&mut self, key: u64, waker: &Waker) -> Option<Waker> {
        let slot = self
            .lanes
            .get_mut(&key)
            .and_then(|lane| lane.reader.as_mut());
        let slot = slot.expect("only the reader of a lane waits there");
        slot.waker.replace(waker.clone())
    }

    /// Returns its waker, unless a newer reader replaced it.
    pub(super) fn detach(&mut self, key: u64, reader: u64) -> Option<Waker> {
        let lane = self.lanes.get_mut(&key)?;
        let slot = lane.reader.take_if(|slot| slot.reader_id == reader)?;
        self.evict();
        self.remove_finished_lane(key);
        slot.waker
    }

    /// Returns the lane of the slowest reader and its waker.
    pub(super) fn detach_slowest(&mut self) -> Option<(u64, Option<Waker>)> {
        let awaited = |&(seq, event): &(u64, &RingEvent<T>)| self.is_awaited(seq, event);
        let key = self.events.iter_numbered().find(awaited)?.1.lane;
        let reader = self.lanes.get(&key)?.reader.as_ref()?.reader_id;
        Some((key, self.detach(key, reader)))
    }

    /// Returns the waker of the lane's reader.
    pub(super) fn close_lane(&mut self, key: u64) -> Option<Waker> {
        let lane = self.lanes.get_mut(&key)?;
        lane.closed = true;
        let waker = lane.reader.as_mut().and_then(|slot| slot.waker.take());
        self.remove_finished_lane(key);
        waker
    }

    pub(super) fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        let lanes: Vec<u64> = self.lanes.keys().copied().collect();
        let wakers = lanes.into_iter().map(|key| self.close_lane(key));
        wakers.flatten().collect()
    }
}

impl RingLane {
    fn reader_slot(&mut self, reader: u64) -> Option<&mut ReaderSlot> {
        self.reader.as_mut().filter(|slot| slot.reader_id == reader)
    }
}

#[cfg(test)]
impl<T> RingLog<T> {
    /// The counts of held events and known lanes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.events.len(), self.lanes.len())
    }
}
