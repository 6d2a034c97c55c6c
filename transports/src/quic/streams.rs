//! A call as one of its two ends has it, and the streams on which nodes copy from each other.

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

/// What the agent is answered where the words of a refusal are too large for a frame.
const TRUNCATED_MESSAGE: &str = r#"{"code":-32603,"message":"the node of the server refused the call, in words that are too long for a link"}"#;

/// What the other end of a call says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFrame {
    /// A JSON-RPC message that belongs to the call.
    Relayed(Bytes),
    /// The server's result. The last frame.
    Result(Bytes),
    /// The server's error. The last frame.
    Error(Bytes),
    /// The node answers by itself. The last frame.
    Refused(CallRejection),
    /// The node's kernel refuses the call in the place of its server. The last frame.
    OwnerRefusal(OwnerRefusal),
}

/// What comes in. Dropped before the call's end, it tells the other end that nobody reads on.
#[derive(Debug)]
pub struct CallInput {
    reader: FrameReader,
    deadline: Instant,
    /// Answers come in at the calling end only.
    is_caller: bool,
    is_ended: bool,
    /// What the called node said of where the call's time went.
    times: Option<CallTimings>,
    _turn: Option<OwnedSemaphorePermit>,
}

impl CallInput {
    /// The calling end: what it reads ends with an answer.
    pub(super) fn new_caller(
        mut reader: FrameReader,
        deadline: Instant,
        turn: OwnedSemaphorePermit,
    ) -> Self {
        reader.set_drop_reason(StreamReset::Cancelled);
        Self {
            reader,
            deadline,
            is_caller: true,
            is_ended: false,
            times: None,
            _turn: Some(turn),
        }
    }

    /// The called end.
    pub(super) fn new_callee(mut reader: FrameReader, deadline: Instant) -> Self {
        reader.set_drop_reason(StreamReset::Answered);
        Self {
            reader,
            deadline,
            is_caller: false,
            is_ended: false,
            times: None,
            _turn: None,
        }
    }

    /// The next message. At the calling end there is one until the answer; at the called end `Unfinished`
    /// means that the caller has nothing more to say.
    ///
    /// # Errors
    /// [`StreamFailure`]; then there is nothing more.
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

    /// The next frame that is no times. The first times that can be are kept; others are passed over.
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

    /// Where the call's time went at the called node, as far as that said so before its answer. Its own word: the
    /// parts are not longer than the whole, and no more is known.
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

    /// Wants no more of it: the other end is told to stop.
    pub fn cancel(mut self) {
        self.reader.stop(StreamReset::Cancelled);
    }
}

/// What goes out. Dropped before the call's end, it tells the other end so.
#[derive(Debug)]
pub struct CallOutput {
    writer: FrameWriter,
    deadline: Instant,
    /// What is said right before the answer.
    times: Option<CallTimings>,
    _turn: Option<OwnedSemaphorePermit>,
}

impl CallOutput {
    pub(super) fn new_caller(mut writer: FrameWriter, deadline: Instant) -> Self {
        // Who has nothing more to say has still asked.
        writer.finish_when_dropped();
        Self {
            writer,
            deadline,
            times: None,
            _turn: None,
        }
    }

    pub(super) fn new_callee(
        writer: FrameWriter,
        deadline: Instant,
        turn: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            writer,
            deadline,
            times: None,
            _turn: Some(turn),
        }
    }

    /// Says with the answer where the call's time went here. Never a part of the answer, which others read.
    pub fn set_times(&mut self, times: CallTimings) {
        self.times = Some(times);
    }

    /// A message that belongs to the call. Given up half way, the call can only be ended.
    ///
    /// # Errors
    /// [`WriteFailure`]. One that is too large leaves the call as it was.
    pub async fn relay(&mut self, message: Bytes) -> Result<(), WriteFailure> {
        self.write(FrameKind::Relayed, message).await
    }

    /// The server's result. One that is too large is refused toward the caller as too large.
    ///
    /// # Errors
    /// [`WriteFailure`], also when it was too large.
    pub async fn send_result(self, result: Bytes) -> Result<(), WriteFailure> {
        self.send_last_frame(FrameKind::Result, result).await
    }

    /// The server's error; the same holds for it.
    ///
    /// # Errors
    /// [`WriteFailure`], also when it was too large.
    pub async fn send_error(self, error: Bytes) -> Result<(), WriteFailure> {
        self.send_last_frame(FrameKind::Error, error).await
    }

    /// This node's kernel refuses the call in the place of its server. Words that are too large are left out.
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

    /// This node answers by itself.
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

    /// Until the other end reads no more: at the called end, the call was cancelled or lost.
    pub fn wait_stopped(&self) -> impl Future<Output = Option<StreamReset>> + Send + use<> {
        self.writer.wait_stopped()
    }

    /// Longest body of a frame.
    #[must_use]
    pub const fn max_frame() -> usize {
        CALL_BODY
    }
}

/// A stream on which one node copies from another: messages both ways, within a time.
#[derive(Debug)]
pub struct SyncStream {
    reader: FrameReader,
    writer: FrameWriter,
    deadline: Instant,
    _turn: OwnedSemaphorePermit,
}

impl SyncStream {
    pub(super) fn new(
        reader: FrameReader,
        writer: FrameWriter,
        deadline: Instant,
        turn: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            reader,
            writer,
            deadline,
            _turn: turn,
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

    /// Nothing follows from this side.
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
