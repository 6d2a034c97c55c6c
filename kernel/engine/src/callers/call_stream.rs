//! The chunks of one call on their way from its server to its reader (MGP §12).
//!
//! Chunks are delivered in the order of their index. A chunk that arrives early waits briefly for the earlier ones,
//! then the gap is skipped. The reader sees the gap, because the server assigns the index. A slow reader blocks
//! nobody: chunks are buffered up to a bound, the server is asked to slow down and then to pause, and chunks beyond
//! the bound are dropped. The final result is complete in any case.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mgp_protocol::mgp::stream::{INDEX_MAX, UNPACED};

use crate::clock::MonotonicTime;

/// Bytes of one stream that may be buffered or on their way to the reader: half of the megabyte that a stream may
/// hold.
pub const BUFFERED_BYTES_MAX: usize = 512 << 10;
/// Bytes of one stream stored after delivery for a reader that requests a resend: the other half.
pub(crate) const REPLAY_BYTES_MAX: usize = 512 << 10;
/// Frames on their way to a reader at once: enough to keep it busy, few enough that the streams of one connection
/// alternate.
pub(crate) const WINDOW: usize = 64;
/// Early chunks that may wait for earlier ones.
const OUT_OF_ORDER_MAX: usize = 64;
/// Missing indices a reader may report and wait for.
const MISSED_MAX: usize = 256;
/// How many pace changes of its reader are sent to a server in one call, so that a reader that keeps changing its
/// pace does not fill the queue of a server shared with others. Later changes are applied here only.
const PACE_CHANGES_MAX: usize = 64;
/// Wait before a resend is requested: a server with several threads may send chunks out of order.
const RESEND_DELAY: Duration = Duration::from_millis(20);
/// How long early chunks wait for earlier ones.
const GAP_TIMEOUT: Duration = Duration::from_millis(250);
/// Shortest pause of a server after a dropped chunk, so that it does not get a message for each one.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Wait before the next attempt when no capacity was left for a frame although none is in flight.
const RETRY_DELAY: Duration = Duration::from_millis(5);

/// What the caller of this state machine has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallStreamEffect<T> {
    /// Deliver this chunk to the reader. It counts as in flight until [`CallStream::acknowledge`] or
    /// [`CallStream::requeue`].
    Deliver(u64, T),
    /// Ask the server to send at most this many chunks a second; `None` removes an earlier limit.
    SetPace(Option<u32>),
    /// Ask the server to resend these chunks.
    RequestResend(Vec<u64>),
}

/// Why a chunk is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkDropReason {
    /// The chunk arrived before.
    Duplicate,
    /// The stream is complete, or its call is answered.
    Late,
    /// The index is above what a reader can represent exactly.
    IndexTooLarge,
    /// The buffer for the reader is full.
    BufferFull,
}

/// How far the reader lags behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lag {
    #[default]
    None,
    /// Half of the bound is buffered: the server may send as many chunks a second as the reader takes.
    Half(u32),
    /// The bound is reached.
    Full,
}

/// A buffered chunk and its size.
#[derive(Debug)]
struct BufferedChunk<T> {
    index: u64,
    bytes: usize,
    item: T,
}

/// The chunks of one call. `T` is a chunk.
#[derive(Debug)]
pub struct CallStream<T> {
    /// The lowest index that has neither arrived nor been skipped.
    next_index: u64,
    ready: VecDeque<BufferedChunk<T>>,
    out_of_order: BTreeMap<u64, BufferedChunk<T>>,
    /// Since when early chunks wait.
    gap_since: Option<MonotonicTime>,
    resend_requested: bool,
    delivered: VecDeque<BufferedChunk<T>>,
    delivered_bytes: usize,
    /// Indices the reader reported as missing, which may still arrive late.
    missed: BTreeSet<u64>,
    /// The last index of the stream, once known.
    last_index: Option<u64>,
    finished: bool,
    buffered_bytes: usize,
    in_flight: usize,
    /// The pace the reader requested, in chunks a second.
    pace: Option<u32>,
    /// How often the pace was changed.
    pace_changes: usize,
    /// The earliest time of the next delivery at that pace.
    next_delivery: MonotonicTime,
    retry_at: Option<MonotonicTime>,
    lag: Lag,
    paused_until: MonotonicTime,
    sent_pace: Option<u32>,
    /// Start of the current second, deliveries in it, and deliveries in the second before.
    rate: (MonotonicTime, u32, u32),
}

impl<T> Default for CallStream<T> {
    fn default() -> Self {
        Self {
            next_index: 0,
            ready: VecDeque::new(),
            out_of_order: BTreeMap::new(),
            gap_since: None,
            resend_requested: false,
            delivered: VecDeque::new(),
            delivered_bytes: 0,
            missed: BTreeSet::new(),
            last_index: None,
            finished: false,
            buffered_bytes: 0,
            in_flight: 0,
            pace: None,
            pace_changes: 0,
            next_delivery: MonotonicTime::START,
            retry_at: None,
            lag: Lag::None,
            paused_until: MonotonicTime::START,
            sent_pace: None,
            rate: (MonotonicTime::START, 0, 0),
        }
    }
}

type Effects<T> = Vec<CallStreamEffect<T>>;

impl<T> CallStream<T> {
    /// Accepts a chunk from the server.
    ///
    /// # Errors
    /// [`ChunkDropReason`] when the chunk is dropped.
    pub fn push_chunk(
        &mut self,
        (index, bytes, done): (u64, usize, bool),
        item: T,
        now: MonotonicTime,
        effects: &mut Effects<T>,
    ) -> Result<(), ChunkDropReason> {
        if index > INDEX_MAX {
            return Err(ChunkDropReason::IndexTooLarge);
        }
        let missed = self.missed.contains(&index);
        let late = self.finished || self.last_index.is_some_and(|last| index > last);
        if late {
            return Err(ChunkDropReason::Late);
        }
        let known = index < self.next_index || self.out_of_order.contains_key(&index);
        if known && !missed {
            return Err(ChunkDropReason::Duplicate);
        }
        if self.buffered_bytes.saturating_add(bytes) > BUFFERED_BYTES_MAX {
            self.skip_chunk((index, done), now, effects);
            return Err(ChunkDropReason::BufferFull);
        }
        if done {
            self.set_last_index(index);
        }
        self.missed.remove(&index);
        self.buffered_bytes += bytes;
        self.buffer_chunk(BufferedChunk { index, bytes, item }, now);
        self.deliver_ready(now, effects);
        Ok(())
    }

    /// Sets the last index: the stream has no chunk with a higher one.
    fn set_last_index(&mut self, index: u64) {
        self.last_index = Some(index);
        let beyond = self.out_of_order.split_off(&(index + 1));
        let bytes: usize = beyond.values().map(|chunk| chunk.bytes).sum();
        self.buffered_bytes -= bytes;
    }

    fn buffer_chunk(&mut self, chunk: BufferedChunk<T>, now: MonotonicTime) {
        if chunk.index > self.next_index {
            self.out_of_order.insert(chunk.index, chunk);
            self.gap_since.get_or_insert(now);
            if self.out_of_order.len() >= OUT_OF_ORDER_MAX {
                self.skip_gap(now);
            }
            return;
        }
        let expected = chunk.index == self.next_index;
        self.ready.push_back(chunk);
        if expected {
            self.next_index += 1;
            self.advance_past_gap(now);
        }
    }

    /// Moves early chunks whose turn has come to the ready queue.
    fn advance_past_gap(&mut self, now: MonotonicTime) {
        let before = self.out_of_order.len();
        while let Some(chunk) = self.out_of_order.remove(&self.next_index) {
            self.ready.push_back(chunk);
            self.next_index += 1;
        }
        if self.out_of_order.is_empty() {
            self.gap_since = None;
            self.resend_requested = false;
        } else if self.out_of_order.len() < before {
            self.gap_since = Some(now);
            self.resend_requested = false;
        }
    }

    /// Skips the gap before the first early chunk.
    fn skip_gap(&mut self, now: MonotonicTime) {
        if let Some((index, _)) = self.out_of_order.first_key_value() {
            self.next_index = *index;
            self.advance_past_gap(now);
        }
    }

    /// Marks a chunk for which there was no capacity: its index is a gap that is not waited for.
    pub fn skip_chunk(
        &mut self,
        (index, done): (u64, bool),
        now: MonotonicTime,
        effects: &mut Effects<T>,
    ) {
        if index > INDEX_MAX {
            return;
        }
        if index == self.next_index && !self.finished {
            self.next_index += 1;
            self.advance_past_gap(now);
        }
        if done && self.last_index.is_none() {
            self.set_last_index(index);
        }
        self.lag = Lag::Full;
        self.paused_until = now + PAUSE_MIN;
        self.deliver_ready(now, effects);
    }

    /// The reader has consumed frames up to this total number of bytes.
    pub fn acknowledge(
        &mut self,
        frames: usize,
        bytes: usize,
        now: MonotonicTime,
        effects: &mut Effects<T>,
    ) {
        self.in_flight = self.in_flight.saturating_sub(frames);
        self.buffered_bytes = self.buffered_bytes.saturating_sub(bytes);
        self.retry_at = None;
        self.deliver_ready(now, effects);
    }

    /// Puts back chunks for which no capacity was left, in their order of delivery.
    pub fn requeue(&mut self, refused: Vec<(u64, usize, T)>, now: MonotonicTime) {
        for (index, bytes, item) in refused.into_iter().rev() {
            self.in_flight = self.in_flight.saturating_sub(1);
            self.rate.1 = self.rate.1.saturating_sub(1);
            self.ready.push_front(BufferedChunk { index, bytes, item });
            self.retry_at = Some(now + RETRY_DELAY);
        }
    }

    /// Stores a delivered chunk for resends; the oldest is discarded first.
    pub fn retain_delivered(&mut self, index: u64, bytes: usize, item: T) {
        let known = self.delivered.iter().rev().any(|kept| kept.index == index);
        if known || bytes > REPLAY_BYTES_MAX {
            return;
        }
        while self.delivered_bytes + bytes > REPLAY_BYTES_MAX
            && let Some(oldest) = self.delivered.pop_front()
        {
            self.delivered_bytes -= oldest.bytes;
        }
        self.delivered_bytes += bytes;
        self.delivered
            .push_back(BufferedChunk { index, bytes, item });
    }

    /// The reader limits its pace to this many chunks a second; 0 pauses until the next change.
    pub fn set_pace(&mut self, rate: u32, now: MonotonicTime, effects: &mut Effects<T>) {
        self.pace = (rate < UNPACED).then_some(rate);
        self.pace_changes = self.pace_changes.saturating_add(1);
        self.next_delivery = now;
        self.deliver_ready(now, effects);
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: MonotonicTime, effects: &mut Effects<T>) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
        }
        self.deliver_ready(now, effects);
    }

    /// When [`Self::handle_timeout`] must be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<MonotonicTime> {
        let wait = if self.resend_requested {
            GAP_TIMEOUT
        } else {
            RESEND_DELAY
        };
        let gap = self.gap_since.map(|since| since + wait);
        let paced = (self.can_deliver() && self.retry_at.is_none()).then_some(self.next_delivery);
        let drained = self.lag == Lag::Full && self.buffered_bytes <= BUFFERED_BYTES_MAX / 4;
        let resumed = (drained && !self.finished).then_some(self.paused_until);
        [gap, paced, resumed, self.retry_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// The call is answered: early chunks are delivered without the missing ones, and no more are accepted.
    pub fn finish(&mut self, now: MonotonicTime, effects: &mut Effects<T>) {
        self.finished = true;
        while !self.out_of_order.is_empty() {
            self.skip_gap(now);
        }
        self.deliver_ready(now, effects);
    }

    /// True when nothing is buffered that the reader would take.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.ready.is_empty() || self.pace.is_some()
    }

    /// True when progress depends on the reader: more is buffered for it, or the server waits to be resumed.
    #[must_use]
    pub fn is_blocked_on_reader(&self) -> bool {
        let more = !self.ready.is_empty() && self.pace != Some(0);
        self.in_flight > 0 && (more || self.lag != Lag::None)
    }

    /// Chunks and bytes that are buffered or in flight.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn buffered(&self) -> (usize, usize) {
        (
            self.ready.len() + self.out_of_order.len(),
            self.buffered_bytes,
        )
    }

    /// All chunks still available, by index.
    #[must_use]
    pub fn available_chunks(&self) -> BTreeMap<u64, &T> {
        let early = self.out_of_order.values();
        let all = self.delivered.iter().chain(&self.ready).chain(early);
        all.map(|chunk| (chunk.index, &chunk.item)).collect()
    }

    fn can_deliver(&self) -> bool {
        !self.ready.is_empty() && self.in_flight < WINDOW && self.pace != Some(0)
    }

    fn deliver_ready(&mut self, now: MonotonicTime, effects: &mut Effects<T>) {
        self.check_gap(now, effects);
        while self.can_deliver() && self.retry_at.is_none() && self.next_delivery <= now {
            let Some(chunk) = self.ready.pop_front() else {
                break;
            };
            self.in_flight += 1;
            self.record_delivery(now);
            if let Some(rate @ 1..) = self.pace {
                self.next_delivery = now + Duration::from_secs(1) / rate;
            }
            effects.push(CallStreamEffect::Deliver(chunk.index, chunk.item));
        }
        self.update_lag(now);
        self.update_server_pace(effects);
    }

    fn check_gap(&mut self, now: MonotonicTime, effects: &mut Effects<T>) {
        let Some(waited) = self.gap_since.map(|since| now.duration_since(since)) else {
            return;
        };
        if waited >= GAP_TIMEOUT {
            self.skip_gap(now);
        } else if waited >= RESEND_DELAY && !self.resend_requested {
            self.resend_requested = true;
            let first = self
                .out_of_order
                .first_key_value()
                .map_or(self.next_index, |(index, _)| *index);
            let missing = (self.next_index..first).take(MISSED_MAX).collect();
            effects.push(CallStreamEffect::RequestResend(missing));
        }
    }

    fn record_delivery(&mut self, now: MonotonicTime) {
        let (since, this, _) = self.rate;
        self.rate = match now.duration_since(since).as_secs() {
            0 => (since, this + 1, self.rate.2),
            1 => (now, 1, this),
            _ => (now, 1, 0),
        };
    }

    fn update_lag(&mut self, now: MonotonicTime) {
        let waits = self.buffered_bytes;
        self.lag = match self.lag {
            Lag::None if waits >= BUFFERED_BYTES_MAX / 2 => {
                let (since, this, before) = self.rate;
                let taken = match now.duration_since(since).as_secs() {
                    0 => this.max(before),
                    _ => 1,
                };
                Lag::Half(taken.max(1))
            }
            // Slow down before the bound is reached: more chunks are in flight when the server receives the message.
            Lag::Half(_) if waits >= BUFFERED_BYTES_MAX / 8 * 7 => Lag::Full,
            Lag::Half(_) if waits <= BUFFERED_BYTES_MAX / 4 => Lag::None,
            Lag::Full if waits <= BUFFERED_BYTES_MAX / 4 && now >= self.paused_until => Lag::None,
            lag @ (Lag::None | Lag::Half(_) | Lag::Full) => lag,
        };
    }

    /// Sends the server its new pace when it has changed.
    fn update_server_pace(&mut self, effects: &mut Effects<T>) {
        let pace = self.pace.filter(|_| self.pace_changes <= PACE_CHANGES_MAX);
        let wanted = match (self.lag, pace) {
            (Lag::None, pace) => pace,
            (Lag::Half(rate), pace) => Some(pace.map_or(rate, |pace| pace.min(rate))),
            (Lag::Full, _) => Some(0),
        };
        if !self.finished && wanted != self.sent_pace {
            self.sent_pace = wanted;
            effects.push(CallStreamEffect::SetPace(wanted));
        }
    }
}

impl<T: Clone> CallStream<T> {
    /// The reader misses these chunks: stored ones are delivered again first, the others are requested from the
    /// server.
    pub fn resend_missing(
        &mut self,
        missing: &[u64],
        now: MonotonicTime,
        effects: &mut Effects<T>,
    ) {
        let mut unknown = Vec::new();
        for &index in missing.iter().take(MISSED_MAX).rev() {
            // A chunk that has not arrived yet is not missing.
            let waits = self.ready.iter().any(|chunk| chunk.index == index);
            if index >= self.next_index || waits {
                continue;
            }
            match self.delivered.iter().find(|kept| kept.index == index) {
                Some(kept) if self.buffered_bytes + kept.bytes <= BUFFERED_BYTES_MAX => {
                    self.buffered_bytes += kept.bytes;
                    let (bytes, item) = (kept.bytes, kept.item.clone());
                    self.ready.push_front(BufferedChunk { index, bytes, item });
                }
                None if self.missed.len() < MISSED_MAX && self.missed.insert(index) => {
                    unknown.push(index);
                }
                Some(_) | None => {}
            }
        }
        unknown.reverse();
        if !unknown.is_empty() && !self.finished {
            effects.push(CallStreamEffect::RequestResend(unknown));
        }
        self.deliver_ready(now, effects);
    }
}

#[cfg(test)]
mod tests;
