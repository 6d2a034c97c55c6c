//! The chunks of one call on their way from its server to its reader (MGP §12).
//!
//! They leave in the order of their index. One that comes too early waits a moment for those before it; then
//! the gap is left, which the reader sees, because the index is the server's own. A reader that is slow
//! holds up nobody: chunks wait up to a bound, the server is told to slow down and then to pause, and
//! what comes all the same is dropped. The result that comes at the end is whole in any case.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mgp_protocol::mgp::stream::{INDEX_MAX, UNPACED};

use crate::clock::MonotonicTime;

/// Bytes of one stream that wait for their reader, with those on their way to it. Half of the
/// megabyte that a stream may hold.
pub const WAITING_MAX: usize = 512 << 10;
/// Bytes of one stream kept after they were delivered, for a reader that asks again. The other half.
pub const KEPT_MAX: usize = 512 << 10;
/// Frames on their way to a reader at once: enough that it never waits for the next, few enough that
/// the streams of one connection take turns.
pub const WINDOW: usize = 64;
/// Chunks that came too early and wait for those before them.
const EARLY_MAX: usize = 64;
/// Indices a reader may wait for after it said that it misses them.
const MISSED_MAX: usize = 256;
/// Paces of its reader that a server is told in one call, so that a reader who goes on changing its mind does
/// not fill the queue of a server that others use, too. After them the server is told none: what the reader
/// wants is kept here alone.
const PACES_MAX: usize = 64;
/// A server whose threads overtake each other is not asked for what is on its way.
const ASK_AFTER: Duration = Duration::from_millis(20);
/// How long early chunks wait for those before them.
const EARLY_WAIT: Duration = Duration::from_millis(250);
/// How long a server stays paused at least after a chunk was dropped, so that it is not told at each.
const PAUSE: Duration = Duration::from_millis(100);
/// When a frame found no room although none is on its way, another try is made after this time.
const RETRY: Duration = Duration::from_millis(5);

/// What has to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallStreamEffect<T> {
    /// Give this chunk to the reader. It counts as on its way until [`CallStream::returned`] or
    /// [`CallStream::put_back`].
    Deliver(u64, T),
    /// Tell the server how many chunks a second it may send; `None` takes an earlier pace back.
    Pace(Option<u32>),
    /// Ask the server for these chunks again.
    AskAgain(Vec<u64>),
}

/// Why a chunk goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkDropped {
    /// It came before.
    Twice,
    /// The stream has said that it is done, or its call has its answer.
    Late,
    /// Readers could not tell its index from the next one.
    NoPlace,
    /// Too much waits for the reader.
    NoRoom,
}

/// How far the reader lags behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lag {
    #[default]
    None,
    /// Half of the bound waits: the server may send as many chunks a second as the reader takes.
    Half(u32),
    /// The bound is reached.
    Full,
}

/// A chunk that waits, and its size.
#[derive(Debug)]
struct WaitingChunk<T> {
    index: u64,
    bytes: usize,
    item: T,
}

/// The chunks of one call. `T` is a chunk.
#[derive(Debug)]
pub struct CallStream<T> {
    /// The first index that neither came nor was given up.
    next: u64,
    ready: VecDeque<WaitingChunk<T>>,
    early: BTreeMap<u64, WaitingChunk<T>>,
    /// Since when there is something early.
    gap_since: Option<MonotonicTime>,
    gap_asked: bool,
    kept: VecDeque<WaitingChunk<T>>,
    kept_bytes: usize,
    /// What the reader misses and may get late.
    missed: BTreeSet<u64>,
    /// The last index there is.
    last: Option<u64>,
    finished: bool,
    waiting_bytes: usize,
    on_the_way: usize,
    /// The reader's own pace.
    pace: Option<u32>,
    /// How often it was set.
    paces: usize,
    /// Not before this time, by that pace.
    next_at: MonotonicTime,
    retry_at: Option<MonotonicTime>,
    lag: Lag,
    paused_until: MonotonicTime,
    told: Option<u32>,
    /// Deliveries of the second that began then, and of the one before.
    rate: (MonotonicTime, u32, u32),
}

impl<T> Default for CallStream<T> {
    fn default() -> Self {
        Self {
            next: 0,
            ready: VecDeque::new(),
            early: BTreeMap::new(),
            gap_since: None,
            gap_asked: false,
            kept: VecDeque::new(),
            kept_bytes: 0,
            missed: BTreeSet::new(),
            last: None,
            finished: false,
            waiting_bytes: 0,
            on_the_way: 0,
            pace: None,
            paces: 0,
            next_at: MonotonicTime::START,
            retry_at: None,
            lag: Lag::None,
            paused_until: MonotonicTime::START,
            told: None,
            rate: (MonotonicTime::START, 0, 0),
        }
    }
}

type Effects<T> = Vec<CallStreamEffect<T>>;

impl<T> CallStream<T> {
    /// A chunk came from the server.
    ///
    /// # Errors
    /// [`ChunkDropped`] says why it goes no further.
    pub fn arrived(
        &mut self,
        (index, bytes, done): (u64, usize, bool),
        item: T,
        now: MonotonicTime,
        effects: &mut Effects<T>,
    ) -> Result<(), ChunkDropped> {
        if index > INDEX_MAX {
            return Err(ChunkDropped::NoPlace);
        }
        let missed = self.missed.contains(&index);
        let late = self.finished || self.last.is_some_and(|last| index > last);
        if late {
            return Err(ChunkDropped::Late);
        }
        let known = index < self.next || self.early.contains_key(&index);
        if known && !missed {
            return Err(ChunkDropped::Twice);
        }
        if self.waiting_bytes.saturating_add(bytes) > WAITING_MAX {
            self.overflowed((index, done), now, effects);
            return Err(ChunkDropped::NoRoom);
        }
        if done {
            self.ends_at(index);
        }
        self.missed.remove(&index);
        self.waiting_bytes += bytes;
        self.queue(WaitingChunk { index, bytes, item }, now);
        self.go_on(now, effects);
        Ok(())
    }

    /// Nothing with a higher index is of this stream.
    fn ends_at(&mut self, index: u64) {
        self.last = Some(index);
        let beyond = self.early.split_off(&(index + 1));
        let bytes: usize = beyond.values().map(|chunk| chunk.bytes).sum();
        self.waiting_bytes -= bytes;
    }

    fn queue(&mut self, chunk: WaitingChunk<T>, now: MonotonicTime) {
        if chunk.index > self.next {
            self.early.insert(chunk.index, chunk);
            self.gap_since.get_or_insert(now);
            if self.early.len() >= EARLY_MAX {
                self.leave_gap(now);
            }
            return;
        }
        let expected = chunk.index == self.next;
        self.ready.push_back(chunk);
        if expected {
            self.next += 1;
            self.close_gap(now);
        }
    }

    /// Moves what is early and now in its turn.
    fn close_gap(&mut self, now: MonotonicTime) {
        let before = self.early.len();
        while let Some(chunk) = self.early.remove(&self.next) {
            self.ready.push_back(chunk);
            self.next += 1;
        }
        if self.early.is_empty() {
            self.gap_since = None;
            self.gap_asked = false;
        } else if self.early.len() < before {
            self.gap_since = Some(now);
            self.gap_asked = false;
        }
    }

    /// Goes on with the first early chunk, without those before it.
    fn leave_gap(&mut self, now: MonotonicTime) {
        if let Some((index, _)) = self.early.first_key_value() {
            self.next = *index;
            self.close_gap(now);
        }
    }

    /// This chunk found no room: its index is a gap that nobody waits for.
    pub fn overflowed(
        &mut self,
        (index, done): (u64, bool),
        now: MonotonicTime,
        effects: &mut Effects<T>,
    ) {
        if index > INDEX_MAX {
            return;
        }
        if index == self.next && !self.finished {
            self.next += 1;
            self.close_gap(now);
        }
        if done && self.last.is_none() {
            self.ends_at(index);
        }
        self.lag = Lag::Full;
        self.paused_until = now + PAUSE;
        self.go_on(now, effects);
    }

    /// The reader has taken frames with so many bytes in all.
    pub fn returned(
        &mut self,
        frames: usize,
        bytes: usize,
        now: MonotonicTime,
        effects: &mut Effects<T>,
    ) {
        self.on_the_way = self.on_the_way.saturating_sub(frames);
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
        self.retry_at = None;
        self.go_on(now, effects);
    }

    /// These, in the order in which they were to be delivered, found no room on their way.
    pub fn put_back(&mut self, refused: Vec<(u64, usize, T)>, now: MonotonicTime) {
        for (index, bytes, item) in refused.into_iter().rev() {
            self.on_the_way = self.on_the_way.saturating_sub(1);
            self.rate.1 = self.rate.1.saturating_sub(1);
            self.ready.push_front(WaitingChunk { index, bytes, item });
            self.retry_at = Some(now + RETRY);
        }
    }

    /// Something that is delivered will be there for a reader that asks again; the oldest goes first.
    pub fn keep(&mut self, index: u64, bytes: usize, item: T) {
        let known = self.kept.iter().rev().any(|kept| kept.index == index);
        if known || bytes > KEPT_MAX {
            return;
        }
        while self.kept_bytes + bytes > KEPT_MAX
            && let Some(oldest) = self.kept.pop_front()
        {
            self.kept_bytes -= oldest.bytes;
        }
        self.kept_bytes += bytes;
        self.kept.push_back(WaitingChunk { index, bytes, item });
    }

    /// The reader wants no more than this many chunks a second; 0: none until it says otherwise.
    pub fn pace(&mut self, rate: u32, now: MonotonicTime, effects: &mut Effects<T>) {
        self.pace = (rate < UNPACED).then_some(rate);
        self.paces = self.paces.saturating_add(1);
        self.next_at = now;
        self.go_on(now, effects);
    }

    /// Time has passed.
    pub fn passed(&mut self, now: MonotonicTime, effects: &mut Effects<T>) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
        }
        self.go_on(now, effects);
    }

    /// When [`Self::passed`] is to be called.
    #[must_use]
    pub fn wake_at(&self) -> Option<MonotonicTime> {
        let wait = match self.gap_asked {
            true => EARLY_WAIT,
            false => ASK_AFTER,
        };
        let gap = self.gap_since.map(|since| since + wait);
        let paced = (self.may_send() && self.retry_at.is_none()).then_some(self.next_at);
        let drained = self.lag == Lag::Full && self.waiting_bytes <= WAITING_MAX / 4;
        let resumed = (drained && !self.finished).then_some(self.paused_until);
        [gap, paced, resumed, self.retry_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// The call has its answer: what is early goes without what it waits for, and nothing more is taken.
    pub fn finish(&mut self, now: MonotonicTime, effects: &mut Effects<T>) {
        self.finished = true;
        while !self.early.is_empty() {
            self.leave_gap(now);
        }
        self.go_on(now, effects);
    }

    /// True when nothing waits that its reader would take.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.ready.is_empty() || self.pace.is_some()
    }

    /// True when something is done as soon as the reader takes what is on its way: there is more for it, or
    /// its server waits to be told to go on.
    #[must_use]
    pub fn awaits_return(&self) -> bool {
        let more = !self.ready.is_empty() && self.pace != Some(0);
        self.on_the_way > 0 && (more || self.lag != Lag::None)
    }

    /// Chunks and bytes that wait or are on their way.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.ready.len() + self.early.len(), self.waiting_bytes)
    }

    /// All chunks that are there still, by their index.
    #[must_use]
    pub fn so_far(&self) -> BTreeMap<u64, &T> {
        let early = self.early.values();
        let all = self.kept.iter().chain(&self.ready).chain(early);
        all.map(|chunk| (chunk.index, &chunk.item)).collect()
    }

    fn may_send(&self) -> bool {
        !self.ready.is_empty() && self.on_the_way < WINDOW && self.pace != Some(0)
    }

    fn go_on(&mut self, now: MonotonicTime, effects: &mut Effects<T>) {
        self.look_at_gap(now, effects);
        while self.may_send() && self.retry_at.is_none() && self.next_at <= now {
            let Some(chunk) = self.ready.pop_front() else {
                break;
            };
            self.on_the_way += 1;
            self.count(now);
            if let Some(rate @ 1..) = self.pace {
                self.next_at = now + Duration::from_secs(1) / rate;
            }
            effects.push(CallStreamEffect::Deliver(chunk.index, chunk.item));
        }
        self.look_at_lag(now);
        self.tell_pace(effects);
    }

    fn look_at_gap(&mut self, now: MonotonicTime, effects: &mut Effects<T>) {
        let Some(waited) = self.gap_since.map(|since| now.since(since)) else {
            return;
        };
        if waited >= EARLY_WAIT {
            self.leave_gap(now);
        } else if waited >= ASK_AFTER && !self.gap_asked {
            self.gap_asked = true;
            let first = self
                .early
                .first_key_value()
                .map_or(self.next, |(index, _)| *index);
            let missing = (self.next..first).take(MISSED_MAX).collect();
            effects.push(CallStreamEffect::AskAgain(missing));
        }
    }

    fn count(&mut self, now: MonotonicTime) {
        let (since, this, _) = self.rate;
        self.rate = match now.since(since).as_secs() {
            0 => (since, this + 1, self.rate.2),
            1 => (now, 1, this),
            _ => (now, 1, 0),
        };
    }

    fn look_at_lag(&mut self, now: MonotonicTime) {
        let waits = self.waiting_bytes;
        self.lag = match self.lag {
            Lag::None if waits >= WAITING_MAX / 2 => {
                let (since, this, before) = self.rate;
                let taken = match now.since(since).as_secs() {
                    0 => this.max(before),
                    _ => 1,
                };
                Lag::Half(taken.max(1))
            }
            // With a little room left, as more is under way when the server hears of it.
            Lag::Half(_) if waits >= WAITING_MAX / 8 * 7 => Lag::Full,
            Lag::Half(_) if waits <= WAITING_MAX / 4 => Lag::None,
            Lag::Full if waits <= WAITING_MAX / 4 && now >= self.paused_until => Lag::None,
            lag @ (Lag::None | Lag::Half(_) | Lag::Full) => lag,
        };
    }

    /// Tells the server when what it may send has changed.
    fn tell_pace(&mut self, effects: &mut Effects<T>) {
        let pace = self.pace.filter(|_| self.paces <= PACES_MAX);
        let wanted = match (self.lag, pace) {
            (Lag::None, pace) => pace,
            (Lag::Half(rate), pace) => Some(pace.map_or(rate, |pace| pace.min(rate))),
            (Lag::Full, _) => Some(0),
        };
        if !self.finished && wanted != self.told {
            self.told = wanted;
            effects.push(CallStreamEffect::Pace(wanted));
        }
    }
}

impl<T: Clone> CallStream<T> {
    /// The reader misses these chunks: those that are kept come again before what waits, the server is
    /// asked for the others.
    pub fn gap(&mut self, missing: &[u64], now: MonotonicTime, effects: &mut Effects<T>) {
        let mut unknown = Vec::new();
        for &index in missing.iter().take(MISSED_MAX).rev() {
            // What did not come yet is no gap.
            let waits = self.ready.iter().any(|chunk| chunk.index == index);
            if index >= self.next || waits {
                continue;
            }
            match self.kept.iter().find(|kept| kept.index == index) {
                Some(kept) if self.waiting_bytes + kept.bytes <= WAITING_MAX => {
                    self.waiting_bytes += kept.bytes;
                    let (bytes, item) = (kept.bytes, kept.item.clone());
                    self.ready.push_front(WaitingChunk { index, bytes, item });
                }
                None if self.missed.len() < MISSED_MAX && self.missed.insert(index) => {
                    unknown.push(index);
                }
                Some(_) | None => {}
            }
        }
        unknown.reverse();
        if !unknown.is_empty() && !self.finished {
            effects.push(CallStreamEffect::AskAgain(unknown));
        }
        self.go_on(now, effects);
    }
}

#[cfg(test)]
mod tests;
