//! Reads frames: big reads while bytes flow, no buffer while a stream is idle.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use mgp_protocol::framing::{Frame, Framer};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::task::coop::consume_budget;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};

use crate::budget::{MessageBudget, Reservation};

/// The size of one read while bytes flow, in bytes: a frame of 64 KiB takes two reads.
pub(crate) const READ_AHEAD: usize = 128 << 10;

/// A line that grows beyond this multiple of `max_frame` ends the stream.
pub(crate) const OVERRUN_FACTOR_MAX: u64 = 16;

/// How long a peer may pause within a line over the limit. Until the line ends, everything the peer sends is lost, and
/// callers wait for their answers.
pub(crate) const PAUSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The time limit of a line from its first big part to its end, if lines reserve memory.
pub(crate) const LINE_TIMEOUT: Duration = Duration::from_secs(30);

/// A shorter partial line reserves no memory, in bytes: its connection costs as much.
const SMALL: usize = 16 << 10;

/// The first read after a pause uses the stack, in bytes: thousands of idle streams then hold no buffer, and the frames
/// of a small read share one allocation of their size.
const FIRST_READ: usize = 16 << 10;

/// A smaller rest of a big buffer is copied out of it, in bytes, so that the buffer can be freed.
const LEFTOVER: usize = 4 << 10;

/// Why reading ended.
#[derive(Debug)]
pub enum ReadEnd {
    /// The peer closed its side. A last line without newline was still delivered.
    Eof,
    /// A line over the limit grew beyond [`OVERRUN_FACTOR_MAX`] times the limit, or paused for [`PAUSE_TIMEOUT`]: the peer
    /// sends no newlines. Or a line that reserved memory did not end within [`LINE_TIMEOUT`].
    Runaway,
    /// The stream failed.
    Failed(io::Error),
}

/// Reads until the stream ends, and passes every frame to `on`.
///
/// A line over `max_frame` bytes is dropped and reported as [`Frame::LimitExceeded`] as soon as it exceeds the limit, and
/// as [`Frame::Oversized`] at its end; blank lines are skipped (CMCP-015). Frames are slices of the read buffer and keep
/// it alive.
///
/// However much a peer writes, other tasks run after a hundred frames and after each big read.
pub async fn read_lines<R: AsyncRead + Unpin>(
    stream: R,
    max_frame: usize,
    on: impl FnMut(Frame),
) -> ReadEnd {
    read_lines_with_budget(stream, max_frame, None, on).await
}

/// As [`read_lines`], with memory reserved for lines as they arrive, until their last part is dropped. A line that
/// finds no memory is dropped and reported like one over the limit, with a length below it.
pub async fn read_lines_with_budget<R: AsyncRead + Unpin>(
    mut stream: R,
    max_frame: usize,
    room: Option<MessageBudget>,
    mut on: impl FnMut(Frame),
) -> ReadEnd {
    let mut partial_line = PartialLine::default();
    let overrun_limit = OVERRUN_FACTOR_MAX.saturating_mul(max_frame as u64);
    let mut framer = Framer::new(max_frame);
    let mut buffer = Buffer::default();
    loop {
        let filled = match (framer.discarded_bytes(), partial_line.due) {
            (0, None) => Ok(buffer.fill(&mut stream).await),
            (0, Some(due)) => timeout_at(due, buffer.fill(&mut stream)).await,
            _ => timeout(PAUSE_TIMEOUT, buffer.fill(&mut stream)).await,
        };
        let ended = match filled {
            Ok(Ok(count)) => count == 0,
            Ok(Err(error)) => return ReadEnd::Failed(error),
            Err(_) => return ReadEnd::Runaway,
        };
        if ended {
            buffer.bytes.extend_from_slice(b"\n");
        }
        while let Some(frame) = framer.next(&mut buffer.bytes) {
            on(partial_line.complete(frame));
            consume_budget().await;
        }
        if let Some(room) = &room
            && !partial_line.grow_to(room, buffer.bytes.len())
        {
            framer.discard_line();
            while let Some(frame) = framer.next(&mut buffer.bytes) {
                on(partial_line.complete(frame));
                consume_budget().await;
            }
        }
        if ended {
            return ReadEnd::Eof;
        }
        if framer.discarded_bytes() > overrun_limit {
            return ReadEnd::Runaway;
        }
        buffer.release_idle();
        if buffer.flowing {
            yield_now().await;
        }
    }
}

/// An incomplete line that reserves memory.
#[derive(Debug, Default)]
struct PartialLine {
    reservation: Option<Reservation>,
    due: Option<Instant>,
}

impl PartialLine {
    /// Grows with the line; false when the budget is exhausted.
    fn grow_to(&mut self, room: &MessageBudget, bytes: usize) -> bool {
        if bytes <= SMALL {
            return true;
        }
        self.due
            .get_or_insert_with(|| Instant::now() + LINE_TIMEOUT);
        let held = self
            .reservation
            .get_or_insert_with(|| room.clone().reserve());
        held.grow_to(bytes)
    }

    /// Ends the line, complete or not.
    fn complete(&mut self, frame: Frame) -> Frame {
        self.due = None;
        match (frame, self.reservation.take()) {
            (Frame::Line(line), Some(held)) => Frame::Line(held.attach_to(line)),
            (frame, _) => frame,
        }
    }
}

/// Bytes of incomplete lines.
#[derive(Debug, Default)]
struct Buffer {
    bytes: BytesMut,
    /// The last read filled its buffer: more is available.
    flowing: bool,
}

impl Buffer {
    /// Reads once and returns the number of bytes, 0 at the end of the stream.
    async fn fill<R: AsyncRead + Unpin>(&mut self, stream: &mut R) -> io::Result<usize> {
        if !self.flowing || self.bytes.is_empty() {
            return poll_fn(|cx| self.poll_first(stream, cx)).await;
        }
        self.bytes.reserve(READ_AHEAD);
        let count = stream.read_buf(&mut self.bytes).await?;
        self.flowing = count >= READ_AHEAD;
        Ok(count)
    }

    fn poll_first<R: AsyncRead + Unpin>(
        &mut self,
        stream: &mut R,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut space = [MaybeUninit::uninit(); FIRST_READ];
        let mut room = ReadBuf::uninit(&mut space);
        ready!(Pin::new(stream).poll_read(cx, &mut room))?;
        let count = room.filled().len();
        self.flowing = count == FIRST_READ;
        if self.flowing {
            self.bytes.reserve(FIRST_READ + READ_AHEAD);
        }
        self.bytes.extend_from_slice(room.filled());
        Poll::Ready(Ok(count))
    }

    /// Frees the buffer of a stream that pauses.
    fn release_idle(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        } else if self.bytes.len() < LEFTOVER && self.bytes.capacity() > READ_AHEAD / 2 {
            self.bytes = BytesMut::from(&self.bytes[..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::Arc;

    use mgp_sync::Credit;
    use tokio::io::AsyncWriteExt;

    use super::*;

    async fn frames_of(input: &[u8], max_frame: usize) -> (Vec<Frame>, ReadEnd) {
        let mut frames = Vec::new();
        let end = read_lines(input, max_frame, |frame| frames.push(frame)).await;
        (frames, end)
    }

    fn line(frame: &Frame) -> &[u8] {
        match frame {
            Frame::Line(line) => line,
            Frame::LimitExceeded { .. } | Frame::Oversized { .. } => panic!("{frame:?}"),
        }
    }

    /// MCP-068, CMCP-015: one frame per line whatever its size; blank lines are skipped.
    #[tokio::test]
    async fn frames_of_every_size_come_out_whole() {
        let sizes = [1, 200, FIRST_READ - 1, FIRST_READ, READ_AHEAD, 20 << 20, 3];
        let mut input = Vec::new();
        for size in sizes {
            input.extend(std::iter::repeat_n(b'x', size));
            input.extend_from_slice(b"\n\r\n\n");
        }
        let (frames, end) = frames_of(&input, 32 << 20).await;
        let lengths: Vec<usize> = frames.iter().map(|f| line(f).len()).collect();
        assert_eq!(lengths, sizes);
        assert!(matches!(end, ReadEnd::Eof));
    }

    #[tokio::test]
    async fn a_last_line_needs_no_newline() {
        let (frames, end) = frames_of(b"{}\n[1]", 64).await;
        assert_eq!(frames.len(), 2);
        assert_eq!(line(&frames[1]), b"[1]");
        assert!(matches!(end, ReadEnd::Eof));
    }

    /// MCP-072: a banner, binary noise and half a message do not end the connection.
    #[tokio::test]
    async fn garbage_does_not_end_the_connection() {
        let (frames, end) = frames_of(b"Server v1 ready!\n\0\xff\xfe\n{\"a\":\n{}\n", 64).await;
        assert_eq!(frames.len(), 4);
        assert_eq!(line(&frames[3]), b"{}");
        assert!(matches!(end, ReadEnd::Eof));
    }

    #[tokio::test]
    async fn an_oversized_line_is_reported_and_the_next_one_is_read() {
        let input = [&vec![b'x'; 100_000][..], b"\n{}\n"].concat();
        let (frames, _) = frames_of(&input, 65_536).await;
        assert!(matches!(frames[0], Frame::LimitExceeded { .. }));
        assert!(matches!(frames[1], Frame::Oversized { len: 100_000, .. }));
        assert_eq!(line(&frames[2]), b"{}");
    }

    #[tokio::test]
    async fn a_line_without_end_ends_the_read() {
        let mut frames = Vec::new();
        let endless = tokio::io::repeat(b'x');
        let end = read_lines(endless, 1024, |frame| frames.push(frame)).await;
        assert!(matches!(end, ReadEnd::Runaway));
        assert!(matches!(frames[..], [Frame::LimitExceeded { .. }]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_oversized_line_that_is_not_ended_ends_the_read() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        far.write_all(&[b'x'; 2000]).await.unwrap();
        let end = read_lines(near, 1024, |_| {}).await;
        assert!(matches!(end, ReadEnd::Runaway));
    }

    fn room(credit: &Arc<Credit>) -> Option<MessageBudget> {
        Some(MessageBudget::new(credit.clone(), Credit::new(1 << 30)))
    }

    /// A line without memory is dropped, and the next one is read; a complete one stays counted until it is dropped.
    #[tokio::test]
    async fn a_line_without_memory_is_dropped_and_the_next_one_is_read() {
        let credit = Credit::new(1 << 19);
        let mut frames = Vec::new();
        let long = [&vec![b'x'; 1 << 20][..], b"\n"].concat();
        let short = [&vec![b'y'; 300_000][..], b"\n{}\n"].concat();
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let writing = tokio::spawn(async move {
            far.write_all(&long).await.unwrap();
            far.write_all(&short).await.unwrap();
        });
        let end =
            read_lines_with_budget(near, 8 << 20, room(&credit), |frame| frames.push(frame)).await;
        writing.await.unwrap();
        assert!(matches!(end, ReadEnd::Eof));
        assert!(
            matches!(frames[0], Frame::LimitExceeded { .. }),
            "{:?}",
            frames[0]
        );
        assert!(matches!(frames[1], Frame::Oversized { len: 1_048_576, .. }));
        assert_eq!(
            (line(&frames[2]).len(), line(&frames[3])),
            (300_000, &b"{}"[..])
        );
        assert!(credit.in_use_amount() > 0);
        drop(frames);
        assert_eq!(credit.in_use_amount(), 0);
    }

    /// An incomplete line does not hold its memory forever.
    #[tokio::test(start_paused = true)]
    async fn an_incomplete_line_ends_the_read_in_time() {
        let credit = Credit::new(4 << 20);
        let (near, mut far) = tokio::io::duplex(4 << 20);
        far.write_all(&[b'x'; 1 << 20]).await.unwrap();
        let begun = Instant::now();
        let end = read_lines_with_budget(near, 8 << 20, room(&credit), |_| {}).await;
        assert!(matches!(end, ReadEnd::Runaway));
        assert_eq!((begun.elapsed(), credit.in_use_amount()), (LINE_TIMEOUT, 0));
        drop(far);
    }

    /// A peer that writes without end: short lines, and nothing but line ends.
    struct Endless(&'static [u8]);

    impl AsyncRead for Endless {
        fn poll_read(
            self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
            room: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            while room.remaining() >= self.0.len() {
                room.put_slice(self.0);
            }
            Poll::Ready(Ok(()))
        }
    }

    /// Other tasks run on the same thread, however fast a peer writes.
    #[tokio::test]
    async fn a_peer_that_never_pauses_lets_other_tasks_run() {
        for said in [&b"x\n"[..], b"\n", b"{}\n\r\n"] {
            let seen = std::cell::Cell::new(0);
            let reading = read_lines(Endless(said), 1024, |_| seen.set(seen.get() + 1));
            tokio::pin!(reading);
            for poll in 1..=10 {
                let polled = poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await;
                assert!(polled.is_pending());
                assert!(seen.get() <= 200 * poll, "{said:?}: {} lines", seen.get());
                yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn an_idle_stream_has_no_buffer() {
        let (mut near, mut far) = tokio::io::duplex(1 << 20);
        let (mut framer, mut buffer) = (Framer::new(1 << 20), Buffer::default());
        let burst = [&vec![b'x'; 300_000][..], b"\nrest"].concat();
        far.write_all(&burst).await.unwrap();
        let mut read = 0;
        while read < burst.len() {
            read += buffer.fill(&mut near).await.unwrap();
            while framer.next(&mut buffer.bytes).is_some() {}
            buffer.release_idle();
        }
        assert_eq!(&buffer.bytes[..], b"rest");
        assert!(buffer.bytes.capacity() <= LEFTOVER);
    }
}
