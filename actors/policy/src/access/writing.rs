//! Writes decisions to disk, and finds out what is in force after the disk failed.

use std::collections::BTreeSet;
use std::time::Duration;

use mgp_engine::node_key::NodeKey;
use mgp_engine::policy::grants::Grants;
use mgp_engine::store::audit::commit::CommitRefusal;
use mgp_protocol::ids::AgentId;
use mgp_protocol::mgp::audit::Event;

use super::{AccessMsg, Books};
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::task;
use mgp_store::audit::{AuditHandle, NotWritten};
use mgp_store::journal::Journal;

/// The wait between two tries after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// The outcome of decisions that were refused since the disk failed.
pub enum Restored {
    /// They are not on disk: these are all grants.
    Undone(Box<Grants>),
    /// They are on disk and in the audit log, and concern these agents.
    Done(BTreeSet<AgentId>),
}

/// Decisions being written.
pub(super) struct Writing {
    pub(super) journal: Journal,
    pub(super) audit: AuditHandle,
    pub(super) key: NodeKey,
    pub(super) me: Mailbox<AccessMsg>,
    /// The agents they concern.
    pub(super) agents: BTreeSet<AgentId>,
}

impl Writing {
    pub(super) async fn run(self, entries: Vec<Vec<u8>>, events: Vec<Event>) {
        if let Err(error) = self.journal.append_all(entries).await {
            let why = format!("{error}. What holds shows when the disk takes something again");
            self.tell(AccessMsg::Committed(Err(why)));
            return self.undo().await;
        }
        let Err((refused, left)) = self.audit(events).await else {
            return self.tell(AccessMsg::Committed(Ok(())));
        };
        let why = format!("{refused}. It is on disk, and holds once that can be written down");
        self.tell(AccessMsg::Committed(Err(why)));
        self.write_down(left).await;
    }

    /// Records events in their order. Otherwise returns why not, and the events that the log will not
    /// record later.
    async fn audit(&self, events: Vec<Event>) -> Result<(), (NotWritten, Vec<Event>)> {
        let asked = events.iter().map(|event| self.audit.decided(event.clone()));
        let told = futures_util::future::join_all(asked).await;
        let mut refused = None;
        let left = events.into_iter().zip(told).filter_map(|(event, told)| {
            let NotWritten(why) = told.err()?;
            refused = Some(NotWritten(why));
            (why != CommitRefusal::Late).then_some(event)
        });
        let left: Vec<Event> = left.collect();
        refused.map_or(Ok(()), |refused| Err((refused, left)))
    }

    /// Drops the batch: what is on disk is in force.
    async fn undo(&self) {
        loop {
            self.journal.trouble().over().await;
            let (path, key) = (self.journal.path().to_owned(), self.key.clone());
            let read = task::blocking("access.read", move || Books::again(&path, &key)).await;
            match read {
                Ok(Ok(grants)) => {
                    let grants = Box::new(grants);
                    return self.tell(AccessMsg::Restored(Restored::Undone(grants)));
                }
                Ok(Err(error)) => tracing::error!(%error, "what was granted cannot be read"),
                Err(error) => tracing::error!(%error, "what was granted cannot be read"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// It is on disk, and in force from now on.
    async fn write_down(self, mut left: Vec<Event>) {
        loop {
            self.audit.trouble().over().await;
            match self.audit(left).await {
                Ok(()) => {
                    return self.tell(AccessMsg::Restored(Restored::Done(self.agents.clone())));
                }
                Err((_, not_yet)) => left = not_yet,
            }
            // A log that has ended takes no entries; the kernel is about to end.
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn tell(&self, message: AccessMsg) {
        let _ = self.me.remind(message);
    }
}
