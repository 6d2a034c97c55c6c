//! The stream of control messages, which has priority over all others.

use std::time::Duration;

use bytes::Bytes;
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::frames::FrameKind;
use mgp_protocol::federation::hello::Hello;
use tokio::time::timeout;

use super::frames::{FrameReader, FrameWriter, StreamFailure, WriteFailure};
use super::pinned::close_connection;

/// How long a peer may leave its control stream unread; then it counts as lost.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Above all other streams.
const PRIORITY: i32 = 10;

/// Receives control messages. A malformed one ends the link with a reason for the peer.
#[derive(Debug)]
pub struct ControlInput {
    reader: FrameReader,
    connection: quinn::Connection,
}

/// Sends control messages.
#[derive(Debug)]
pub struct ControlOutput {
    writer: FrameWriter,
    connection: quinn::Connection,
}

impl ControlInput {
    pub(super) fn new(reader: FrameReader, connection: quinn::Connection) -> Self {
        Self { reader, connection }
    }

    /// The next message, including those of unknown kinds.
    ///
    /// # Errors
    /// [`StreamFailure`]; the link has ended then.
    pub async fn next(&mut self) -> Result<Control, StreamFailure> {
        let read = match self.read().await {
            Ok(Control::Hello(_)) => Err(StreamFailure::Malformed("a second hello")),
            Ok(
                message @ (Control::Ping(_)
                | Control::Pong(_)
                | Control::Renewal(_)
                | Control::Addresses(_)
                | Control::Logs(_)
                | Control::Index(_)
                | Control::IndexReport(_)
                | Control::Leaving(_)
                | Control::Reach(_)
                | Control::Unknown(_)),
            ) => Ok(message),
            Err(failure) => Err(failure),
        };
        self.close_on_failure(read)
    }

    /// The first message. That of a link that is already closed is not accepted.
    pub(super) async fn read_hello(&mut self) -> Result<Hello, StreamFailure> {
        let read = match self.read().await {
            Ok(Control::Hello(hello)) => match self.connection.close_reason() {
                None => Ok(hello),
                Some(gone) => Err(StreamFailure::from_connection_error(&gone)),
            },
            Ok(
                Control::Ping(_)
                | Control::Pong(_)
                | Control::Renewal(_)
                | Control::Addresses(_)
                | Control::Logs(_)
                | Control::Index(_)
                | Control::IndexReport(_)
                | Control::Leaving(_)
                | Control::Reach(_)
                | Control::Unknown(_),
            ) => Err(StreamFailure::Malformed(
                "a link that does not begin with a hello",
            )),
            Err(failure) => Err(failure),
        };
        self.close_on_failure(read)
    }

    async fn read(&mut self) -> Result<Control, StreamFailure> {
        match self.reader.next().await? {
            Some((FrameKind::Message, body)) => Control::decode(&body)
                .map_err(|_| StreamFailure::Malformed("a control message that is none")),
            Some(_) => Err(StreamFailure::Malformed(
                "a frame that is no control message",
            )),
            None => Err(StreamFailure::Unfinished),
        }
    }

    fn close_on_failure<T>(&self, read: Result<T, StreamFailure>) -> Result<T, StreamFailure> {
        if let Err(failure) = &read {
            let why = match failure {
                StreamFailure::Oversized { .. } => LinkClose::Oversized,
                StreamFailure::Malformed(_) => LinkClose::Malformed,
                StreamFailure::LinkLost(_)
                | StreamFailure::LinkClosed(_)
                | StreamFailure::ClosedHere
                | StreamFailure::Reset(_)
                | StreamFailure::Unfinished
                | StreamFailure::OverBudget
                | StreamFailure::DeadlineExceeded => LinkClose::Done,
            };
            close_connection(&self.connection, why);
        }
        read
    }
}

impl ControlOutput {
    pub(super) fn new(writer: FrameWriter, connection: quinn::Connection) -> Self {
        writer.set_priority(PRIORITY);
        Self { writer, connection }
    }

    /// For a misbehaving peer.
    #[cfg(test)]
    pub(super) fn writer(&mut self) -> &mut FrameWriter {
        &mut self.writer
    }

    /// Writes one message. Not cancel safe: the link can only be closed then.
    ///
    /// # Errors
    /// [`WriteFailure`]. A message that is too large leaves the link unchanged, any other failure ends it.
    pub async fn send(&mut self, message: &Control) -> Result<(), WriteFailure> {
        let body = Bytes::from(message.encode());
        let writing = self.writer.write(FrameKind::Message, body);
        let written = timeout(UNREAD_TIMEOUT, writing).await;
        let written = written.unwrap_or(Err(WriteFailure::Gone(StreamFailure::DeadlineExceeded)));
        if let Err(WriteFailure::Stopped(_) | WriteFailure::Gone(_)) = written {
            close_connection(&self.connection, LinkClose::Done);
        }
        written
    }
}
