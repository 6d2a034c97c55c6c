//! The kernel's socket: whom it belongs to, and the lines that come out of it.

use std::io::{self, ErrorKind};
use std::path::Path;

use bytes::{Bytes, BytesMut};
use mgp_protocol::framing::{Frame, Framer};
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;

use crate::cli::failure::Failure;

/// Longest message taken from the kernel, in bytes: eight results of the size a server may send.
const MAX_FRAME: usize = 64 << 20;

/// Why there is no connection.
pub(in crate::cli) fn no_connection(error: &io::Error, socket: &Path) -> Failure {
    if matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::ConnectionRefused
    ) {
        return Failure::NotRunning(socket.to_owned());
    }
    Failure::Other(format!("{}: {error}", socket.display()))
}

/// Refuses to talk to a socket that somebody else listens on.
pub(in crate::cli) fn trusted(uid: u32, socket: &Path) -> Result<(), Failure> {
    match uid == 0 || uid == nix::unistd::geteuid().as_raw() {
        true => Ok(()),
        false => Err(Failure::Other(format!(
            "{} belongs to another user (number {uid}); nothing was said to it",
            socket.display()
        ))),
    }
}

/// The lines of a connection.
pub(super) struct Frames {
    reader: OwnedReadHalf,
    buffer: BytesMut,
    framer: Framer,
}

impl Frames {
    pub(super) fn new(reader: OwnedReadHalf) -> Self {
        Self {
            reader,
            buffer: BytesMut::new(),
            framer: Framer::new(MAX_FRAME),
        }
    }

    /// The next line. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Result<Bytes, Failure> {
        loop {
            match self.framer.next(&mut self.buffer) {
                Some(Frame::Line(line)) => return Ok(line),
                Some(Frame::Overrun { .. } | Frame::Oversized { .. }) => {
                    return Err(Failure::Other(format!(
                        "an answer of more than {MAX_FRAME} bytes is too long"
                    )));
                }
                None => {}
            }
            match self.reader.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return Err(gone()),
                Ok(_) => {}
            }
        }
    }
}

/// The connection ended before the answer came.
pub(in crate::cli) fn gone() -> Failure {
    Failure::Other("the kernel closed the connection".into())
}
