//! A reader gets replay, then live events of its lane, without gap and without duplicate.
//!
//! Readers read only from the ring, so replay and live events have no seam. Evicted events are reported as
//! [`RingNext::Lost`], never skipped silently.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::admission_error::AdmissionError;
use crate::shim::Mutex;

mod events;
mod log;
#[cfg(all(test, mgp_loom))]
mod loom_tests;
#[cfg(all(test, not(mgp_loom)))]
mod tests;

use events::RingEvent;
use log::RingLog;

/// The events of one session, numbered through all its lanes; a lane is one stream of the session.
///
/// Events are cloned and dropped under the ring's lock: let `T` be an `Arc`, `Bytes` or the like.
/// An empty ring allocates nothing.
pub struct Ring<T> {
    log: Mutex<RingLog<T>>,
    limits: RingLimits,
}

/// Limits of a ring.
///
/// Memory is bounded by `bytes` for replay plus twice `undelivered` events of the largest weight. The caller bounds
/// lanes by closing each when its stream ends: a closed lane without events and reader is forgotten.
#[derive(Clone, Copy, Debug)]
pub struct RingLimits {
    /// Most events kept for replay.
    pub events: usize,
    /// Largest sum of their weights, in bytes. A heavier event leaves nothing for replay, itself included.
    pub bytes: usize,
    /// Most older events held only for an attached reader that has not taken one yet; as many again are reserved for
    /// [`Ring::push_reserved`].
    pub max_undelivered: usize,
}

/// The next item of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingNext<T> {
    /// An event of the lane; later ones have a higher number.
    Event {
        /// Its number in the ring.
        seq: u64,
        /// The pushed item.
        item: T,
    },
    /// The lane is closed and read to its end.
    End,
    /// A newer reader took the lane over, or this one was too slow.
    Detached,
    /// Events after the reader's cursor were evicted. Reported once; the remaining ones follow.
    Lost,
}

/// The only reader of a lane; dropping it frees the lane for the next.
#[must_use = "dropping the reader detaches it"]
pub struct RingReader<T> {
    ring: Arc<Ring<T>>,
    lane: u64,
    reader_id: u64,
}

/// `after` for no replay, see [`Ring::attach`].
pub const LIVE: u64 = u64::MAX;

/// No allocation is larger, so clamping weights loses nothing, and the sum of two never overflows.
const MAX_WEIGHT: usize = isize::MAX as usize;

impl<T> Ring<T> {
    /// An empty ring.
    #[must_use]
    pub fn new(limits: RingLimits) -> Self {
        let bytes = limits.bytes.min(MAX_WEIGHT);
        Self {
            log: Mutex::new(RingLog::new()),
            limits: RingLimits { bytes, ..limits },
        }
    }

    /// Adds an event of `weight` bytes to a lane, which opens with its first event, and wakes the lane's reader. Returns
    /// its number: 1, 2, 3, … across all lanes.
    ///
    /// # Errors
    /// [`AdmissionError::Accept`] when `undelivered` events are held for readers that do not take them (see
    /// [`detach_slowest`](Self::detach_slowest)); [`AdmissionError::Closed`] when the lane or the ring is.
    pub fn push(&self, lane: u64, item: T, weight: usize) -> Result<u64, AdmissionError<T>> {
        self.push_within(lane, item, weight, self.limits.max_undelivered)
    }

    /// Adds an event that must not be lost, using the reserved capacity.
    ///
    /// # Errors
    /// As [`push`](Self::push), but [`AdmissionError::Accept`] only at twice `undelivered`.
    pub fn push_reserved(
        &self,
        lane: u64,
        item: T,
        weight: usize,
    ) -> Result<u64, AdmissionError<T>> {
        self.push_within(
            lane,
            item,
            weight,
            self.limits.max_undelivered.saturating_mul(2),
        )
    }

    fn push_within(
        &self,
        lane: u64,
        item: T,
        weight: usize,
        most: usize,
    ) -> Result<u64, AdmissionError<T>> {
        let weight = weight.min(MAX_WEIGHT);
        let event = RingEvent { lane, weight, item };
        let limits = RingLimits {
            max_undelivered: most,
            ..self.limits
        };
        let (seq, waker) = self.log.lock().push(event, &limits)?;
        waker.into_iter().for_each(Waker::wake);
        Ok(seq)
    }

    /// The lane of a held event.
    pub fn lane_for_seq(&self, seq: u64) -> Option<u64> {
        self.log.lock().lane_for_seq(seq)
    }

    /// Reads a lane from the event after number `after` on, and replaces any older reader.
    ///
    /// 0 reads all that is left of the lane; a number not assigned yet, such as [`LIVE`], reads only future events. Both
    /// open an unknown lane. With any other `after` an unknown lane counts as forgotten: the reader gets
    /// [`RingNext::Lost`] (unless nothing can be missing) and [`RingNext::End`].
    pub fn attach(self: &Arc<Self>, lane: u64, after: u64) -> RingReader<T> {
        let (number, former) = self.log.lock().attach(lane, after);
        former.into_iter().for_each(Waker::wake);
        RingReader {
            ring: Arc::clone(self),
            lane,
            reader_id: number,
        }
    }

    /// Detaches the slowest reader and returns its lane; `None` if every reader is up to date. Its events stay within
    /// the limits, since it may attach again.
    pub fn detach_slowest(&self) -> Option<u64> {
        let (lane, waker) = self.log.lock().detach_slowest()?;
        waker.into_iter().for_each(Waker::wake);
        Some(lane)
    }

    /// Ends a lane: its reader takes the rest, then gets [`RingNext::End`].
    pub fn close_lane(&self, lane: u64) {
        let waker = self.log.lock().close_lane(lane);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Ends all lanes and rejects every later event.
    pub fn close(&self) {
        let wakers = self.log.lock().close();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<T: Clone> RingReader<T> {
    /// Takes the next event, or registers the task's waker.
    ///
    /// [`RingNext::End`] and [`RingNext::Detached`] are final: every later poll returns them again.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<RingNext<T>> {
        let mut log = self.ring.log.lock();
        if let Some(next) = log.take_next(self.lane, self.reader_id) {
            return Poll::Ready(next);
        }
        let former = log.register_waker(self.lane, cx.waker());
        drop(log);
        drop(former);
        Poll::Pending
    }
}

impl<T> Drop for RingReader<T> {
    fn drop(&mut self) {
        let waker = self.ring.log.lock().detach(self.lane, self.reader_id);
        drop(waker);
    }
}

opaque_debug!(Ring<T>);
opaque_debug!(RingReader<T>);
