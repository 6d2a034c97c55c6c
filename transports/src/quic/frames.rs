//! Frames on a stream: written in one piece, read as they arrive.

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use mgp_protocol::federation::close_codes::{LinkClose, StreamReset};
use mgp_protocol::federation::frames::{
    BadFrameHeader, FrameHeader, FrameKind, HEADER_LEN, StreamKind,
};
use mgp_protocol::federation::to_printable;
use quinn::{ConnectionError, ReadError, RecvStream, SendStream, VarInt, WriteError};
use tokio::task::coop::consume_budget;

use crate::budget::{MessageBudget, Reservation};

/// Why nothing more can be read from a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamFailure {
    /// The link was lost.
    #[error("the link to the node was lost: {0}")]
    LinkLost(String),
    /// The peer closed the link.
    #[error("the link to the node was closed: {0}")]
    LinkClosed(LinkClose),
    /// This node closed the link; its log has the reason.
    #[error("this node closed the link to the node")]
    ClosedHere,
    /// The peer reset the stream.
    #[error("the node ended the call: {0}")]
    Reset(StreamReset),
    /// The peer ended the stream without a last frame.
    #[error("the node said no more")]
    Unfinished,
    /// A frame exceeds the limit.
    #[error("the node sent a frame of {size} bytes, which is too large: a link carries {limit}")]
    Oversized {
        /// The announced bytes.
        size: u64,
        /// The allowed bytes.
        limit: u64,
    },
    /// Malformed data.
    #[error("the node sent something that cannot be read: {0}")]
    Malformed(&'static str),
    /// The memory of the link is in use.
    #[error("there is no room for what the node sends")]
    OverBudget,
    /// The deadline has passed.
    #[error("its time was over")]
    DeadlineExceeded,
}

/// Longest text of a QUIC error, in bytes.
const ERROR_TEXT_MAX: usize = 200;

/// Sanitizes the text of a QUIC error, parts of which may come from an unknown peer.
pub(super) fn describe_error(error: &dyn std::fmt::Display) -> String {
    to_printable(&error.to_string(), ERROR_TEXT_MAX)
}

impl StreamFailure {
    /// The reset code for the peer.
    pub(super) fn to_reset(&self) -> StreamReset {
        match self {
            Self::Oversized { .. } => StreamReset::Oversized,
            Self::Malformed(_) => StreamReset::Malformed,
            Self::OverBudget => StreamReset::Busy,
            Self::DeadlineExceeded => StreamReset::Late,
            Self::LinkLost(_)
            | Self::LinkClosed(_)
            | Self::ClosedHere
            | Self::Reset(_)
            | Self::Unfinished => StreamReset::Abandoned,
        }
    }

    pub(super) fn from_connection_error(error: &ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) => {
                Self::LinkClosed(LinkClose::from_code(close.error_code.into_inner()))
            }
            ConnectionError::LocallyClosed => Self::ClosedHere,
            ConnectionError::ConnectionClosed(close)
                if is_about_certificate(u64::from(close.error_code)) =>
            {
                Self::LinkClosed(LinkClose::NotPinned)
            }
            ConnectionError::VersionMismatch
            | ConnectionError::TransportError(_)
            | ConnectionError::ConnectionClosed(_)
            | ConnectionError::Reset
            | ConnectionError::TimedOut
            | ConnectionError::CidsExhausted => Self::LinkLost(describe_error(error)),
        }
    }
}

/// Whether the peer rejected the certificate: QUIC carries a TLS alert (RFC 8446, 6) as 0x100 plus its number (RFC 9001,
/// 4.8).
fn is_about_certificate(code: u64) -> bool {
    // bad_certificate to certificate_unknown, unknown_ca, access_denied.
    matches!(code.checked_sub(0x100), Some(42..=46 | 48 | 49))
}

/// Why a frame was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteFailure {
    /// It exceeds the frame limit; nothing was written.
    #[error("a message of {size} bytes is too large for a link, which carries {limit}")]
    TooLarge {
        /// Its bytes.
        size: u64,
        /// The allowed bytes.
        limit: u64,
    },
    /// The peer stopped reading this stream.
    #[error("the node reads no more of the call: {0}")]
    Stopped(StreamReset),
    /// The stream or the link has ended.
    #[error(transparent)]
    Gone(StreamFailure),
}

pub(super) fn reset_code(reset: StreamReset) -> VarInt {
    VarInt::from_u64(reset.code()).unwrap_or(VarInt::MAX)
}

/// Writes frames. Dropping it early resets the stream, or finishes it.
#[derive(Debug)]
pub(super) struct FrameWriter {
    stream: SendStream,
    limit: usize,
    done: bool,
    /// Whether to finish instead: a reset would also discard data in flight.
    finish_on_drop: bool,
}

impl FrameWriter {
    pub(super) fn new(stream: SendStream, limit: usize) -> Self {
        Self {
            stream,
            limit,
            done: false,
            finish_on_drop: false,
        }
    }

    /// Sets the longest body from here on.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Finishes the stream when dropped.
    pub(super) fn finish_when_dropped(&mut self) {
        self.finish_on_drop = true;
    }

    /// Writes the kind of the stream.
    pub(super) async fn write_stream_kind(&mut self, kind: StreamKind) -> Result<(), WriteFailure> {
        let first = Bytes::copy_from_slice(&[kind.code()]);
        self.stream
            .write_chunk(first)
            .await
            .map_err(to_write_failure)
    }

    /// Writes the kind of the stream and its first two frames at once: each write takes the connection's lock and wakes its
    /// driver.
    pub(super) async fn begin_call(
        &mut self,
        stream: StreamKind,
        header: Bytes,
        params: Bytes,
    ) -> Result<(), WriteFailure> {
        let first = Bytes::copy_from_slice(&[stream.code()]);
        let head = self.render_head(FrameKind::Header, &header)?;
        let params_head = self.render_head(FrameKind::Params, &params)?;
        let mut chunks = [first, head, header, params_head, params];
        let written = self.stream.write_all_chunks(&mut chunks).await;
        written.map_err(to_write_failure)
    }

    /// Writes one frame. Not cancel safe: the stream can only be dropped then.
    pub(super) async fn write(&mut self, kind: FrameKind, body: Bytes) -> Result<(), WriteFailure> {
        let head = self.render_head(kind, &body)?;
        let written = self.stream.write_all_chunks(&mut [head, body]).await;
        written.map_err(to_write_failure)
    }

    /// Writes two frames at once, so that the first one is no packet of its own. If one is too large, neither is written.
    pub(super) async fn write_two(
        &mut self,
        (first, first_body): (FrameKind, Bytes),
        (kind, body): (FrameKind, Bytes),
    ) -> Result<(), WriteFailure> {
        let heads = (
            self.render_head(first, &first_body)?,
            self.render_head(kind, &body)?,
        );
        let mut chunks = [heads.0, first_body, heads.1, body];
        let written = self.stream.write_all_chunks(&mut chunks).await;
        written.map_err(to_write_failure)
    }

    fn render_head(&self, kind: FrameKind, body: &Bytes) -> Result<Bytes, WriteFailure> {
        let (size, limit) = (body.len() as u64, self.limit as u64);
        let head = FrameHeader::new(kind, body.len(), self.limit);
        let head = head.ok_or(WriteFailure::TooLarge { size, limit })?;
        Ok(Bytes::copy_from_slice(&head.to_bytes()))
    }

    /// For a misbehaving peer.
    #[cfg(test)]
    pub(super) async fn write_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Ends the stream.
    pub(super) fn finish(&mut self) {
        self.done = true;
        // A stream that was stopped or lost needs no end.
        let _finished = self.stream.finish();
    }

    pub(super) fn reset(&mut self, why: StreamReset) {
        self.done = true;
        let _reset = self.stream.reset(reset_code(why));
    }

    /// Waits until the peer stops reading: it has everything, or discards it.
    pub(super) fn wait_stopped(&self) -> impl Future<Output = Option<StreamReset>> + Send + use<> {
        let stopped = self.stream.stopped();
        async move {
            match stopped.await {
                Ok(code) => code.map(|code| StreamReset::from_code(code.into_inner())),
                Err(_) => Some(StreamReset::Abandoned),
            }
        }
    }

    pub(super) fn set_priority(&self, priority: i32) {
        let _set = self.stream.set_priority(priority);
    }
}

impl Drop for FrameWriter {
    fn drop(&mut self) {
        match (self.done, self.finish_on_drop) {
            (true, _) => {}
            (false, true) => self.finish(),
            (false, false) => self.reset(StreamReset::Abandoned),
        }
    }
}

fn to_write_failure(error: WriteError) -> WriteFailure {
    match error {
        WriteError::Stopped(code) => {
            WriteFailure::Stopped(StreamReset::from_code(code.into_inner()))
        }
        WriteError::ConnectionLost(error) => {
            WriteFailure::Gone(StreamFailure::from_connection_error(&error))
        }
        WriteError::ClosedStream | WriteError::ZeroRttRejected => {
            WriteFailure::Gone(StreamFailure::Unfinished)
        }
    }
}

/// Reads frames. Cancel safe: partial frames are stored here.
#[derive(Debug)]
pub(super) struct FrameReader {
    stream: RecvStream,
    limit: usize,
    budget: MessageBudget,
    head: Option<FrameHeader>,
    body: BytesMut,
    reservation: Option<Reservation>,
    done: bool,
    drop_reason: StreamReset,
}

impl FrameReader {
    pub(super) fn new(stream: RecvStream, limit: usize, budget: MessageBudget) -> Self {
        Self {
            stream,
            limit,
            budget,
            head: None,
            body: BytesMut::new(),
            reservation: None,
            done: false,
            drop_reason: StreamReset::Abandoned,
        }
    }

    /// Sets the longest body from here on.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Sets the reset code for a drop before the end.
    pub(super) fn set_drop_reason(&mut self, why: StreamReset) {
        self.drop_reason = why;
    }

    /// The kind of the stream from its first byte; `None` if it is unknown.
    pub(super) async fn read_stream_kind(&mut self) -> Result<Option<StreamKind>, StreamFailure> {
        let chunk = self
            .stream
            .read_chunk(1, true)
            .await
            .map_err(to_stream_failure)?;
        let first = chunk.ok_or(StreamFailure::Unfinished)?.bytes;
        let kind = first.first().and_then(|code| StreamKind::from_code(*code));
        if let Some(kind) = kind {
            self.limit = kind.max_body();
        }
        Ok(kind)
    }

    /// The next frame; `None` after the last one. Optional frames are skipped.
    pub(super) async fn next(&mut self) -> Result<Option<(FrameKind, Bytes)>, StreamFailure> {
        let read = self.read().await;
        match &read {
            Ok(Some(_)) => {}
            Ok(None) => self.done = true,
            Err(failure) => self.stop(failure.to_reset()),
        }
        read
    }

    async fn read(&mut self) -> Result<Option<(FrameKind, Bytes)>, StreamFailure> {
        loop {
            // Yields to other tasks after a hundred frames, however fast a node writes.
            consume_budget().await;
            let head = match self.head {
                Some(head) => head,
                None => match self.fill(HEADER_LEN).await? {
                    true => self.read_head()?,
                    false if self.body.is_empty() => return Ok(None),
                    false => return Err(StreamFailure::Unfinished),
                },
            };
            if !self.fill(head.len as usize).await? {
                return Err(StreamFailure::Unfinished);
            }
            self.head = None;
            let body = self.body.split_to(head.len as usize).freeze();
            let body = match self.reservation.take() {
                Some(taken) => taken.attach_to(body),
                None => body,
            };
            if !matches!(head.kind, FrameKind::Optional(_)) {
                return Ok(Some((head.kind, body)));
            }
        }
    }

    fn read_head(&mut self) -> Result<FrameHeader, StreamFailure> {
        let bytes = self.body.split_to(HEADER_LEN);
        let bytes = <[u8; HEADER_LEN]>::try_from(bytes.as_ref());
        let bytes = bytes.expect("so many bytes were split off");
        let head = FrameHeader::parse(bytes, self.limit).map_err(|bad| match bad {
            BadFrameHeader::Kind(_) => StreamFailure::Malformed("a frame of an unknown kind"),
            BadFrameHeader::Oversized { size, limit } => StreamFailure::Oversized { size, limit },
        })?;
        self.head = Some(head);
        Ok(head)
    }

    /// Reads until this many bytes are available; false when the stream ends before. Reserves memory as they arrive, not as
    /// they are announced.
    async fn fill(&mut self, wanted: usize) -> Result<bool, StreamFailure> {
        while self.body.len() < wanted {
            let missing = wanted - self.body.len();
            let chunk = self
                .stream
                .read_chunk(missing, true)
                .await
                .map_err(to_stream_failure)?;
            let Some(chunk) = chunk else {
                return Ok(false);
            };
            let bytes = self.body.len() + chunk.bytes.len();
            if bytes > HEADER_LEN {
                let budget = &self.budget;
                let taken = self
                    .reservation
                    .get_or_insert_with(|| budget.clone().reserve());
                if !taken.grow_to(bytes) {
                    return Err(StreamFailure::OverBudget);
                }
            }
            self.body.extend_from_slice(&chunk.bytes);
        }
        Ok(true)
    }

    /// Reads the end of the stream if it has already arrived. Dropping a reader before that makes the peer stop, which costs
    /// a needless packet each way.
    pub(super) fn take_end(&mut self) {
        let nothing_left = self.head.is_none() && self.body.is_empty();
        if nothing_left && let Some(Ok(None)) = self.stream.read_chunk(1, true).now_or_never() {
            self.done = true;
        }
    }

    pub(super) fn stop(&mut self, why: StreamReset) {
        self.done = true;
        let _stopped = self.stream.stop(reset_code(why));
        self.body = BytesMut::new();
        self.reservation = None;
    }
}

impl Drop for FrameReader {
    fn drop(&mut self) {
        if !self.done {
            self.stop(self.drop_reason);
        }
    }
}

fn to_stream_failure(error: ReadError) -> StreamFailure {
    match error {
        ReadError::Reset(code) => StreamFailure::Reset(StreamReset::from_code(code.into_inner())),
        ReadError::ConnectionLost(error) => StreamFailure::from_connection_error(&error),
        ReadError::ClosedStream | ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected => {
            StreamFailure::Unfinished
        }
    }
}
