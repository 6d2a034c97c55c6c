//! The queue between all senders of frames and the one writer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use mgp_protocol::framing::to_one_line;

/// The maximum backlog of a reader that is slower than its writers.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Frames queued or being written. 1,024 by default: more requests than that in flight on one stream mean that its
    /// reader has stopped.
    pub frames: usize,
    /// Bytes of those frames. 64 MiB by default: a few of the largest frames, and the maximum memory that one stuck peer
    /// can hold.
    pub bytes: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            frames: 1024,
            bytes: 64 << 20,
        }
    }
}

/// Why a frame was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The queue is at one of its [`QueueLimits`]; the frame was not queued.
    #[error("the peer does not keep up: the queue of frames to it is full")]
    Full,
    /// The stream has ended or is ending; nothing more is sent.
    #[error("the stream is closed")]
    Closed,
}

/// Both ends of a new queue.
pub(super) fn queue(limits: QueueLimits) -> (LineSink, QueueReceiver) {
    let queue = Arc::new(FrameQueue {
        limits,
        state: Mutex::default(),
    });
    let sink = LineSink(Arc::new(QueueSender(Arc::clone(&queue))));
    (sink, QueueReceiver(queue))
}

/// The sending end. All clones feed the same stream, each frame whole (CMCP-016).
///
/// When the last clone is dropped, the writer sends the queued frames and ends.
#[derive(Clone, Debug)]
pub struct LineSink(Arc<QueueSender>);

impl LineSink {
    /// Queues one frame, given without its newline. Never waits.
    ///
    /// A frame that spans lines is put on one line, for any reader's line ends: otherwise one caller's frame would become
    /// two (MCP-068).
    ///
    /// # Errors
    /// [`SendError`]: the queue is full, or the stream has ended.
    pub fn send(&self, frame: Bytes) -> Result<(), SendError> {
        let queue = &self.0.0;
        queue.push(to_one_line(frame), queue.limits)
    }

    /// Queues a frame that may be lost, as [`send`](Self::send) does, but only in half of the queue: the other half is for
    /// frames that must not be lost.
    ///
    /// # Errors
    /// [`SendError`]: half of the queue is full, or the stream has ended.
    pub fn send_low_priority(&self, frame: Bytes) -> Result<(), SendError> {
        let queue = &self.0.0;
        let half = QueueLimits {
            frames: queue.limits.frames / 2,
            bytes: queue.limits.bytes / 2,
        };
        queue.push(to_one_line(frame), half)
    }

    /// Queues a frame that can be sent later, as [`send`](Self::send) does, but only within these limits.
    ///
    /// # Errors
    /// [`SendError`]: these limits are reached, or the stream has ended.
    pub fn send_within(&self, frame: Bytes, room: QueueLimits) -> Result<(), SendError> {
        self.0.0.push(to_one_line(frame), room)
    }

    /// Ends the stream after the queued frames. Later frames are rejected.
    pub fn close(&self) {
        self.0.0.close();
    }

    /// Frames that are queued or being written, and those that an ended writer did not write.
    #[must_use]
    pub fn queued_frames(&self) -> usize {
        self.0.0.lock().load.frames
    }
}

/// All sinks of a stream; dropping the last one ends the stream.
#[derive(Debug)]
struct QueueSender(Arc<FrameQueue>);

impl Drop for QueueSender {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The writer's end of the queue. Dropping it rejects further frames and frees the queued ones.
#[derive(Debug)]
pub(super) struct QueueReceiver(Arc<FrameQueue>);

impl QueueReceiver {
    /// Releases the `written` frames and, when `batch` is empty, moves all queued frames into it. `false` when the stream is
    /// closed and the queue is empty.
    pub(super) fn poll_refill(
        &self,
        batch: &mut VecDeque<Bytes>,
        written: &mut Load,
        cx: &mut Context<'_>,
    ) -> Poll<bool> {
        let mut state = self.0.lock();
        state.load.frames -= written.frames;
        state.load.bytes -= written.bytes;
        *written = Load::default();
        if batch.is_empty() {
            std::mem::swap(&mut state.frames, batch);
        }
        if !batch.is_empty() {
            return Poll::Ready(true);
        }
        if state.closed {
            return Poll::Ready(false);
        }
        state.park(batch, cx.waker());
        Poll::Pending
    }
}

impl Drop for QueueReceiver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        state.writer = None;
        state.frames = VecDeque::new();
    }
}

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) frames: usize,
    pub(super) bytes: usize,
}

#[derive(Debug)]
struct FrameQueue {
    limits: QueueLimits,
    state: Mutex<QueueState>,
}

/// Invariant: `load` counts `frames` and the writer's batch.
#[derive(Debug, Default)]
struct QueueState {
    frames: VecDeque<Bytes>,
    load: Load,
    closed: bool,
    /// Set while the writer sleeps, so that a batch costs one wakeup.
    writer: Option<Waker>,
}

impl QueueState {
    /// The capacity that an idle stream keeps: thousands of them are idle at once.
    const IDLE_ROOM: usize = 32;

    fn park(&mut self, batch: &mut VecDeque<Bytes>, writer: &Waker) {
        self.frames.shrink_to(Self::IDLE_ROOM);
        batch.shrink_to(Self::IDLE_ROOM);
        self.writer = Some(writer.clone());
    }
}

impl FrameQueue {
    fn push(&self, frame: Bytes, limits: QueueLimits) -> Result<(), SendError> {
        let mut state = self.lock();
        if state.closed {
            return Err(SendError::Closed);
        }
        let bytes = state.load.bytes.saturating_add(frame.len());
        if state.load.frames >= limits.frames || bytes > limits.bytes {
            return Err(SendError::Full);
        }
        state.load.frames += 1;
        state.load.bytes = bytes;
        state.frames.push_back(frame);
        wake(state);
        Ok(())
    }

    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        wake(state);
    }

    /// No code panics while it holds the lock, so a poisoned state is consistent.
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the writer if it sleeps, after releasing the lock.
fn wake(mut state: MutexGuard<'_, QueueState>) {
    let writer = state.writer.take();
    drop(state);
    if let Some(writer) = writer {
        writer.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::line_channel;

    const SMALL: QueueLimits = QueueLimits {
        frames: 2,
        bytes: 10,
    };

    fn frame(len: usize) -> Bytes {
        vec![b'x'; len].into()
    }

    #[test]
    fn a_full_queue_rejects_by_count_and_by_size() {
        let (sink, _writer) = line_channel(SMALL);
        assert_eq!(sink.send(frame(11)), Err(SendError::Full));
        assert_eq!(sink.send(frame(1)), Ok(()));
        assert_eq!(sink.send(frame(9)), Ok(()));
        assert_eq!(sink.send(frame(0)), Err(SendError::Full));
    }

    #[test]
    fn a_frame_counts_until_it_is_written() {
        let queue = Arc::new(FrameQueue {
            limits: SMALL,
            state: Mutex::default(),
        });
        let (receiver, mut batch) = (QueueReceiver(Arc::clone(&queue)), VecDeque::new());
        let refill = |written: &mut Load, batch: &mut VecDeque<Bytes>| {
            receiver.poll_refill(batch, written, &mut Context::from_waker(Waker::noop()))
        };
        queue.push(frame(4), SMALL).unwrap();
        queue.push(frame(4), SMALL).unwrap();
        assert_eq!(refill(&mut Load::default(), &mut batch), Poll::Ready(true));
        assert_eq!(queue.push(frame(1), SMALL), Err(SendError::Full));
        batch.clear();
        let mut written = Load {
            frames: 2,
            bytes: 8,
        };
        assert_eq!(refill(&mut written, &mut batch), Poll::Pending);
        assert_eq!(queue.push(frame(10), SMALL), Ok(()));
    }

    #[test]
    fn low_priority_frames_leave_capacity_for_others() {
        let (sink, _writer) = line_channel(SMALL);
        assert_eq!(sink.send_low_priority(frame(6)), Err(SendError::Full));
        assert_eq!(sink.send_low_priority(frame(5)), Ok(()));
        assert_eq!(sink.send_low_priority(frame(0)), Err(SendError::Full));
        assert_eq!(sink.send(frame(5)), Ok(()));
    }

    #[test]
    fn a_queue_without_writer_rejects_and_holds_nothing() {
        let (sink, writer) = line_channel(QueueLimits::default());
        let mut held = frame(1000);
        sink.send(held.clone()).unwrap();
        drop(writer);
        assert_eq!(sink.send(frame(1)), Err(SendError::Closed));
        held = held
            .try_into_mut()
            .map(bytes::BytesMut::freeze)
            .expect("no other owner is left");
        assert_eq!(held.len(), 1000);
    }

    /// MCP-068: a frame from a pretty-printing caller stays one frame with every way to send.
    #[tokio::test]
    async fn a_frame_never_spans_lines() {
        let (sink, writer) = line_channel(QueueLimits::default());
        let pretty = Bytes::from("{\n\r\"a\": \"x\\ny\u{2028}\"\r\n}");
        sink.send(pretty.clone()).unwrap();
        sink.send_low_priority(pretty).unwrap();
        drop(sink);
        let mut written = Vec::new();
        writer
            .run(&mut written, std::time::Duration::from_secs(20))
            .await;
        let line = "{  \"a\": \"x\\ny\\u2028\"  }\n";
        assert_eq!(String::from_utf8(written).unwrap(), line.repeat(2));
    }
}
