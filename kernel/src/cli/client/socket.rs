//! The kernel's socket: checks its owner, and reads its lines.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mgp_protocol::framing::{Frame, Framer};
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;

use crate::cli::failure::{Failure, KernelAbsence};

/// Longest message accepted from the kernel, in bytes: eight results of a server's size limit.
const MAX_FRAME: usize = 64 << 20;

/// Why there is no connection.
pub(in crate::cli) fn connect_failure(error: &io::Error, socket: &Path) -> Failure {
    if matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::ConnectionRefused
    ) {
        return Failure::NotRunning(KernelAbsence::NotListening(socket.to_owned()));
    }
    Failure::Other(format!("{}: {error}", socket.display()))
}

/// Retries after a kernel closed the connection without an answer: a dying kernel accepts connections for a moment. One
/// that continues to do so rejects this client.
pub(in crate::cli) struct ConnectRetries(u32);

impl ConnectRetries {
    /// Time between two attempts.
    pub(in crate::cli) const RETRY_INTERVAL: Duration = Duration::from_millis(50);
    /// Attempts within 2 s.
    const ATTEMPTS_MAX: u32 = 40;

    pub(in crate::cli) fn new() -> Self {
        Self(Self::ATTEMPTS_MAX)
    }

    /// Whether to try again, after [`ConnectRetries::RETRY_INTERVAL`].
    pub(in crate::cli) fn next_attempt(&mut self) -> bool {
        let again = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        again
    }
}

/// Whether the socket's backlog is full.
pub(in crate::cli) fn backlog_is_full(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

/// Rejects a socket on which another user listens.
pub(in crate::cli) fn check_owner(uid: u32, socket: &Path) -> Result<(), Failure> {
    if uid == 0 || uid == nix::unistd::geteuid().as_raw() {
        Ok(())
    } else {
        Err(Failure::Other(format!(
            "{} belongs to another user (number {uid}); nothing was said to it",
            socket.display()
        )))
    }
}

/// Reads the lines of a connection.
pub(in crate::cli) struct Frames {
    reader: OwnedReadHalf,
    buffer: BytesMut,
    framer: Framer,
    has_received: bool,
}

impl Frames {
    pub(in crate::cli) fn new(reader: OwnedReadHalf) -> Self {
        Self {
            reader,
            buffer: BytesMut::new(),
            framer: Framer::new(MAX_FRAME),
            has_received: false,
        }
    }

    /// Whether anything was received.
    pub(in crate::cli) fn has_received(&self) -> bool {
        self.has_received
    }

    /// The next line. Cancel-safe.
    pub(in crate::cli) async fn next_frame(&mut self) -> Result<Bytes, Failure> {
        loop {
            match self.framer.next(&mut self.buffer) {
                Some(Frame::Line(line)) => return Ok(line),
                Some(Frame::LimitExceeded { .. } | Frame::Oversized { .. }) => {
                    return Err(Failure::Other(format!(
                        "an answer of more than {MAX_FRAME} bytes is too long"
                    )));
                }
                None => {}
            }
            match self.reader.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return Err(Failure::ConnectionClosed),
                Ok(_) => self.has_received = true,
            }
        }
    }
}
