//! The two ends of a call, and replication streams.

use bytes::Bytes;
use mgp_protocol::federation::call::timings::CallTimings;
use mgp_protocol::federation::call::{CallRejection, owner_refusal};
use mgp_protocol::federation::close_codes::StreamReset;
use mgp_protocol::federation::frames::{CALL_BODY, FrameKind};
use mgp_protocol::refusal::owner_refusal::{OwnerAnswer, OwnerRefusal};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::frames::{FrameReader, FrameWriter, StreamFailure, WriteFailure};

/// The agent's answer when the text of a refusal exceeds a frame.
const TRUNCATED_MESSAGE: &str = r#"{"code":-32603,"message":"the node of the server refused the call, in words that are too long for a link"}"#;

/// A frame from the other end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFrame {
    /// A JSON-RPC message that belongs to the call.
    Relayed(Bytes),
    /// The server's result. The last frame.
    Result(Bytes),
    /// The server's error. The last frame.
    Error(Bytes),
    /// A rejection by the node itself. The last frame.
    Refused(CallRejection),
    /// A refusal of the owner's kernel instead of its server. The last frame.
    OwnerRefusal(OwnerRefusal),
}

/// Receives frames. Dropping it before the call's end makes the other end stop.
#[derive(Debug)]
pub struct CallInput {
    reader: FrameReader,
    deadline: Instant,
    /// Only the calling end receives answers.
    is_caller: bool,
    is_ended: bool,
    /// The called node's report of the call's timings.
    times: Option<CallTimings>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl CallInput {
    /// For the calling end, whose input ends with an answer.
    pub(super) fn new_caller(
        mut reader: FrameReader,
        deadline: Instant,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        reader.set_drop_reason(StreamReset::Cancelled);
        Self {
            reader,
            deadline,
            is_caller: true,
            is_ended: false,
            times: None,
            _permit: Some(permit),
        }
    }

    /// For the called end.
    pub(super) fn new_callee(mut reader: FrameReader, deadline: Instant) -> Self {
        reader.set_drop_reason(StreamReset::Answered);
        Self {
            reader,
            deadline,
            is_caller: false,
            is_ended: false,
            times: None,
            _permit: None,
        }
    }

    /// The next message. The calling end gets messages until the answer; at the called end `Unfinished` means that the caller
    /// sends nothing more.
    ///
    /// # Errors
    /// [`StreamFailure`]; nothing more follows.
    pub async fn next(&mut self) -> Result<CallFrame, StreamFailure> {
        if self.is_ended {
            return Err(StreamFailure::Unfinished);
        }
        let read = match timeout_at(self.deadline, self.next_after_times()).await {
            Ok(read) => read,
            Err(_) => {
                self.reader.stop(StreamReset::Late);
                Err(StreamFailure::DeadlineExceeded)
            }
        };
        let frame = read.and_then(|frame| frame.ok_or(StreamFailure::Unfinished));
        let frame = frame.and_then(|(kind, body)| self.parse_frame(kind, body));
        self.is_ended = !matches!(frame, Ok(CallFrame::Relayed(_)));
        if self.is_ended {
            self.reader.set_drop_reason(StreamReset::Answered);
            self.reader.take_end();
        }
        frame
    }

    /// The next frame except timings. The first valid timings are stored; others are skipped.
    async fn next_after_times(&mut self) -> Result<Option<(FrameKind, Bytes)>, StreamFailure> {
        loop {
            match self.reader.next().await? {
                Some((FrameKind::Times, body)) if self.is_caller => {
                    self.times = self.times.or_else(|| CallTimings::decode(&body));
                }
                Some((FrameKind::Times, _)) => {}
                frame => return Ok(frame),
            }
        }
    }

    /// The called node's report of the call's timings, if it sent one before its answer. Unverified, except that the parts are
    /// not longer than the whole.
    #[must_use]
    pub fn times(&self) -> Option<CallTimings> {
        self.times
    }

    fn parse_frame(&mut self, kind: FrameKind, body: Bytes) -> Result<CallFrame, StreamFailure> {
        let malformed = match kind {
            FrameKind::Relayed => return Ok(CallFrame::Relayed(body)),
            FrameKind::Result if self.is_caller => return Ok(CallFrame::Result(body)),
            FrameKind::Error if self.is_caller => return Ok(CallFrame::Error(body)),
            FrameKind::Refused if self.is_caller => match CallRejection::decode(&body) {
                Ok(refused) => return Ok(CallFrame::Refused(refused)),
                Err(_) => "a refusal that cannot be read",
            },
            FrameKind::OwnerRefusal if self.is_caller => match owner_refusal::decode(&body) {
                Ok(refusal) => return Ok(CallFrame::OwnerRefusal(refusal)),
                Err(_) => "a refusal that cannot be read",
            },
            FrameKind::Result | FrameKind::Error | FrameKind::Refused | FrameKind::OwnerRefusal => {
                "an answer by the caller"
            }
            FrameKind::Message
            | FrameKind::Header
            | FrameKind::Params
            | FrameKind::Times
            | FrameKind::Optional(_) => "a frame that has no place in a call",
        };
        self.reader.stop(StreamReset::Malformed);
        Err(StreamFailure::Malformed(malformed))
    }

    /// Cancels the call: makes the other end stop.
    #[cfg(test)]
    pub(crate) fn cancel(mut self) {
        self.reader.stop(StreamReset::Cancelled);
    }
}

/// Sends frames. Dropping it before the call's end resets the stream.
#[derive(Debug)]
pub struct CallOutput {
    writer: FrameWriter,
    deadline: Instant,
    /// Timings to send right before the answer.
    times: Option<CallTimings>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl CallOutput {
    pub(super) fn new_caller(mut writer: FrameWriter, deadline: Instant) -> Self {
        // A caller that sends nothing more still waits for the answer.
        writer.finish_when_dropped();
        Self {
            writer,
            deadline,
            times: None,
            _permit: None,
        }
    }

    pub(super) fn new_callee(
        writer: FrameWriter,
        deadline: Instant,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            writer,
            deadline,
            times: None,
            _permit: Some(permit),
        }
    }

    /// Sets the timings to send with the answer, in a frame of their own, since others read the answer.
    pub fn set_times(&mut self, times: CallTimings) {
        self.times = Some(times);
    }

    /// Sends a message of the call. Not cancel safe: the call can only be ended then.
    ///
    /// # Errors
    /// [`WriteFailure`]. A message that is too large leaves the call unchanged.
    pub async fn relay(&mut self, message: Bytes) -> Result<(), WriteFailure> {
        self.write(FrameKind::Relayed, message).await
    }

    /// Sends the server's result. One that is too large is rejected as such toward the caller.
    ///
    /// # Errors
    /// [`WriteFailure`], also when it was too large.
    pub async fn send_result(self, result: Bytes) -> Result<(), WriteFailure> {
        self.send_last_frame(FrameKind::Result, result).await
    }

    /// Sends the server's error; as [`Self::send_result`].
    ///
    /// # Errors
    /// [`WriteFailure`], also when it was too large.
    pub async fn send_error(self, error: Bytes) -> Result<(), WriteFailure> {
        self.send_last_frame(FrameKind::Error, error).await
    }

    /// Sends a refusal of this node's kernel instead of its server. A text that is too large is replaced.
    ///
    /// # Errors
    /// [`WriteFailure`].
    pub async fn send_refusal(self, refusal: &OwnerRefusal) -> Result<(), WriteFailure> {
        let mut body = owner_refusal::encode(refusal);
        if body.len() > CALL_BODY {
            let short = OwnerRefusal {
                answer: OwnerAnswer::Error(TRUNCATED_MESSAGE.to_owned()),
                ..*refusal
            };
            body = owner_refusal::encode(&short);
        }
        self.send_last_frame(FrameKind::OwnerRefusal, body.into())
            .await
    }

    /// Sends a rejection by this node itself.
    ///
    /// # Errors
    /// [`WriteFailure`].
    pub async fn send_refused(mut self, why: &CallRejection) -> Result<(), WriteFailure> {
        let body = Bytes::from(why.encode());
        self.write(FrameKind::Refused, body).await?;
        self.writer.finish();
        Ok(())
    }

    async fn send_last_frame(mut self, kind: FrameKind, body: Bytes) -> Result<(), WriteFailure> {
        let written = match self.times.take() {
            Some(times) => {
                let times = (FrameKind::Times, Bytes::from(times.encode()));
                let both = self.writer.write_two(times, (kind, body));
                timeout_at(self.deadline, both).await
            }
            None => timeout_at(self.deadline, self.writer.write(kind, body)).await,
        };
        match self.check_deadline(written) {
            Ok(()) => {
                self.writer.finish();
                Ok(())
            }
            Err(WriteFailure::TooLarge { size, limit }) => {
                self.send_refused(&CallRejection::AnswerTooLarge { size, limit })
                    .await?;
                Err(WriteFailure::TooLarge { size, limit })
            }
            Err(failure @ (WriteFailure::Stopped(_) | WriteFailure::Gone(_))) => Err(failure),
        }
    }

    pub(super) async fn write(&mut self, kind: FrameKind, body: Bytes) -> Result<(), WriteFailure> {
        let written = timeout_at(self.deadline, self.writer.write(kind, body)).await;
        self.check_deadline(written)
    }

    fn check_deadline(
        &mut self,
        written: Result<Result<(), WriteFailure>, Elapsed>,
    ) -> Result<(), WriteFailure> {
        written.unwrap_or_else(|_| {
            self.writer.reset(StreamReset::Late);
            Err(WriteFailure::Gone(StreamFailure::DeadlineExceeded))
        })
    }

    /// Waits until the other end stops reading: at the called end, the call was cancelled or lost.
    pub fn wait_stopped(&self) -> impl Future<Output = Option<StreamReset>> + Send + use<> {
        self.writer.wait_stopped()
    }

    /// Longest body of a frame.
    #[must_use]
    pub const fn max_frame() -> usize {
        CALL_BODY
    }
}

/// A replication stream: messages both ways, with a deadline.
#[derive(Debug)]
pub struct SyncStream {
    reader: FrameReader,
    writer: FrameWriter,
    deadline: Instant,
    _permit: OwnedSemaphorePermit,
}

impl SyncStream {
    pub(super) fn new(
        reader: FrameReader,
        writer: FrameWriter,
        deadline: Instant,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            reader,
            writer,
            deadline,
            _permit: permit,
        }
    }

    /// Writes one message.
    ///
    /// # Errors
    /// [`WriteFailure`].
    pub async fn send(&mut self, message: Bytes) -> Result<(), WriteFailure> {
        match timeout_at(
            self.deadline,
            self.writer.write(FrameKind::Message, message),
        )
        .await
        {
            Ok(written) => written,
            Err(_) => {
                self.writer.reset(StreamReset::Late);
                Err(WriteFailure::Gone(StreamFailure::DeadlineExceeded))
            }
        }
    }

    /// Ends this side.
    pub fn finish(&mut self) {
        self.writer.finish();
    }

    /// The next message; `None` after the last one.
    ///
    /// # Errors
    /// [`StreamFailure`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, StreamFailure> {
        match timeout_at(self.deadline, self.reader.next()).await {
            Ok(Ok(Some((FrameKind::Message, body)))) => Ok(Some(body)),
            Ok(Ok(Some(_))) => {
                self.reader.stop(StreamReset::Malformed);
                Err(StreamFailure::Malformed("a frame of a call"))
            }
            Ok(Ok(None)) => Ok(None),
            Ok(Err(failure)) => Err(failure),
            Err(_) => {
                self.reader.stop(StreamReset::Late);
                Err(StreamFailure::DeadlineExceeded)
            }
        }
    }
}
