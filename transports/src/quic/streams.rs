//! A call as one of its two ends has it, and the streams on which nodes copy from each other.

use bytes::Bytes;
use mgp_protocol::federation::call::times::PartTimes;
use mgp_protocol::federation::call::{CallRefused, owner_refusal};
use mgp_protocol::federation::ends::StreamReset;
use mgp_protocol::federation::frames::{CALL_BODY, FrameKind};
use mgp_protocol::refusal::owner_refusal::{OwnerAnswer, OwnerRefusal};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::frames::{FrameReader, FrameWriter, StreamFailure, WriteFailure};

/// What the agent is answered where the words of a refusal are too large for a frame.
const TOO_LONG: &str = r#"{"code":-32603,"message":"the node of the server refused the call, in words that are too long for a link"}"#;

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
    Refused(CallRefused),
    /// The node's kernel refuses the call in the place of its server. The last frame.
    OwnerRefusal(OwnerRefusal),
}

/// What comes in. Dropped before the call's end, it tells the other end that nobody reads on.
#[derive(Debug)]
pub struct CallInput {
    reader: FrameReader,
    until: Instant,
    /// Answers come in at the calling end only.
    calling: bool,
    ended: bool,
    /// What the called node said of where the call's time went.
    times: Option<PartTimes>,
    _turn: Option<OwnedSemaphorePermit>,
}

impl CallInput {
    /// The calling end: what it reads ends with an answer.
    pub(super) fn calling(
        mut reader: FrameReader,
        until: Instant,
        turn: OwnedSemaphorePermit,
    ) -> Self {
        reader.leave_for(StreamReset::Cancelled);
        Self {
            reader,
            until,
            calling: true,
            ended: false,
            times: None,
            _turn: Some(turn),
        }
    }

    /// The called end.
    pub(super) fn called(mut reader: FrameReader, until: Instant) -> Self {
        reader.leave_for(StreamReset::Answered);
        Self {
            reader,
            until,
            calling: false,
            ended: false,
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
        if self.ended {
            return Err(StreamFailure::Unfinished);
        }
        let read = match timeout_at(self.until, self.past_times()).await {
            Ok(read) => read,
            Err(_) => {
                self.reader.stop(StreamReset::Late);
                Err(StreamFailure::Late)
            }
        };
        let frame = read.and_then(|frame| frame.ok_or(StreamFailure::Unfinished));
        let frame = frame.and_then(|(kind, body)| self.understand(kind, body));
        self.ended = !matches!(frame, Ok(CallFrame::Relayed(_)));
        if self.ended {
            self.reader.leave_for(StreamReset::Answered);
            self.reader.take_end();
        }
        frame
    }

    /// The next frame that is no times. The first times that can be are kept; others are passed over.
    async fn past_times(&mut self) -> Result<Option<(FrameKind, Bytes)>, StreamFailure> {
        loop {
            match self.reader.next().await? {
                Some((FrameKind::Times, body)) if self.calling => {
                    self.times = self.times.or_else(|| PartTimes::decode(&body));
                }
                Some((FrameKind::Times, _)) => {}
                frame => return Ok(frame),
            }
        }
    }

    /// Where the call's time went at the called node, as far as that said so before its answer. Its own word: the
    /// parts are not longer than the whole, and no more is known.
    #[must_use]
    pub fn times(&self) -> Option<PartTimes> {
        self.times
    }

    fn understand(&mut self, kind: FrameKind, body: Bytes) -> Result<CallFrame, StreamFailure> {
        let malformed = match kind {
            FrameKind::Relayed => return Ok(CallFrame::Relayed(body)),
            FrameKind::Result if self.calling => return Ok(CallFrame::Result(body)),
            FrameKind::Error if self.calling => return Ok(CallFrame::Error(body)),
            FrameKind::Refused if self.calling => match CallRefused::decode(&body) {
                Ok(refused) => return Ok(CallFrame::Refused(refused)),
                Err(_) => "a refusal that cannot be read",
            },
            FrameKind::OwnerRefusal if self.calling => match owner_refusal::decode(&body) {
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
    until: Instant,
    /// What is said right before the answer.
    times: Option<PartTimes>,
    _turn: Option<OwnedSemaphorePermit>,
}

impl CallOutput {
    pub(super) fn calling(mut writer: FrameWriter, until: Instant) -> Self {
        // Who has nothing more to say has still asked.
        writer.finish_when_dropped();
        Self {
            writer,
            until,
            times: None,
            _turn: None,
        }
    }

    pub(super) fn called(writer: FrameWriter, until: Instant, turn: OwnedSemaphorePermit) -> Self {
        Self {
            writer,
            until,
            times: None,
            _turn: Some(turn),
        }
    }

    /// Says with the answer where the call's time went here. Never a part of the answer, which others read.
    pub fn took(&mut self, times: PartTimes) {
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
    pub async fn result(self, result: Bytes) -> Result<(), WriteFailure> {
        self.answer(FrameKind::Result, result).await
    }

    /// The server's error; the same holds for it.
    ///
    /// # Errors
    /// [`WriteFailure`], also when it was too large.
    pub async fn error(self, error: Bytes) -> Result<(), WriteFailure> {
        self.answer(FrameKind::Error, error).await
    }

    /// This node's kernel refuses the call in the place of its server. Words that are too large are left out.
    ///
    /// # Errors
    /// [`WriteFailure`].
    pub async fn reject(self, refusal: &OwnerRefusal) -> Result<(), WriteFailure> {
        let mut body = owner_refusal::encode(refusal);
        if body.len() > CALL_BODY {
            let short = OwnerRefusal {
                answer: OwnerAnswer::Error(TOO_LONG.to_owned()),
                ..*refusal
            };
            body = owner_refusal::encode(&short);
        }
        self.answer(FrameKind::OwnerRefusal, body.into()).await
    }

    /// This node answers by itself.
    ///
    /// # Errors
    /// [`WriteFailure`].
    pub async fn refuse(mut self, why: &CallRefused) -> Result<(), WriteFailure> {
        let body = Bytes::from(why.encode());
        self.write(FrameKind::Refused, body).await?;
        self.writer.finish();
        Ok(())
    }

    async fn answer(mut self, kind: FrameKind, body: Bytes) -> Result<(), WriteFailure> {
        let written = match self.times.take() {
            Some(times) => {
                let times = (FrameKind::Times, Bytes::from(times.encode()));
                let both = self.writer.write_two(times, (kind, body));
                timeout_at(self.until, both).await
            }
            None => timeout_at(self.until, self.writer.write(kind, body)).await,
        };
        match self.in_time(written) {
            Ok(()) => {
                self.writer.finish();
                Ok(())
            }
            Err(WriteFailure::TooLarge { size, limit }) => {
                self.refuse(&CallRefused::AnswerTooLarge { size, limit })
                    .await?;
                Err(WriteFailure::TooLarge { size, limit })
            }
            Err(failure @ (WriteFailure::Stopped(_) | WriteFailure::Gone(_))) => Err(failure),
        }
    }

    pub(super) async fn write(&mut self, kind: FrameKind, body: Bytes) -> Result<(), WriteFailure> {
        let written = timeout_at(self.until, self.writer.write(kind, body)).await;
        self.in_time(written)
    }

    fn in_time(
        &mut self,
        written: Result<Result<(), WriteFailure>, Elapsed>,
    ) -> Result<(), WriteFailure> {
        written.unwrap_or_else(|_| {
            self.writer.reset(StreamReset::Late);
            Err(WriteFailure::Gone(StreamFailure::Late))
        })
    }

    /// Until the other end reads no more: at the called end, the call was cancelled or lost.
    pub fn stopped(&self) -> impl Future<Output = Option<StreamReset>> + Send + use<> {
        self.writer.stopped()
    }

    /// Longest body of a frame.
    #[must_use]
    pub const fn longest() -> usize {
        CALL_BODY
    }
}

/// A stream on which one node copies from another: messages both ways, within a time.
#[derive(Debug)]
pub struct SyncStream {
    reader: FrameReader,
    writer: FrameWriter,
    until: Instant,
    _turn: OwnedSemaphorePermit,
}

impl SyncStream {
    pub(super) fn new(
        reader: FrameReader,
        writer: FrameWriter,
        until: Instant,
        turn: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            reader,
            writer,
            until,
            _turn: turn,
        }
    }

    /// Writes one message.
    ///
    /// # Errors
    /// [`WriteFailure`].
    pub async fn send(&mut self, message: Bytes) -> Result<(), WriteFailure> {
        match timeout_at(self.until, self.writer.write(FrameKind::Message, message)).await {
            Ok(written) => written,
            Err(_) => {
                self.writer.reset(StreamReset::Late);
                Err(WriteFailure::Gone(StreamFailure::Late))
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
        match timeout_at(self.until, self.reader.next()).await {
            Ok(Ok(Some((FrameKind::Message, body)))) => Ok(Some(body)),
            Ok(Ok(Some(_))) => {
                self.reader.stop(StreamReset::Malformed);
                Err(StreamFailure::Malformed("a frame of a call"))
            }
            Ok(Ok(None)) => Ok(None),
            Ok(Err(failure)) => Err(failure),
            Err(_) => {
                self.reader.stop(StreamReset::Late);
                Err(StreamFailure::Late)
            }
        }
    }
}
