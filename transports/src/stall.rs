//! A deadline on writes without progress: a peer that never reads blocks no task forever.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream whose writes, flushes and shutdowns fail when the peer accepts nothing for a while.
///
/// Reads are passed through. A timer exists only while a write waits, so that a peer that keeps up costs nothing.
#[derive(Debug)]
pub struct StallGuard<IO> {
    stream: IO,
    timeout: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

/// Why a guarded write failed; [`is_stall`] finds it inside the [`io::Error`].
#[derive(Debug)]
struct StallError(Duration);

impl fmt::Display for StallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer accepted nothing for {:?}", self.0)
    }
}

impl std::error::Error for StallError {}

/// Whether the error is a timeout of a [`StallGuard`].
#[must_use]
pub(crate) fn is_stall(error: &io::Error) -> bool {
    matches!(error.get_ref(), Some(inner) if inner.is::<StallError>())
}

impl<IO> StallGuard<IO> {
    /// Guards a stream; within `timeout` the peer has to accept at least one byte.
    #[must_use]
    pub fn new(stream: IO, timeout: Duration) -> Self {
        Self {
            stream,
            timeout,
            deadline: None,
        }
    }

    /// Progress disarms the deadline; waiting arms it or, once it has passed, fails.
    fn track_progress<T>(
        &mut self,
        progress: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.deadline = None;
            return progress;
        }
        let timeout = self.timeout;
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        let stalled = || io::Error::new(io::ErrorKind::TimedOut, StallError(timeout));
        deadline.as_mut().poll(cx).map(|()| Err(stalled()))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for StallGuard<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for StallGuard<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.track_progress(progress, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.track_progress(progress, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_flush(cx);
        self.track_progress(progress, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.track_progress(progress, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    const ALLOWED: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_write_to_a_peer_that_never_reads_fails_in_time() {
        let (near, _far) = tokio::io::duplex(16);
        let mut guarded = StallGuard::new(near, ALLOWED);
        let started = Instant::now();
        let error = guarded.write_all(&[0; 100]).await.unwrap_err();
        assert!(is_stall(&error), "{error}");
        assert_eq!(error.to_string(), "the peer accepted nothing for 5s");
        assert_eq!(started.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_is_not_stalled() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut guarded = StallGuard::new(near, ALLOWED);
        let started = Instant::now();
        let reading = tokio::spawn(async move {
            let mut piece = [0; 16];
            for _ in 0..10 {
                tokio::time::sleep(ALLOWED - Duration::from_secs(1)).await;
                far.read_exact(&mut piece).await.unwrap();
            }
        });
        guarded.write_all(&[0; 160]).await.unwrap();
        reading.await.unwrap();
        assert!(started.elapsed() > 5 * ALLOWED);
    }

    #[test]
    fn another_timeout_is_no_stall() {
        assert!(!is_stall(&io::ErrorKind::TimedOut.into()));
    }
}
