//! A proposal whose writes are not on disk yet.

use mgp_protocol::mgp::audit::Event;
use mgp_protocol::refusal::Refusal;
use mgp_store::audit::AuditHandle;
use tokio::sync::oneshot;

use super::{ProposalReply, ProposedChanges};

/// A proposal that waits for the disk.
pub(super) struct PendingProposal {
    /// The ticket of its last write.
    pub(super) ticket: u64,
    pub(super) changes: ProposedChanges,
    pub(super) events: Vec<Event>,
    /// Resolves when its changes are in force here.
    pub(super) applied: Option<oneshot::Receiver<()>>,
    pub(super) reply: ProposalReply,
}

impl PendingProposal {
    /// Records it in the audit log and replies.
    pub(super) async fn finish(self, audit: AuditHandle) {
        for event in self.events {
            if let Err(error) = audit.record_decision(event).await {
                let why = format!("{error}. It is on disk, and in force");
                return self.reply.send(Err(Refusal::Internal(why)));
            }
        }
        if let Some(in_force) = self.applied {
            // Access control ends with the kernel only.
            let _ = in_force.await;
        }
        self.reply.send(Ok(self.changes));
    }
}
