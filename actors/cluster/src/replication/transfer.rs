//! Entries on their way between two nodes: a stream for each message of them.

use std::time::Duration;

use bytes::Bytes;
use mgp_protocol::federation::logs::LogEntries;
use mgp_protocol::federation::sync::SyncOpening;
use mgp_protocol::ids::NodeId;
use mgp_runtime::Mailbox;
use mgp_transports::quic::{BeginCallError, StreamFailure, SyncStream, WriteFailure};
use tokio::time::Instant;

use super::{ReplicationHandle, ReplicationMsg};
use crate::links::PeerLink;

/// Longest that one message of entries is on its way: half a megabyte over a slow line.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(30);
/// Messages on one stream. A node that brings more begins another one.
const MESSAGES: usize = 16;

/// The right to bring entries to a node. There is one for each node: dropped, it lets the next ones go.
#[derive(Debug)]
pub struct TransferPermit {
    node: NodeId,
    actor: Mailbox<ReplicationMsg>,
}

impl TransferPermit {
    pub(super) fn new(node: NodeId, actor: Mailbox<ReplicationMsg>) -> Self {
        Self { node, actor }
    }
}

impl Drop for TransferPermit {
    fn drop(&mut self) {
        // One for each turn, of which there is one for each node.
        let _ = self
            .actor
            .send_to_self(ReplicationMsg::TransferDone(self.node));
    }
}

/// Why entries did not come over. What is missing is asked for again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// No stream.
    #[error(transparent)]
    Begin(#[from] BeginCallError),
    /// It could not be written.
    #[error(transparent)]
    Write(#[from] WriteFailure),
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] StreamFailure),
    /// It holds something else.
    #[error("what came is no entries of logs: {0}")]
    Malformed(String),
    /// More messages than a stream has.
    #[error("more than {MESSAGES} messages on one stream")]
    TooMany,
}

/// Brings entries to the node of this link.
///
/// # Errors
/// [`TransferError`].
pub async fn send_entries(
    link: &PeerLink,
    entries: LogEntries,
    turn: TransferPermit,
) -> Result<(), TransferError> {
    let mut stream = link
        .link
        .open_sync(Instant::now() + TRANSFER_TIMEOUT)
        .await?;
    stream.send(Bytes::from(SyncOpening::Logs.encode())).await?;
    stream.send(Bytes::from(entries.encode())).await?;
    stream.finish();
    // The node ends its side when it has read all.
    let _ = stream.next().await;
    drop(turn);
    Ok(())
}

/// Takes the entries of a stream that the node has opened, and whose opening was read.
///
/// # Errors
/// [`TransferError`].
pub async fn receive_entries(
    replication: &ReplicationHandle,
    node: NodeId,
    mut stream: SyncStream,
) -> Result<(), TransferError> {
    for _ in 0..MESSAGES {
        let Some(message) = stream.next().await? else {
            stream.finish();
            return Ok(());
        };
        let entries = LogEntries::decode(&message);
        let entries = entries.map_err(|bad| TransferError::Malformed(bad.to_string()))?;
        replication.receive_entries(node, entries).await;
    }
    Err(TransferError::TooMany)
}
