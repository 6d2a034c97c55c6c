//! Writes decisions to disk, and finds out what is in force after a disk failure.

use std::collections::BTreeSet;
use std::time::Duration;

use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::grants::Grants;
use mgp_engine::store::audit::commit::CommitError;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::audit::Event;

use super::{AccessMsg, GrantStore};
use mgp_runtime::{Mailbox, task};
use mgp_store::audit::{AuditHandle, AuditWriteError};
use mgp_store::journal::Journal;

/// The wait between two attempts after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The outcome of decisions that were rejected after a disk failure.
pub enum RecoveryOutcome {
    /// They are not on disk; carries all grants that are.
    RolledBack(Box<Grants>),
    /// They are on disk and in the audit log; carries the agents concerned.
    Committed(BTreeSet<AgentId>),
}

/// Decisions being written.
pub(super) struct BatchWrite {
    pub(super) journal: Journal,
    pub(super) audit: AuditHandle,
    pub(super) key: NodeKey,
    pub(super) mailbox: Mailbox<AccessMsg>,
    pub(super) agents: BTreeSet<AgentId>,
}

impl BatchWrite {
    pub(super) async fn run(self, entries: Vec<Vec<u8>>, events: Vec<Event>) {
        if let Err(error) = self.journal.append_all(entries).await {
            let why = format!(
                "{error}. Once the disk works again, `mgp grants list` shows whether it took effect"
            );
            self.send(AccessMsg::Committed(Err(why)));
            return self.roll_back().await;
        }
        let Err((refused, unrecorded)) = self.record_events(events).await else {
            return self.send(AccessMsg::Committed(Ok(())));
        };
        let why = format!("{refused}. It is on disk, and takes effect once it is in the audit log");
        self.send(AccessMsg::Committed(Err(why)));
        self.record_committed(unrecorded).await;
    }

    /// Records events in order. On failure returns the error, and the events that the log will not record later.
    async fn record_events(&self, events: Vec<Event>) -> Result<(), (AuditWriteError, Vec<Event>)> {
        let records = events
            .iter()
            .map(|event| self.audit.record_decision(event.clone()));
        let results = futures_util::future::join_all(records).await;
        let mut refused = None;
        let unrecorded = events
            .into_iter()
            .zip(results)
            .filter_map(|(event, result)| {
                let AuditWriteError(why) = result.err()?;
                refused = Some(AuditWriteError(why));
                (why != CommitError::FailedDuringWrite).then_some(event)
            });
        let unrecorded: Vec<Event> = unrecorded.collect();
        refused.map_or(Ok(()), |refused| Err((refused, unrecorded)))
    }

    /// Drops the batch: the state on disk is in force.
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
                Ok(Err(error)) => tracing::error!(%error, "the grants cannot be read"),
                Err(error) => tracing::error!(%error, "the grants cannot be read"),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// The batch is on disk; it takes effect once the audit log has its events.
    async fn record_committed(self, mut unrecorded: Vec<Event>) {
        loop {
            self.audit.health().wait_recovered().await;
            match self.record_events(unrecorded).await {
                Ok(()) => {
                    return self.send(AccessMsg::Restored(RecoveryOutcome::Committed(
                        self.agents.clone(),
                    )));
                }
                Err((_, still_unrecorded)) => unrecorded = still_unrecorded,
            }
            // A closed log takes no entries; the kernel is about to end then.
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    fn send(&self, message: AccessMsg) {
        let _ = self.mailbox.send_to_self(message);
    }
}
