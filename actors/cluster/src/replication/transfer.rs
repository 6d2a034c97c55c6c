//! Transfers of log entries between two nodes: a stream with several messages.

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

/// The deadline for one message of entries: half a megabyte over a slow line.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(30);
/// The most messages on one stream. A node that sends more opens another one.
const MESSAGES: usize = 16;

/// The permit to send entries to a node. There is one for each node; on drop, the next transfer may start.
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
        // One for each permit, of which there is one for each node.
        let _ = self
            .actor
            .send_to_self(ReplicationMsg::TransferDone(self.node));
    }
}

/// Errors of a transfer. Missing entries are requested again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// The stream could not be opened.
    #[error(transparent)]
    Begin(#[from] BeginCallError),
    /// A message could not be written.
    #[error(transparent)]
    Write(#[from] WriteFailure),
    /// A message could not be read.
    #[error(transparent)]
    Read(#[from] StreamFailure),
    /// A message is malformed.
    #[error("invalid log entries: {0}")]
    Malformed(String),
    /// The stream has too many messages.
    #[error("more than {MESSAGES} messages on one stream")]
    TooMany,
}

/// Sends entries to the node of this link.
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
    // The node closes its side when it has read all.
    let _ = stream.next().await;
    drop(turn);
    Ok(())
}

/// Receives the entries of a stream whose opening was read.
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
