//! A reader gets replay, then live events of its lane, without gap and without duplicate.
//!
//! Readers read from the ring itself and nowhere else, so replay and live have no seam between
//! them: what is new lands where the next poll looks. What is gone is told as [`RingNext::Lost`], never
//! passed over in silence.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub use crate::admission_error::AdmissionError;
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
/// A ring that holds nothing has allocated nothing.
pub struct Ring<T> {
    log: Mutex<RingLog<T>>,
    limits: RingLimits,
}

/// How much a ring holds.
///
/// Memory is bounded by `bytes` for replay plus twice `undelivered` events of whatever an event may
/// weigh. Lanes are bounded by the caller, who closes each when its stream ends: a lane is
/// forgotten when it is closed and has neither an event nor a reader left.
#[derive(Clone, Copy, Debug)]
pub struct RingLimits {
    /// The newest events that stay for replay, at most.
    pub events: usize,
    /// The sum of their weights, at most, in bytes. An event above it leaves nothing for replay,
    /// neither itself nor what was before.
    pub bytes: usize,
    /// Older events that are held only because an attached reader has not taken one yet, at most;
    /// there is room for as many again, which [`Ring::push_reserved`] alone may use.
    pub max_undelivered: usize,
}

/// What a reader finds next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingNext<T> {
    /// An event of the lane; later ones have a higher number.
    Event {
        /// Its number in the ring.
        seq: u64,
        /// What was pushed.
        item: T,
    },
    /// The lane is closed and everything in it was taken.
    End,
    /// A newer reader has the lane, or this one was too slow.
    Detached,
    /// Events after the reader's place are gone. Told once; then come those that are left.
    Lost,
}

/// The one who reads a lane; dropping it leaves the lane to the next.
#[must_use = "dropping the reader detaches it"]
pub struct RingReader<T> {
    ring: Arc<Ring<T>>,
    lane: u64,
    reader_id: u64,
}

/// The `after` of a reader that wants no replay, see [`Ring::attach`].
pub const LIVE: u64 = u64::MAX;

/// No allocation is larger, so clamping weights to it loses nothing, and two of them never overflow.
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

    /// Adds an event of `weight` bytes to a lane, which opens with its first event, and wakes the
    /// lane's reader. Gives its number: 1, 2, 3, … through all lanes.
    ///
    /// # Errors
    /// [`AdmissionError::Accept`] when `undelivered` events are held for readers that do not take them (see
    /// [`detach_slowest`](Self::detach_slowest)); [`AdmissionError::Closed`] when the lane or the ring is.
    pub fn push(&self, lane: u64, item: T, weight: usize) -> Result<u64, AdmissionError<T>> {
        self.push_within(lane, item, weight, self.limits.max_undelivered)
    }

    /// Adds an event that must not be lost: however many others wait, there is room reserved for it.
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

    /// The lane of an event that is still held.
    pub fn lane_for_seq(&self, seq: u64) -> Option<u64> {
        self.log.lock().lane_for_seq(seq)
    }

    /// Reads a lane from the event after number `after` on, in the place of any older reader.
    ///
    /// 0 reads all that is left of the lane; a number not given yet, such as [`LIVE`], reads only
    /// what comes. A lane not known is opened by either; with any other `after` it is one that was
    /// forgotten, and the reader finds [`RingNext::Lost`] (unless nothing can be missing) and
    /// [`RingNext::End`].
    pub fn attach(self: &Arc<Self>, lane: u64, after: u64) -> RingReader<T> {
        let (number, former) = self.log.lock().attach(lane, after);
        former.into_iter().for_each(Waker::wake);
        RingReader {
            ring: Arc::clone(self),
            lane,
            reader_id: number,
        }
    }

    /// Detaches the reader that holds the ring up longest and gives its lane; `None` when every
    /// reader has taken all there is. Its events stay as far as the limits go: it may come back.
    pub fn detach_slowest(&self) -> Option<u64> {
        let (lane, waker) = self.log.lock().detach_slowest()?;
        waker.into_iter().for_each(Waker::wake);
        Some(lane)
    }

    /// Ends a lane: its reader takes what is left, then finds [`RingNext::End`].
    pub fn close_lane(&self, lane: u64) {
        let waker = self.log.lock().close_lane(lane);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Ends all lanes and refuses every later event.
    pub fn close(&self) {
        let wakers = self.log.lock().close();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<T: Clone> RingReader<T> {
    /// Takes the next event, or leaves the task's waker where the next event comes in.
    ///
    /// [`RingNext::End`] and [`RingNext::Detached`] are final: every later poll finds them again.
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
