//! A budget for HTTP/2 frames without content.
//!
//! A PING or SETTINGS frame costs its sender a few bytes, and us an answer and a wakeup of the connection's task. `h2`
//! bounds small DATA, CONTINUATION and resets before they are accepted, but no others; so frames are counted here, on the
//! bytes below it: only their heads are read, and nothing is copied.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use super::slots::ConnectionAuth;

/// The preface of a client (RFC 9113, section 3.4), before its first frame.
const PREFACE: usize = 24;

/// The head of a frame: three bytes of length, type, flags, four of the stream.
const HEADER_BYTES: usize = 9;

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const SETTINGS: u8 = 0x4;
const END_STREAM: u8 = 0x1;

/// Frames without content that may arrive at once: as many as a client sends that reads slowly and then acknowledges each
/// frame of 64 MiB of answers.
const BURST: i64 = 8_192;

/// The refill each second: a thousandth of the rate that delayed others, and less work than as many requests.
const REFILL_PER_SECOND: i64 = 1_000;

/// The credit for a request: its end, its reset and the window updates for its answer.
const REQUEST_CREDIT: i64 = 8;

/// This much data earns two frames: clients acknowledge the frames of an answer one by one, for the stream and for the
/// connection, and measure the latency with a PING.
const DATA_PER_CREDIT: usize = 4_096;

/// Smaller data frames earn nothing: otherwise a client with a window of one byte at a time would earn what that costs.
const MIN_CREDITED_DATA: usize = 16;

/// A client that reads less data within the deadline while more is queued counts as stalled: slower than any line.
const MIN_DATA_PER_DEADLINE: u64 = 64 << 10;

/// The cost of a SETTINGS frame: it may move the windows of all streams. Clients send one or two.
const SETTINGS_COST: i64 = 16;

/// Reads the heads of frames from a byte stream.
#[derive(Debug)]
struct FrameHeaderReader {
    /// Bytes of the preface or of a payload that still follow.
    skip: usize,
    header: [u8; HEADER_BYTES],
    filled: usize,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameHeader {
    len: usize,
    kind: u8,
    flags: u8,
}

impl FrameHeaderReader {
    fn with_skip(skip: usize) -> Self {
        Self {
            skip,
            header: [0; HEADER_BYTES],
            filled: 0,
        }
    }

    fn read(&mut self, mut bytes: &[u8], mut found: impl FnMut(FrameHeader)) {
        while !bytes.is_empty() {
            let passed = self.skip.min(bytes.len());
            self.skip -= passed;
            bytes = &bytes[passed..];
            let part = (HEADER_BYTES - self.filled).min(bytes.len());
            self.header[self.filled..][..part].copy_from_slice(&bytes[..part]);
            self.filled += part;
            bytes = &bytes[part..];
            if self.filled == HEADER_BYTES {
                let [a, b, c, kind, flags, ..] = self.header;
                let len = u32::from_be_bytes([0, a, b, c]) as usize;
                (self.skip, self.filled) = (len, 0);
                found(FrameHeader { len, kind, flags });
            }
        }
    }
}

/// The remaining budget.
#[derive(Debug)]
struct FrameBudget {
    remaining: i64,
    refilled: Instant,
}

impl FrameBudget {
    fn new(now: Instant) -> Self {
        Self {
            remaining: BURST,
            refilled: now,
        }
    }

    fn receive(&mut self, head: FrameHeader) {
        let ends = head.flags & END_STREAM != 0;
        self.remaining += match head.kind {
            HEADERS => REQUEST_CREDIT,
            DATA if ends || head.len >= MIN_CREDITED_DATA => 0,
            SETTINGS => -SETTINGS_COST,
            _ => -1,
        };
        self.remaining = self.remaining.min(BURST);
    }

    fn send(&mut self, head: FrameHeader) {
        if head.kind == DATA && head.len >= MIN_CREDITED_DATA {
            let earned = 2 + head.len / DATA_PER_CREDIT;
            self.remaining = (self.remaining + i64::try_from(earned).unwrap_or(BURST)).min(BURST);
        }
    }

    /// Whether the budget is used up, also after the refill.
    fn is_spent(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.remaining >= 0 {
            return false;
        }
        let now = now();
        let passed = now.saturating_duration_since(self.refilled);
        let millis = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        self.refilled = now;
        self.remaining =
            (self.remaining + millis.saturating_mul(REFILL_PER_SECOND) / 1_000).min(BURST);
        self.remaining < 0
    }
}

/// The deadline for sending answers.
#[derive(Debug)]
struct SendDeadline {
    /// The unsent bytes when it was set.
    unsent: u64,
    /// The sent bytes of data when it was set.
    data: u64,
    timer: Pin<Box<Sleep>>,
}

/// An HTTP/2 connection whose frames are counted. Once the budget is spent, nothing more is read, and `spent` is
/// cancelled. The same happens when a client opens no window for its answers for `stall`: then no write waits, because
/// none is started.
#[derive(Debug)]
pub(super) struct CountedFrames<IO> {
    stream: IO,
    auth: ConnectionAuth,
    stall: Duration,
    /// Set while answers wait to be sent.
    deadline: Option<SendDeadline>,
    /// Data sent on this connection, in bytes.
    data: u64,
    received: FrameHeaderReader,
    sent: FrameHeaderReader,
    budget: FrameBudget,
    spent: CancellationToken,
}

impl<IO> CountedFrames<IO> {
    pub(super) fn new(
        stream: IO,
        auth: ConnectionAuth,
        stall: Duration,
        spent: CancellationToken,
    ) -> Self {
        Self {
            stream,
            auth,
            stall,
            deadline: None,
            data: 0,
            received: FrameHeaderReader::with_skip(PREFACE),
            sent: FrameHeaderReader::with_skip(0),
            budget: FrameBudget::new(Instant::now()),
            spent,
        }
    }

    fn count_sent(&mut self, bytes: &[u8]) {
        let Self {
            sent, budget, data, ..
        } = self;
        sent.read(bytes, |head| {
            if head.kind == DATA {
                *data += head.len as u64;
            }
            budget.send(head);
        });
    }

    /// Polled whenever the connection waits: true when answers have waited for too long and hardly any data was sent
    /// meanwhile. Small answers beside a stuck one, such as heartbeats, are no progress.
    fn is_stalled(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(unsent) = self.auth.load().unsent() else {
            self.deadline = None;
            return false;
        };
        let (data, stall) = (self.data, self.stall);
        let later = || SendDeadline {
            unsent,
            data,
            timer: Box::pin(tokio::time::sleep(stall)),
        };
        let deadline = self.deadline.get_or_insert_with(later);
        while deadline.timer.as_mut().poll(cx).is_ready() {
            if !self.auth.load().has_sent(deadline.unsent)
                && data - deadline.data < MIN_DATA_PER_DEADLINE
            {
                return true;
            }
            (deadline.unsent, deadline.data) = (unsent, data);
            deadline.timer.as_mut().reset(Instant::now() + stall);
        }
        false
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for CountedFrames<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.spent.is_cancelled() {
            return Poll::Pending;
        }
        let before = room.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, room);
        let (budget, auth) = (&mut this.budget, &this.auth);
        this.received.read(&room.filled()[before..], |head| {
            if head.kind == SETTINGS {
                auth.mark_handshaken();
            }
            budget.receive(head);
        });
        if budget.is_spent(Instant::now) || (read.is_pending() && this.is_stalled(cx)) {
            this.spent.cancel();
        }
        read
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for CountedFrames<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(written)) = written {
            self.count_sent(&bytes[..written]);
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        if let Poll::Ready(Ok(mut remaining)) = written {
            for slice in slices {
                let part = remaining.min(slice.len());
                self.count_sent(&slice[..part]);
                remaining -= part;
            }
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 0x6;
    const WINDOW_UPDATE: u8 = 0x8;

    fn head(kind: u8, flags: u8, len: usize) -> FrameHeader {
        FrameHeader { len, kind, flags }
    }

    #[test]
    fn heads_are_read_however_the_bytes_are_split() {
        let mut wire = vec![b'p'; PREFACE];
        let frames = [head(SETTINGS, 0, 6), head(PING, 1, 8), head(DATA, 1, 300)];
        for frame in frames {
            let [.., a, b, c] = u32::try_from(frame.len).unwrap().to_be_bytes();
            wire.extend([a, b, c, frame.kind, frame.flags, 0, 0, 0, 1]);
            wire.extend(vec![7; frame.len]);
        }
        for cut in 1..40 {
            let (mut heads, mut found) = (FrameHeaderReader::with_skip(PREFACE), Vec::new());
            for piece in wire.chunks(cut) {
                heads.read(piece, |head| found.push(head));
            }
            assert_eq!(found, frames, "pieces of {cut}");
        }
    }

    /// Each kind of frame without content spends the budget, and the refill is bounded by time.
    #[test]
    fn frames_without_content_spend_the_budget() {
        for (kind, flags, len, each) in [
            (PING, 0, 8, 1),
            (SETTINGS, 0, 0, SETTINGS_COST),
            (WINDOW_UPDATE, 0, 4, 1),
            (DATA, 0, 0, 1),
            (0x9, 0, 0, 1),
            (0x2, 0, 5, 1),
            (0x3, 0, 4, 1),
        ] {
            let now = Instant::now();
            let mut budget = FrameBudget::new(now);
            let mut frames = 0;
            while !budget.is_spent(|| now) {
                budget.receive(head(kind, flags, len));
                frames += 1;
            }
            assert_eq!(frames, BURST / each + 1, "{kind}");
            let later = now + Duration::from_secs(1);
            let mut again = 0;
            while !budget.is_spent(|| later) {
                budget.receive(head(kind, flags, len));
                again += 1;
            }
            assert!(again <= REFILL_PER_SECOND / each + 1, "{kind}: {again}");
        }
    }

    /// A client that acknowledges each frame of its answers twice and measures the latency keeps its budget.
    #[test]
    fn a_client_that_reads_its_answers_keeps_its_budget() {
        for len in [MIN_CREDITED_DATA, 1_000, 16_384] {
            let mut budget = FrameBudget::new(Instant::now());
            let now = budget.refilled;
            for _ in 0..100_000 {
                budget.receive(head(HEADERS, 5, 50));
                budget.send(head(HEADERS, 4, 50));
                for _ in 0..4 {
                    budget.send(head(DATA, 0, len));
                    budget.receive(head(WINDOW_UPDATE, 0, 4));
                    budget.receive(head(WINDOW_UPDATE, 0, 4));
                }
                budget.receive(head(PING, 0, 8));
                assert!(!budget.is_spent(|| now), "{len}");
            }
        }
    }

    /// A window of a byte at a time earns nothing.
    #[test]
    fn an_answer_in_single_bytes_spends_the_budget() {
        let now = Instant::now();
        let mut budget = FrameBudget::new(now);
        let mut bytes = 0;
        while !budget.is_spent(|| now) {
            budget.receive(head(WINDOW_UPDATE, 0, 4));
            budget.send(head(DATA, 0, 1));
            bytes += 1;
        }
        assert_eq!(bytes, BURST + 1);
    }
}
