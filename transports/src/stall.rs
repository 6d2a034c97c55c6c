//! A deadline on writes that make no progress: a peer that never reads holds no task for ever.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream whose writes, flushes and shutdowns fail when the peer takes nothing for a while.
///
/// Reads are passed through. A timer exists only while a write waits, so that a peer which keeps
/// up costs nothing.
#[derive(Debug)]
pub struct StallGuard<IO> {
    stream: IO,
    timeout: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

/// Why a guarded write failed; found inside of the [`io::Error`] by [`is_stall`].
#[derive(Debug)]
struct StallError(Duration);

impl fmt::Display for StallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer took nothing for {:?}", self.0)
    }
}

impl std::error::Error for StallError {}

/// True for the error of a [`StallGuard`] that lost its patience.
#[must_use]
pub(crate) fn is_stall(error: &io::Error) -> bool {
    matches!(error.get_ref(), Some(inner) if inner.is::<StallError>())
}

impl<IO> StallGuard<IO> {
    /// Guards a stream; `allowed` is the time in which the peer has to take at least something.
    #[must_use]
    pub fn new(stream: IO, timeout: Duration) -> Self {
        Self {
            stream,
            timeout,
            deadline: None,
        }
    }

    /// The stream itself.
    pub fn get_ref(&self) -> &IO {
        &self.stream
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
        let allowed = self.timeout;
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(allowed)));
        let stalled = || io::Error::new(io::ErrorKind::TimedOut, StallError(allowed));
        deadline.as_mut().poll(cx).map(|()| Err(stalled()))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for StallGuard<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, room)
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
        let begun = Instant::now();
        let error = guarded.write_all(&[0; 100]).await.unwrap_err();
        assert!(is_stall(&error), "{error}");
        assert_eq!(error.to_string(), "the peer took nothing for 5s");
        assert_eq!(begun.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_is_no_stalled_one() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut guarded = StallGuard::new(near, ALLOWED);
        let begun = Instant::now();
        let reading = tokio::spawn(async move {
            let mut piece = [0; 16];
            for _ in 0..10 {
                tokio::time::sleep(ALLOWED - Duration::from_secs(1)).await;
                far.read_exact(&mut piece).await.unwrap();
            }
        });
        guarded.write_all(&[0; 160]).await.unwrap();
        reading.await.unwrap();
        assert!(begun.elapsed() > 5 * ALLOWED);
    }

    #[test]
    fn another_time_out_is_no_stall() {
        assert!(!is_stall(&io::ErrorKind::TimedOut.into()));
    }
}
