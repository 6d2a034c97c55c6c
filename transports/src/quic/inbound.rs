//! The streams that a peer opens: calls of its agents, and replication.

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

/// The time limit of one replication stream.
const SYNC_TIMEOUT: Duration = Duration::from_secs(120);

/// A stream that a peer opened.
#[derive(Debug)]
pub enum InboundStream {
    /// A call of one of its agents.
    Call(Box<InboundCall>),
    /// A replication stream.
    Sync(Box<SyncStream>),
}

/// An incoming call. Its header is validated; its caller is not verified.
#[derive(Debug)]
pub struct InboundCall {
    /// The header.
    pub header: CallHeader,
    /// The unchanged parameters.
    pub params: Bytes,
    /// Receives further frames of the caller.
    pub input: CallInput,
    /// Sends frames to the caller.
    pub output: CallOutput,
    /// The kind of the stream, which determines its permits: calls, listens, or events.
    pub kind: StreamKind,
}

/// All streams that the peer of a link opens, except its control stream.
pub struct InboundStreams {
    connection: quinn::Connection,
    budget: MessageBudget,
    calls: Arc<Semaphore>,
    listens: Arc<Semaphore>,
    follows: Arc<Semaphore>,
    syncs: Arc<Semaphore>,
    /// Bounded by the streams that the peer may open.
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

    /// The next stream with a complete header. A slow one does not delay others.
    ///
    /// # Errors
    /// The link has ended.
    pub async fn next(&mut self) -> Result<InboundStream, StreamFailure> {
        loop {
            tokio::select! {
                stream = self.connection.accept_bi() => {
                    let (send, receive) = stream.map_err(|error| StreamFailure::from_connection_error(&error))?;
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

/// A stream with an incomplete header.
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
                let permits = Arc::clone(&self.calls);
                self.open_call_with_permit(permits, kind).await
            }
            Ok(Ok(Some(kind @ StreamKind::Listen))) => {
                let permits = Arc::clone(&self.listens);
                self.open_call_with_permit(permits, kind).await
            }
            Ok(Ok(Some(kind @ StreamKind::Follow))) => {
                let permits = Arc::clone(&self.follows);
                self.open_call_with_permit(permits, kind).await
            }
            Ok(Ok(Some(StreamKind::Sync))) => match Arc::clone(&self.syncs).try_acquire_owned() {
                Ok(permit) => Some(self.open_sync(permit)),
                Err(_) => self.reset(StreamReset::Busy),
            },
            Ok(Ok(Some(StreamKind::Control) | None)) => self.reset(StreamReset::Unexpected),
            Ok(Err(failure)) => self.reset(failure.to_reset()),
            Err(_) => self.reset(StreamReset::Late),
        }
    }

    fn open_sync(mut self, permit: OwnedSemaphorePermit) -> InboundStream {
        let deadline = Instant::now() + SYNC_TIMEOUT;
        self.writer.set_limit(StreamKind::Sync.max_body());
        let sync = SyncStream::new(self.reader, self.writer, deadline, permit);
        InboundStream::Sync(Box::new(sync))
    }

    async fn open_call_with_permit(
        self,
        permits: Arc<Semaphore>,
        kind: StreamKind,
    ) -> Option<InboundStream> {
        match permits.try_acquire_owned() {
            Ok(permit) => self.read_call(permit, kind).await,
            Err(_) => self.refuse_call(&CallRejection::Busy).await,
        }
    }

    async fn read_call(
        mut self,
        permit: OwnedSemaphorePermit,
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
        let deadline = Instant::now() + Duration::from_millis(header.left_ms);
        self.reader.set_limit(CALL_BODY);
        let params = match tokio::time::timeout_at(deadline, self.reader.next()).await {
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
            input: CallInput::new_callee(self.reader, deadline),
            output: CallOutput::new_callee(self.writer, deadline, permit),
            kind,
        })))
    }

    /// Rejects the call instead of a server. Does not wait for a peer that does not read the answer.
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
