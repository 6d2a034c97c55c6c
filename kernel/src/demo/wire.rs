//! The lines of the demo server: read one by one, written by one task.

use std::io;

use bytes::BytesMut;
use mgp_protocol::framing::{Frame, Framer, one_line};
use mgp_protocol::jsonrpc::{self, ErrorObject, RequestId};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// Longest line taken, in bytes: no request of a demo is longer.
const MAX_LINE: usize = 1 << 20;
/// Lines that may wait to be written; whoever has one more waits with it.
const MAX_UNWRITTEN: usize = 64;

/// Lines in.
pub(super) struct Lines<R> {
    input: R,
    buffer: BytesMut,
    framer: Framer,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            buffer: BytesMut::new(),
            framer: Framer::new(MAX_LINE),
        }
    }

    /// The next line; `None` at the end. May be dropped and called again.
    pub(super) async fn next(&mut self) -> io::Result<Option<bytes::Bytes>> {
        loop {
            match self.framer.next(&mut self.buffer) {
                Some(Frame::Line(line)) => return Ok(Some(line)),
                Some(Frame::Oversized { len, .. }) => {
                    eprintln!("passed over a line of {len} bytes");
                    continue;
                }
                Some(Frame::Overrun { .. }) => continue,
                None => {}
            }
            if self.input.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// Lines out, for everyone who has something to say.
#[derive(Clone)]
pub(super) struct Outbox(mpsc::Sender<Vec<u8>>);

impl Outbox {
    /// An outbox and the task that empties it; the task ends with the last outbox.
    pub(super) fn new(
        mut output: impl AsyncWrite + Unpin,
    ) -> (Self, impl Future<Output = io::Result<()>>) {
        let (sender, mut lines) = mpsc::channel::<Vec<u8>>(MAX_UNWRITTEN);
        let write = async move {
            while let Some(line) = lines.recv().await {
                output.write_all(&one_line(line.into())).await?;
                output.write_all(b"\n").await?;
                output.flush().await?;
            }
            Ok(())
        };
        (Self(sender), write)
    }

    /// Sends a line. When nobody reads any more, the server is about to end anyway.
    pub(super) async fn send(&self, line: Vec<u8>) {
        let _ = self.0.send(line).await;
    }

    /// Sends a line if there is room for it right now.
    pub(super) fn offer(&self, line: Vec<u8>) {
        let _ = self.0.try_send(line);
    }

    /// Answers a request.
    pub(super) async fn answer(&self, id: &RequestId, outcome: Result<Value, ErrorObject>) {
        let line = match outcome {
            Ok(result) => jsonrpc::result(id.as_json(), &result.to_string()),
            Err(error) => {
                let error = serde_json::to_string(&error).expect("an error object is always JSON");
                jsonrpc::error(id.as_json(), &error)
            }
        };
        self.send(line).await;
    }
}
