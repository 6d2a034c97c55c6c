//! The one task that writes to a stream: batches of frames, one system call each, EOF at the end.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::sink::{Load, QueueReceiver};
use crate::stall::{self, StallGuard};

/// Frames per system call: their slices fit on the stack, and a longer batch would save less than a percent of the call.
const FRAMES_PER_WRITE: usize = 64;

/// How writing ended.
#[derive(Debug)]
pub enum WriteEnd {
    /// The sinks were closed, everything queued was written and the stream was shut down.
    Closed,
    /// The peer accepted nothing for the timeout. Queued frames are lost.
    Stalled,
    /// The stream failed, usually because the peer is gone. Queued frames are lost.
    Failed(io::Error),
}

impl From<io::Error> for WriteEnd {
    fn from(error: io::Error) -> Self {
        if stall::is_stall(&error) {
            Self::Stalled
        } else {
            Self::Failed(error)
        }
    }
}

/// Empties the queue of a [`LineSink`](super::LineSink) into a stream.
#[derive(Debug)]
pub struct LineWriter {
    queue: QueueReceiver,
    batch: WriteBatch,
}

impl LineWriter {
    pub(super) fn new(queue: QueueReceiver) -> Self {
        Self {
            queue,
            batch: WriteBatch::default(),
        }
    }

    /// Writes until the sinks are closed or the stream ends. `stall` limits the time without progress. The stream is shut
    /// down and dropped, which a child sees as EOF.
    pub async fn run<W: AsyncWrite + Unpin>(mut self, stream: W, stall: Duration) -> WriteEnd {
        let mut stream = StallGuard::new(stream, stall);
        match self.pump(&mut stream).await {
            Ok(()) => WriteEnd::Closed,
            Err(error) => error.into(),
        }
    }

    async fn pump<W: AsyncWrite + Unpin>(&mut self, stream: &mut W) -> io::Result<()> {
        let Self { queue, batch } = self;
        while poll_fn(|cx| queue.poll_refill(&mut batch.frames, &mut batch.written, cx)).await {
            poll_fn(|cx| batch.poll_write(stream, cx)).await?;
            if batch.frames.is_empty() {
                stream.flush().await?;
            }
        }
        stream.shutdown().await
    }
}

/// Frames being written, each followed by a newline.
#[derive(Debug, Default)]
struct WriteBatch {
    frames: VecDeque<Bytes>,
    /// The first frame is written except for its newline.
    newline_due: bool,
    /// Written since the queue was last updated.
    written: Load,
}

impl WriteBatch {
    fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut W,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut space = [IoSlice::new(&[]); 2 * FRAMES_PER_WRITE];
        let slices = self.slices(&mut space);
        let taken = ready!(Pin::new(stream).poll_write_vectored(cx, slices))?;
        if taken == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(taken);
        Poll::Ready(Ok(()))
    }

    fn slices<'a, 's>(&'a self, space: &'s mut [IoSlice<'a>]) -> &'s [IoSlice<'a>] {
        let mut used = 0;
        for (frame, pair) in self.frames.iter().zip(space.chunks_exact_mut(2)) {
            pair[0] = IoSlice::new(frame);
            pair[1] = IoSlice::new(b"\n");
            used += 2;
        }
        &space[usize::from(self.newline_due)..used]
    }

    fn advance(&mut self, mut taken: usize) {
        while taken > 0 {
            let frame = self
                .frames
                .front_mut()
                .expect("only what was offered is taken");
            let part = taken.min(frame.len());
            frame.advance(part);
            self.written.bytes += part;
            taken -= part;
            self.newline_due = frame.is_empty();
            if self.newline_due && taken > 0 {
                taken -= 1;
                self.newline_due = false;
                self.written.frames += 1;
                self.frames.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
    use tokio::net::UnixStream;

    use super::super::{LineSink, QueueLimits, SendError, line_channel};
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// Accepts at most `bite` bytes for each call and counts the calls.
    #[derive(Default)]
    struct Nibbler {
        bite: usize,
        calls: usize,
        taken: Vec<u8>,
    }

    impl AsyncWrite for Nibbler {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let offered: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).collect();
            let part = &offered[..offered.len().min(self.bite)];
            self.calls += 1;
            self.taken.extend_from_slice(part);
            Poll::Ready(Ok(part.len()))
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn text(frame: &str) -> Bytes {
        Bytes::copy_from_slice(frame.as_bytes())
    }

    #[tokio::test]
    async fn all_queued_frames_leave_with_one_write() {
        let (sink, writer) = line_channel(QueueLimits::default());
        for n in 0..FRAMES_PER_WRITE {
            sink.send(text(&n.to_string())).unwrap();
        }
        drop(sink);
        let mut nibbler = Nibbler {
            bite: usize::MAX,
            ..Nibbler::default()
        };
        assert!(matches!(
            writer.run(&mut nibbler, LONG).await,
            WriteEnd::Closed
        ));
        assert_eq!(nibbler.calls, 1);
        assert!(nibbler.taken.starts_with(b"0\n1\n2\n"));
        assert!(nibbler.taken.ends_with(b"62\n63\n"));
    }

    #[tokio::test]
    async fn partial_writes_lose_and_repeat_nothing() {
        for bite in 1..12 {
            let (sink, writer) = line_channel(QueueLimits::default());
            for frame in ["{}", "", "[1,2,3]", "\"long enough\"", "x"] {
                sink.send(text(frame)).unwrap();
            }
            sink.close();
            let mut nibbler = Nibbler {
                bite,
                ..Nibbler::default()
            };
            assert!(matches!(
                writer.run(&mut nibbler, LONG).await,
                WriteEnd::Closed
            ));
            let want = "{}\n\n[1,2,3]\n\"long enough\"\nx\n";
            assert_eq!(nibbler.taken, want.as_bytes(), "bite of {bite}");
        }
    }

    /// CMCP-016: frames of 64 tasks arrive whole, and those of each task in their order.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn frames_of_many_tasks_never_interleave() {
        let (near, far) = UnixStream::pair().unwrap();
        let (sink, writer) = line_channel(QueueLimits::default());
        for task in 0..64 {
            tokio::spawn(send_a_hundred(sink.clone(), task));
        }
        drop(sink);
        let writing = tokio::spawn(writer.run(near, LONG));
        let mut next: HashMap<String, usize> = HashMap::new();
        let mut lines = BufReader::new(far).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            let (task, rest) = line.split_once(' ').unwrap();
            let (number, filling) = rest.split_once(' ').unwrap();
            let due = next.entry(task.to_owned()).or_default();
            assert_eq!(number.parse(), Ok(*due));
            assert_eq!(filling, "y".repeat(*due * 37));
            *due += 1;
        }
        assert!(matches!(writing.await.unwrap(), WriteEnd::Closed));
        assert_eq!(next.len(), 64);
        assert!(next.values().all(|count| *count == 100));
    }

    async fn send_a_hundred(sink: LineSink, task: usize) {
        for number in 0..100 {
            let frame = text(&format!("{task} {number} {}", "y".repeat(number * 37)));
            while sink.send(frame.clone()) == Err(SendError::Full) {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_never_reads_ends_the_writer() {
        let (near, far) = tokio::io::duplex(64);
        let (sink, writer) = line_channel(QueueLimits::default());
        sink.send(text(&"z".repeat(1000))).unwrap();
        assert!(matches!(writer.run(near, LONG).await, WriteEnd::Stalled));
        assert_eq!(sink.send(text("{}")), Err(SendError::Closed));
        drop(far);
    }

    /// CMCP-071: the loss of a peer is detected, and later frames are rejected.
    #[tokio::test]
    async fn a_peer_that_is_gone_fails_the_writer() {
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        let (sink, writer) = line_channel(QueueLimits::default());
        sink.send(text("{}")).unwrap();
        assert!(matches!(writer.run(near, LONG).await, WriteEnd::Failed(_)));
        assert_eq!(sink.send(text("{}")), Err(SendError::Closed));
    }

    /// MCP-020: closing writes what is queued, then the peer sees EOF.
    #[tokio::test]
    async fn closing_finishes_the_queue_and_ends_the_stream() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let (sink, writer) = line_channel(QueueLimits::default());
        let writing = tokio::spawn(writer.run(near, LONG));
        sink.send(text("{}")).unwrap();
        sink.close();
        assert_eq!(sink.send(text("{}")), Err(SendError::Closed));
        let mut all = String::new();
        far.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "{}\n");
        assert!(matches!(writing.await.unwrap(), WriteEnd::Closed));
    }
}
