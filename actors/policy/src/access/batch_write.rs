//! Writes decisions to disk, and finds out what is in force after the disk failed.

use std::collections::BTreeSet;
use std::time::Duration;

use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::grants::Grants;
use mgp_engine::store::audit::commit::CommitError;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::audit::Event;

use super::{AccessMsg, GrantStore};
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::task;
use mgp_store::audit::{AuditHandle, AuditWriteError};
use mgp_store::journal::Journal;

/// The wait between two tries after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The outcome of decisions that were refused since the disk failed.
pub enum RecoveryOutcome {
    /// They are not on disk: these are all grants.
    RolledBack(Box<Grants>),
    /// They are on disk and in the audit log, and concern these agents.
    Committed(BTreeSet<AgentId>),
}

/// Decisions being written.
pub(super) struct BatchWrite {
    pub(super) journal: Journal,
    pub(super) audit: AuditHandle,
    pub(super) key: NodeKey,
    pub(super) mailbox: Mailbox<AccessMsg>,
    /// The agents they concern.
    pub(super) agents: BTreeSet<AgentId>,
}

impl BatchWrite {
    pub(super) async fn run(self, entries: Vec<Vec<u8>>, events: Vec<Event>) {
        if let Err(error) = self.journal.append_all(entries).await {
            let why = format!("{error}. What holds shows when the disk takes something again");
            self.send(AccessMsg::Committed(Err(why)));
            return self.roll_back().await;
        }
        let Err((refused, left)) = self.record_events(events).await else {
            return self.send(AccessMsg::Committed(Ok(())));
        };
        let why = format!("{refused}. It is on disk, and holds once that can be written down");
        self.send(AccessMsg::Committed(Err(why)));
        self.record_committed(left).await;
    }

    /// Records events in their order. Otherwise returns why not, and the events that the log will not
    /// record later.
    async fn record_events(&self, events: Vec<Event>) -> Result<(), (AuditWriteError, Vec<Event>)> {
        let asked = events
            .iter()
            .map(|event| self.audit.record_decision(event.clone()));
        let told = futures_util::future::join_all(asked).await;
        let mut refused = None;
        let left = events.into_iter().zip(told).filter_map(|(event, told)| {
            let AuditWriteError(why) = told.err()?;
            refused = Some(AuditWriteError(why));
            (why != CommitError::FailedDuringWrite).then_some(event)
        });
        let left: Vec<Event> = left.collect();
        refused.map_or(Ok(()), |refused| Err((refused, left)))
    }

    /// Drops the batch: what is on disk is in force.
    async fn roll_back(&self) {
        loop {
            self.journal.health().wait_recovered().await;
            let (path, key) = (self.journal.path().to_owned(), self.key.clone());
            let read =
                task::run_blocking("access.read", move || GrantStore::read_current(&path, &key))
                    .await;
            match read {
                Ok(Ok(grants)) => {
                    let grants = Box::new(grants);
                    return self.send(AccessMsg::Restored(RecoveryOutcome::RolledBack(grants)));
                }
                Ok(Err(error)) => tracing::error!(%error, "what was granted cannot be read"),
                Err(error) => tracing::error!(%error, "what was granted cannot be read"),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// It is on disk, and in force from now on.
    async fn record_committed(self, mut left: Vec<Event>) {
        loop {
            self.audit.health().wait_recovered().await;
            match self.record_events(left).await {
                Ok(()) => {
                    return self.send(AccessMsg::Restored(RecoveryOutcome::Committed(
                        self.agents.clone(),
                    )));
                }
                Err((_, not_yet)) => left = not_yet,
            }
            // A log that has ended takes no entries; the kernel is about to end.
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    fn send(&self, message: AccessMsg) {
        let _ = self.mailbox.send_to_self(message);
    }
}
