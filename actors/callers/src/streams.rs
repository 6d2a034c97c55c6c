//! The SSE streams of one legacy HTTP session, kept for replay (MCP Streamable HTTP, resumability).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use mgp_sync::NotAdmitted;
use mgp_sync::ring::{LIVE, Ring, RingLimits, RingNext, RingReader};
use mgp_transports::sse;

use crate::exchange::Delivery;

/// One SSE stream of a session. Lane 0 is the GET stream, the others belong to one request each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane(pub u64);

/// The stream that a GET opens.
pub const GET: Lane = Lane(0);

/// Events not yet taken by an attached reader before it counts as stuck.
const UNDELIVERED: usize = 1024;

/// Bytes kept for replay: one answer of the largest usual size, so that 10,000 sessions that are
/// idle after one large answer each cannot be made to hold more than the machine has.
const REPLAY_BYTES: usize = 1 << 20;

/// Milliseconds a client should wait before it comes back for the rest of a stream.
const RETRY_MS: u64 = 500;

/// All streams of one session.
#[derive(Debug)]
pub struct Streams {
    ring: Arc<Ring<Bytes>>,
    lanes: AtomicU64,
    /// The newest event of the GET stream that a reader took.
    taken: AtomicU64,
}

impl Streams {
    /// No stream yet; the last `replay` events will be kept.
    #[must_use]
    pub fn new(replay: usize) -> Arc<Self> {
        Arc::new(Self {
            ring: Arc::new(Ring::new(RingLimits {
                events: replay,
                bytes: REPLAY_BYTES,
                undelivered: UNDELIVERED,
            })),
            lanes: AtomicU64::new(1),
            taken: AtomicU64::new(0),
        })
    }

    /// A stream for one request.
    #[must_use]
    pub fn lane(&self) -> Lane {
        Lane(self.lanes.fetch_add(1, Ordering::Relaxed))
    }

    /// Puts a message on a stream. When readers lag too far behind, a lossy one is dropped; a kept
    /// one has room reserved, and when that is used up too, the slowest reader is let go, and comes
    /// back for what is left.
    pub fn push(&self, lane: Lane, frame: Bytes, class: Delivery) {
        let weight = frame.len();
        if class == Delivery::Lossy {
            let _ = self.ring.push(lane.0, frame, weight);
            return;
        }
        if let Err(NotAdmitted::Full(frame)) = self.ring.push_kept(lane.0, frame, weight)
            && self.ring.detach_slowest().is_some()
        {
            let _ = self.ring.push_kept(lane.0, frame, weight);
        }
    }

    /// The last message of a stream.
    pub fn finish(&self, lane: Lane, frame: Bytes) {
        self.push(lane, frame, Delivery::Reliable);
        self.ring.close_lane(lane.0);
    }

    /// Ends a stream without a last message.
    pub fn end(&self, lane: Lane) {
        self.ring.close_lane(lane.0);
    }

    /// Ends all streams.
    pub fn close(&self) {
        self.ring.close();
    }

    /// Opens the stream of a request to its reader.
    #[must_use]
    pub fn open(self: &Arc<Self>, lane: Lane, primed: bool) -> Stream {
        self.read(lane, 0, primed)
    }

    /// Opens the GET stream: what its last reader did not take, then what comes.
    #[must_use]
    pub fn open_get(self: &Arc<Self>, primed: bool) -> Stream {
        if primed {
            self.push(GET, Bytes::new(), Delivery::Lossy);
        }
        self.read(GET, self.taken.load(Ordering::Relaxed), primed)
    }

    /// Goes on with the stream that event `after` was on; the GET stream, live only, when the event
    /// is no longer kept (CMCP-030).
    #[must_use]
    pub fn resume(self: &Arc<Self>, after: u64) -> Stream {
        match self.ring.lane_of(after) {
            Some(lane) => self.read(Lane(lane), after, false),
            None => self.read(GET, LIVE, false),
        }
    }

    /// Lets the reader of a stream go; it comes back for the rest.
    pub fn let_go(self: &Arc<Self>, lane: Lane) {
        drop(self.ring.attach(lane.0, LIVE));
    }

    fn read(self: &Arc<Self>, lane: Lane, after: u64, primed: bool) -> Stream {
        Stream {
            retry: primed,
            lane,
            reader: self.ring.attach(lane.0, after),
            streams: self.clone(),
        }
    }
}

/// The SSE text of one stream, replay then live.
#[derive(Debug)]
pub struct Stream {
    retry: bool,
    lane: Lane,
    reader: RingReader<Bytes>,
    streams: Arc<Streams>,
}

impl futures_util::Stream for Stream {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if std::mem::take(&mut self.retry) {
            return Poll::Ready(Some(sse::retry(RETRY_MS)));
        }
        loop {
            return match self.reader.poll_next(cx) {
                Poll::Ready(RingNext::Event { seq, item }) => {
                    if self.lane == GET {
                        self.streams.taken.fetch_max(seq, Ordering::Relaxed);
                    }
                    Poll::Ready(Some(sse::event(Some(seq.into()), &item)))
                }
                // Gone before this client came to listen: it gets what is left.
                Poll::Ready(RingNext::Lost) => continue,
                // Too slow: that its stream ends tells the client to come back.
                Poll::Ready(RingNext::End | RingNext::Detached) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        }
    }
}
