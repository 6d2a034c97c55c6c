//! A proposal on its way to the disk.

use mgp_protocol::mgp::audit::Event;
use mgp_protocol::refusal::Refusal;
use mgp_store::audit::AuditHandle;
use tokio::sync::oneshot;

use super::{ProposalReply, ProposedChanges};

/// A proposal that waits for the disk.
pub(super) struct PendingProposal {
    /// The last thing to be stored of it.
    pub(super) ticket: u64,
    pub(super) changes: ProposedChanges,
    pub(super) events: Vec<Event>,
    /// When what it changes is in force here.
    pub(super) applied: Option<oneshot::Receiver<()>>,
    pub(super) reply: ProposalReply,
}

impl PendingProposal {
    /// Writes it to the audit log and answers.
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
