//! The SSE streams of one legacy HTTP session, stored for replay (MCP Streamable HTTP, resumability).

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use mgp_sync::{AdmissionError, LIVE, Ring, RingLimits, RingNext, RingReader};
use mgp_transports::lines::SendError;
use mgp_transports::{ResponseBudget, UnreadResponse, sse};

use super::delivery::{Delivery, Receipt};

/// One SSE stream of a session. Lane 0 is the GET stream; each other lane belongs to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane(pub u64);

/// The stream that a GET opens.
pub(crate) const GET_LANE: Lane = Lane(0);

/// Events a reader may be behind before it is detached.
const BACKLOG_MAX: usize = 1024;

/// Bytes stored for replay: one large answer, so that 10,000 idle sessions with one large answer each do
/// not fill the memory.
const REPLAY_BYTES: usize = 1 << 20;

/// The `retry` of the stream: milliseconds before a client reconnects.
const RETRY_MS: u64 = 500;

/// All streams of one session.
#[derive(Debug)]
pub struct Streams {
    ring: Arc<Ring<SseFrame>>,
    budget: Option<ResponseBudget>,
    readers: Mutex<HashMap<u64, LaneReader>>,
    lanes: AtomicU64,
    attached: AtomicU64,
    /// The last event of the GET stream that was read.
    last_read: AtomicU64,
    /// A stream of a request lost its reader before its end.
    was_interrupted: AtomicBool,
}

/// A message of a stream, stored for replay.
#[derive(Debug, Clone)]
struct SseFrame {
    frame: Bytes,
    /// Notified when a reader has read the frame.
    receipt: Option<Receipt>,
    /// Counts an answer until its reader has read it or is gone: frames stored for replay have a limit of
    /// their own.
    unread: Option<UnreadSlot>,
}

type UnreadSlot = Arc<Mutex<Option<UnreadResponse>>>;

/// The reader of a stream, and the answer that it has not read.
#[derive(Debug)]
struct LaneReader {
    number: u64,
    answer: Option<UnreadSlot>,
}

impl SseFrame {
    fn new(frame: Bytes, receipt: Option<Receipt>, unread: Option<UnreadSlot>) -> Self {
        Self {
            frame,
            receipt,
            unread,
        }
    }
}

fn release_unread(unread: &UnreadSlot) {
    unread.lock().unwrap_or_else(PoisonError::into_inner).take();
}

impl Streams {
    /// Creates an empty set of streams that stores the last `replay` events. Answers that their readers
    /// have not read count against the response budget of their agent, if there is one.
    #[must_use]
    pub fn new(replay: usize, budget: Option<ResponseBudget>) -> Arc<Self> {
        Arc::new(Self {
            budget,
            readers: Mutex::default(),
            ring: Arc::new(Ring::new(RingLimits {
                events: replay,
                bytes: REPLAY_BYTES,
                max_undelivered: BACKLOG_MAX,
            })),
            lanes: AtomicU64::new(1),
            attached: AtomicU64::new(0),
            last_read: AtomicU64::new(0),
            was_interrupted: AtomicBool::new(false),
        })
    }

    /// True if a client may come back for the rest of an answer.
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        self.was_interrupted.load(Ordering::Relaxed)
    }

    /// The client of a request is gone before its stream was opened.
    pub fn interrupt(&self) {
        self.was_interrupted.store(true, Ordering::Relaxed);
    }

    /// Allocates a stream for one request.
    #[must_use]
    pub fn lane(&self) -> Lane {
        Lane(self.lanes.fetch_add(1, Ordering::Relaxed))
    }

    /// True while the GET stream has a reader.
    #[must_use]
    pub(crate) fn is_get_open(&self) -> bool {
        self.lock_readers().contains_key(&GET_LANE.0)
    }

    /// Adds a message to a stream. If readers lag too far behind, a lossy message is dropped; a reliable
    /// one has reserved capacity, and when that is used up the slowest reader is detached and reconnects
    /// for the rest.
    pub fn push(&self, lane: Lane, frame: Bytes, class: Delivery) {
        self.push_frame(lane, SseFrame::new(frame, None, None), class);
    }

    fn push_frame(&self, lane: Lane, frame: SseFrame, class: Delivery) {
        let weight = frame.frame.len();
        if class == Delivery::Lossy {
            let _ = self.ring.push(lane.0, frame, weight);
            return;
        }
        if let Err(AdmissionError::Full(frame)) = self.ring.push_reserved(lane.0, frame, weight)
            && self.ring.detach_slowest().is_some()
        {
            let _ = self.ring.push_reserved(lane.0, frame, weight);
        }
    }

    /// Adds a reliable message that can wait; false when there is no capacity.
    pub(crate) fn try_push_with_receipt(
        &self,
        lane: Lane,
        frame: Vec<u8>,
        receipt: &Receipt,
    ) -> bool {
        let weight = frame.len();
        let frame = SseFrame::new(frame.into(), Some(receipt.clone()), None);
        !matches!(
            self.ring.push(lane.0, frame, weight),
            Err(AdmissionError::Full(_))
        )
    }

    /// Adds a message that can be sent later, if the readers keep up.
    ///
    /// # Errors
    /// [`SendError`]: the readers lag behind, or all streams have ended.
    pub(crate) fn try_push(&self, lane: Lane, frame: Bytes) -> Result<(), SendError> {
        let weight = frame.len();
        let frame = SseFrame::new(frame, None, None);
        let pushed = self.ring.push(lane.0, frame, weight);
        pushed.map(drop).map_err(|refused| match refused {
            AdmissionError::Full(_) => SendError::Full,
            AdmissionError::Closed(_) => SendError::Closed,
        })
    }

    /// Adds the last message of a stream.
    pub fn finish(&self, lane: Lane, frame: Bytes) {
        let unread = self.count_answer(lane, frame.len());
        self.push_frame(lane, SseFrame::new(frame, None, unread), Delivery::Reliable);
        self.ring.close_lane(lane.0);
    }

    /// Counts an answer for the reader of its stream; without a reader it is stored for replay only.
    fn count_answer(&self, lane: Lane, bytes: usize) -> Option<UnreadSlot> {
        let budget = self.budget.as_ref()?;
        let mut readers = self.lock_readers();
        let reader = readers.get_mut(&lane.0)?;
        let unread = Some(budget.count(bytes)).filter(|unread| !unread.is_empty())?;
        let slot = Arc::new(Mutex::new(Some(unread)));
        reader.answer = Some(slot.clone());
        Some(slot)
    }

    fn lock_readers(&self) -> MutexGuard<'_, HashMap<u64, LaneReader>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a stream without a last message.
    pub fn end(&self, lane: Lane) {
        self.ring.close_lane(lane.0);
    }

    /// Ends all streams.
    pub(crate) fn close(&self) {
        self.ring.close();
    }

    /// Attaches the reader of a request's stream.
    #[must_use]
    pub fn open(self: &Arc<Self>, lane: Lane, primed: bool) -> Stream {
        self.attach(lane, 0, primed)
    }

    /// Attaches the reader of the GET stream, from the first unread event.
    #[must_use]
    pub fn open_get(self: &Arc<Self>, primed: bool) -> Stream {
        if primed {
            self.push(GET_LANE, Bytes::new(), Delivery::Lossy);
        }
        self.attach(GET_LANE, self.last_read.load(Ordering::Relaxed), primed)
    }

    /// Resumes the stream of event `after`; or the GET stream, without replay, when the event is no longer
    /// stored (CMCP-030).
    #[must_use]
    pub fn resume(self: &Arc<Self>, after: u64) -> Stream {
        match self.ring.lane_for_seq(after) {
            Some(lane) => self.attach(Lane(lane), after, false),
            None => self.attach(GET_LANE, LIVE, false),
        }
    }

    /// Detaches the reader of a stream; it reconnects for the rest.
    pub fn detach(self: &Arc<Self>, lane: Lane) {
        self.interrupt();
        drop(self.ring.attach(lane.0, LIVE));
    }

    fn attach(self: &Arc<Self>, lane: Lane, after: u64, primed: bool) -> Stream {
        let number = self.attached.fetch_add(1, Ordering::Relaxed);
        let reader = LaneReader {
            number,
            answer: None,
        };
        let before = self.lock_readers().insert(lane.0, reader);
        before
            .and_then(|reader| reader.answer)
            .iter()
            .for_each(release_unread);
        Stream {
            number,
            retry: primed,
            has_ended: false,
            lane,
            reader: self.ring.attach(lane.0, after),
            streams: self.clone(),
        }
    }
}

/// The SSE text of one stream, replay then live.
#[derive(Debug)]
pub struct Stream {
    number: u64,
    retry: bool,
    has_ended: bool,
    lane: Lane,
    reader: RingReader<SseFrame>,
    streams: Arc<Streams>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.has_ended && self.lane != GET_LANE {
            self.streams.interrupt();
        }
        let mut readers = self.streams.lock_readers();
        let own = readers.get(&self.lane.0);
        if own.is_some_and(|reader| reader.number == self.number) {
            let own = readers.remove(&self.lane.0);
            own.and_then(|reader| reader.answer)
                .iter()
                .for_each(release_unread);
        }
    }
}

impl futures_util::Stream for Stream {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if std::mem::take(&mut self.retry) {
            return Poll::Ready(Some(sse::render_retry(RETRY_MS)));
        }
        loop {
            return match self.reader.poll_next(cx) {
                Poll::Ready(RingNext::Event { seq, item }) => {
                    if self.lane == GET_LANE {
                        self.streams.last_read.fetch_max(seq, Ordering::Relaxed);
                    }
                    if let Some(receipt) = &item.receipt {
                        receipt.mark_sent();
                    }
                    if let Some(unread) = &item.unread {
                        release_unread(unread);
                    }
                    Poll::Ready(Some(sse::render_event(Some(seq.into()), &item.frame)))
                }
                // Events were dropped before this client connected: it gets the remaining ones.
                Poll::Ready(RingNext::Lost) => continue,
                Poll::Ready(RingNext::End) => {
                    self.has_ended = true;
                    Poll::Ready(None)
                }
                // As too slow: the end of the stream makes the client reconnect.
                Poll::Ready(RingNext::Detached) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        }
    }
}
