//! What lies under the ring's lock: the events held, and how far each lane and its reader has come.
//!
//! Nothing here wakes anyone: wakers come out, for the ring to wake once the lock is free.

use std::task::Waker;

use super::events::{RingEvent, RingEvents};
use super::{NotAdmitted, RingLimits, RingNext};
use crate::numbers::NumberMap;

pub(super) struct RingLog<T> {
    events: RingEvents<T>,
    /// How many of the oldest are past the limits, held only because the first is awaited.
    overdue: usize,
    /// The weight of those that are not.
    bytes: usize,
    lanes: NumberMap<RingLane>,
    /// The newest event of all lanes that were forgotten.
    forgotten: u64,
    /// The number of the last reader.
    readers: u64,
    closed: bool,
}

#[derive(Default)]
struct RingLane {
    seat: Option<Seat>,
    /// Its newest event, 0 before the first.
    newest: u64,
    /// The newest of its events that are gone; when that is `newest`, none is left.
    gone: u64,
    closed: bool,
}

/// The place of the one reader of a lane.
struct Seat {
    reader: u64,
    /// Up to here everything of the lane was taken, or is told as lost.
    cursor: u64,
    lost: bool,
    waker: Option<Waker>,
}

impl<T> RingLog<T> {
    pub(super) fn new() -> Self {
        Self {
            events: RingEvents::new(),
            overdue: 0,
            bytes: 0,
            lanes: NumberMap::default(),
            forgotten: 0,
            readers: 0,
            closed: false,
        }
    }

    pub(super) fn lane_of(&self, seq: u64) -> Option<u64> {
        self.events.lane_of(seq)
    }

    /// Gives the event's number and the waker of who waits for it.
    pub(super) fn push(
        &mut self,
        event: RingEvent<T>,
        limits: &RingLimits,
    ) -> Result<(u64, Option<Waker>), NotAdmitted<T>> {
        let (key, weight) = (event.lane, event.weight);
        if self.closed || self.lanes.get(&key).is_some_and(|lane| lane.closed) {
            return Err(NotAdmitted::Closed(event.item));
        }
        self.events.push(event);
        let (overdue, bytes) = self.aged(weight, limits);
        if overdue - self.unawaited(overdue) > limits.undelivered {
            let event = self.events.take_back().expect("it has just been pushed");
            return Err(NotAdmitted::Full(event.item));
        }
        (self.overdue, self.bytes) = (overdue, bytes);
        let lane = self.lanes.entry(key).or_default();
        lane.newest = self.events.newest();
        let waker = lane.seat.as_mut().and_then(|seat| seat.waker.take());
        self.evict();
        Ok((self.events.newest(), waker))
    }

    /// How many are past the limits, and the weight of the rest, now that `weight` has come in.
    fn aged(&self, weight: usize, limits: &RingLimits) -> (usize, usize) {
        let (mut overdue, mut bytes) = (self.overdue, self.bytes + weight);
        while self.events.len() - overdue > limits.events || bytes > limits.bytes {
            bytes -= self.events.weight(overdue);
            overdue += 1;
        }
        (overdue, bytes)
    }

    /// How many of the `overdue` oldest can go before the first that has to stay.
    fn unawaited(&self, overdue: usize) -> usize {
        let overdue = self.events.numbered().take(overdue);
        let free = overdue.take_while(|&(seq, event)| !self.awaited(seq, event));
        free.count()
    }

    /// True while the reader of its lane has not taken it.
    fn awaited(&self, seq: u64, event: &RingEvent<T>) -> bool {
        let lane = self.lanes.get(&event.lane);
        let seat = lane.and_then(|lane| lane.seat.as_ref());
        seat.is_some_and(|seat| seat.cursor < seq)
    }

    fn evict(&mut self) {
        for _ in 0..self.unawaited(self.overdue) {
            let (seq, event) = self.events.take_oldest().expect("what is overdue is held");
            self.overdue -= 1;
            let lane = self.lanes.get_mut(&event.lane);
            let lane = lane.expect("a lane outlives its events");
            lane.gone = seq;
            self.forget(event.lane);
        }
    }

    fn forget(&mut self, key: u64) {
        let Some(lane) = self.lanes.get(&key) else {
            return;
        };
        if lane.closed && lane.seat.is_none() && lane.gone == lane.newest {
            self.forgotten = self.forgotten.max(lane.gone);
            self.lanes.remove(&key);
        }
    }

    /// Gives the reader's number and the waker of the one before it.
    pub(super) fn attach(&mut self, key: u64, after: u64) -> (u64, Option<Waker>) {
        self.readers += 1;
        let forgotten = (1..=self.events.newest()).contains(&after);
        let gone = if forgotten { self.forgotten } else { 0 };
        let lane = self.lanes.entry(key).or_insert_with(|| RingLane {
            seat: None,
            newest: gone,
            gone,
            closed: forgotten || self.closed,
        });
        let after = after.min(self.events.newest());
        let former = lane.seat.replace(Seat {
            reader: self.readers,
            cursor: after.max(lane.gone),
            lost: after < lane.gone,
            waker: None,
        });
        self.evict();
        (self.readers, former.and_then(|seat| seat.waker))
    }

    /// What the reader finds; `None` when it has to wait.
    pub(super) fn take(&mut self, key: u64, reader: u64) -> Option<RingNext<T>>
    where
        T: Clone,
    {
        let lane = self.lanes.get_mut(&key);
        let seated = lane.and_then(|lane| Some((lane.newest, lane.closed, lane.seat_of(reader)?)));
        let Some((newest, closed, seat)) = seated else {
            return Some(RingNext::Detached);
        };
        if std::mem::take(&mut seat.lost) {
            return Some(RingNext::Lost);
        }
        if newest <= seat.cursor {
            return closed.then_some(RingNext::End);
        }
        let found = self.events.first_after(key, seat.cursor);
        let (seq, item) = found.expect("what a reader has not taken is held");
        let item = item.clone();
        seat.cursor = seq;
        self.evict();
        Some(RingNext::Event { seq, item })
    }

    /// Leaves the waker of a reader that found nothing and gives the one it left before.
    pub(super) fn wait(&mut self, key: u64, waker: &Waker) -> Option<Waker> {
        let seat = self.lanes.get_mut(&key).and_then(|lane| lane.seat.as_mut());
        let seat = seat.expect("only the reader of a lane waits there");
        seat.waker.replace(waker.clone())
    }

    /// Gives the waker it left, unless a newer reader sits in its place.
    pub(super) fn detach(&mut self, key: u64, reader: u64) -> Option<Waker> {
        let lane = self.lanes.get_mut(&key)?;
        let seat = lane.seat.take_if(|seat| seat.reader == reader)?;
        self.evict();
        self.forget(key);
        seat.waker
    }

    /// Gives the lane of the slowest reader and the waker it left.
    pub(super) fn detach_slowest(&mut self) -> Option<(u64, Option<Waker>)> {
        let awaited = |&(seq, event): &(u64, &RingEvent<T>)| self.awaited(seq, event);
        let key = self.events.numbered().find(awaited)?.1.lane;
        let reader = self.lanes.get(&key)?.seat.as_ref()?.reader;
        Some((key, self.detach(key, reader)))
    }

    /// Gives the waker of the reader that now finds the end.
    pub(super) fn close_lane(&mut self, key: u64) -> Option<Waker> {
        let lane = self.lanes.get_mut(&key)?;
        lane.closed = true;
        let waker = lane.seat.as_mut().and_then(|seat| seat.waker.take());
        self.forget(key);
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
    fn seat_of(&mut self, reader: u64) -> Option<&mut Seat> {
        self.seat.as_mut().filter(|seat| seat.reader == reader)
    }
}

#[cfg(test)]
impl<T> RingLog<T> {
    /// How many events are held, and how many lanes remembered.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.events.len(), self.lanes.len())
    }
}
