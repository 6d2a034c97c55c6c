//! The streams that a peer opens: calls of its agents, and what it copies from here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use mgp_protocol::federation::call::{CallHeader, CallRejection};
use mgp_protocol::federation::close_codes::StreamReset;
use mgp_protocol::federation::frames::{CALL_BODY, CONTROL_BODY, FrameKind, StreamKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::frames::{FrameReader, FrameWriter, StreamFailure};
use super::limits::{MAX_CALLS, MAX_FOLLOWS, MAX_LISTENS, MAX_SYNCS, STREAM_OPEN_TIMEOUT};
use super::streams::{CallInput, CallOutput, SyncStream};
use crate::budget::MessageBudget;

/// Longest that one copies from another on one stream.
const SYNC_TIMEOUT: Duration = Duration::from_secs(120);

/// A stream that a peer opened.
#[derive(Debug)]
pub enum InboundStream {
    /// A call of one of its agents.
    Call(Box<InboundCall>),
    /// It copies.
    Sync(Box<SyncStream>),
}

/// A call as it came in. Its header is whole and judged; who calls is not.
#[derive(Debug)]
pub struct InboundCall {
    /// The header.
    pub header: CallHeader,
    /// The parameters, as they were written.
    pub params: Bytes,
    /// When its time is over.
    pub deadline: Instant,
    /// What the caller says further.
    pub input: CallInput,
    /// What the caller is told.
    pub output: CallOutput,
    /// Whose turns it has one of: those of calls, of listens, or of events.
    pub kind: StreamKind,
}

/// All streams that the peer of a link opens, but its control stream.
pub struct InboundStreams {
    connection: quinn::Connection,
    budget: MessageBudget,
    calls: Arc<Semaphore>,
    listens: Arc<Semaphore>,
    follows: Arc<Semaphore>,
    syncs: Arc<Semaphore>,
    /// At most as many as the peer may have streams.
    opening: FuturesUnordered<BoxFuture<'static, Option<InboundStream>>>,
}

impl fmt::Debug for InboundStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboundStreams").finish_non_exhaustive()
    }
}

impl InboundStreams {
    pub(super) fn new(connection: quinn::Connection, budget: MessageBudget) -> Self {
        Self {
            connection,
            budget,
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            listens: Arc::new(Semaphore::new(MAX_LISTENS)),
            follows: Arc::new(Semaphore::new(MAX_FOLLOWS)),
            syncs: Arc::new(Semaphore::new(MAX_SYNCS)),
            opening: FuturesUnordered::new(),
        }
    }

    /// The next stream whose beginning is whole. One that is slow to begin keeps no other waiting.
    ///
    /// # Errors
    /// The link is gone.
    pub async fn next(&mut self) -> Result<InboundStream, StreamFailure> {
        loop {
            tokio::select! {
                stream = self.connection.accept_bi() => {
                    let (send, receive) = stream.map_err(|gone| StreamFailure::from_connection_error(&gone))?;
                    let opening = OpeningStream {
                        writer: FrameWriter::new(send, CALL_BODY),
                        reader: FrameReader::new(receive, CONTROL_BODY, self.budget.clone()),
                        calls: Arc::clone(&self.calls),
                        listens: Arc::clone(&self.listens),
                        follows: Arc::clone(&self.follows),
                        syncs: Arc::clone(&self.syncs),
                    };
                    self.opening.push(Box::pin(opening.open()));
                }
                Some(opened) = self.opening.next() => {
                    if let Some(opened) = opened {
                        return Ok(opened);
                    }
                }
            }
        }
    }
}

/// A stream whose beginning is not whole yet.
struct OpeningStream {
    writer: FrameWriter,
    reader: FrameReader,
    calls: Arc<Semaphore>,
    listens: Arc<Semaphore>,
    follows: Arc<Semaphore>,
    syncs: Arc<Semaphore>,
}

impl OpeningStream {
    async fn open(mut self) -> Option<InboundStream> {
        let kind = timeout(STREAM_OPEN_TIMEOUT, self.reader.read_stream_kind()).await;
        match kind {
            Ok(Ok(Some(kind @ StreamKind::Call))) => {
                let turns = Arc::clone(&self.calls);
                self.open_call_with_permit(turns, kind).await
            }
            Ok(Ok(Some(kind @ StreamKind::Listen))) => {
                let turns = Arc::clone(&self.listens);
                self.open_call_with_permit(turns, kind).await
            }
            Ok(Ok(Some(kind @ StreamKind::Follow))) => {
                let turns = Arc::clone(&self.follows);
                self.open_call_with_permit(turns, kind).await
            }
            Ok(Ok(Some(StreamKind::Sync))) => match Arc::clone(&self.syncs).try_acquire_owned() {
                Ok(turn) => Some(self.open_sync(turn)),
                Err(_) => self.reset(StreamReset::Busy),
            },
            Ok(Ok(Some(StreamKind::Control) | None)) => self.reset(StreamReset::Unexpected),
            Ok(Err(failure)) => self.reset(failure.to_reset()),
            Err(_) => self.reset(StreamReset::Late),
        }
    }

    fn open_sync(mut self, turn: OwnedSemaphorePermit) -> InboundStream {
        let until = Instant::now() + SYNC_TIMEOUT;
        self.writer.set_limit(StreamKind::Sync.max_body());
        let sync = SyncStream::new(self.reader, self.writer, until, turn);
        InboundStream::Sync(Box::new(sync))
    }

    async fn open_call_with_permit(
        self,
        turns: Arc<Semaphore>,
        kind: StreamKind,
    ) -> Option<InboundStream> {
        match turns.try_acquire_owned() {
            Ok(turn) => self.read_call(turn, kind).await,
            Err(_) => self.refuse_call(&CallRejection::Busy).await,
        }
    }

    async fn read_call(
        mut self,
        turn: OwnedSemaphorePermit,
        kind: StreamKind,
    ) -> Option<InboundStream> {
        self.reader.set_limit(CONTROL_BODY);
        let header = match timeout(STREAM_OPEN_TIMEOUT, self.reader.next()).await {
            Ok(Ok(Some((FrameKind::Header, body)))) => CallHeader::decode(&body),
            Ok(Ok(Some(_) | None)) => return self.reset(StreamReset::Malformed),
            Ok(Err(failure)) => return self.reset(failure.to_reset()),
            Err(_) => return self.reset(StreamReset::Late),
        };
        let header = match header {
            Ok(header) => header,
            Err(refused) => return self.refuse_call(&refused).await,
        };
        let until = Instant::now() + Duration::from_millis(header.left_ms);
        self.reader.set_limit(CALL_BODY);
        let params = match tokio::time::timeout_at(until, self.reader.next()).await {
            Ok(Ok(Some((FrameKind::Params, body)))) => body,
            Ok(Ok(Some(_) | None)) => return self.reset(StreamReset::Malformed),
            Ok(Err(StreamFailure::Oversized { size, limit })) => {
                return self
                    .refuse_call(&CallRejection::CallTooLarge { size, limit })
                    .await;
            }
            Ok(Err(StreamFailure::OverBudget)) => {
                return self.refuse_call(&CallRejection::Busy).await;
            }
            Ok(Err(failure)) => return self.reset(failure.to_reset()),
            Err(_) => return self.refuse_call(&CallRejection::Late).await,
        };
        Some(InboundStream::Call(Box::new(InboundCall {
            header,
            params,
            deadline: until,
            input: CallInput::new_callee(self.reader, until),
            output: CallOutput::new_callee(self.writer, until, turn),
            kind,
        })))
    }

    /// Answers in the place of a server. A peer that does not read the answer is not waited for.
    async fn refuse_call(mut self, why: &CallRejection) -> Option<InboundStream> {
        let body = Bytes::from(why.encode());
        let written = timeout(
            STREAM_OPEN_TIMEOUT,
            self.writer.write(FrameKind::Refused, body),
        )
        .await;
        if let Ok(Ok(())) = written {
            self.writer.finish();
        }
        self.reader.set_drop_reason(StreamReset::Answered);
        None
    }

    fn reset(mut self, why: StreamReset) -> Option<InboundStream> {
        self.writer.reset(why);
        self.reader.stop(why);
        None
    }
}
