//! The audit log: one thread owns its files, all others send to it (MGP §6).
//!
//! Used by calls, access, permissions and servers. Nobody waits for the disk except whoever makes a
//! decision, and, if configured so, calls.

mod acknowledging;
mod calls;
mod event;
mod examine;
mod files;
mod followed;
mod follower;
mod head;
mod heard;
mod opening;
mod queue;
mod replay;
mod tail;
mod writer;

use std::sync::Arc;

use mgp_engine::calls::telemetry::latency::LatencyCounts;
use mgp_engine::store::audit::commit::CommitRefusal;
use mgp_engine::store::audit::redact::KeptArguments;
use mgp_engine::store::masks::Masks;
use mgp_protocol::mgp::audit::Event;
use mgp_sync::credit::Charge;
use mgp_sync::snapshot::Snapshot;
use tokio::sync::oneshot;

use crate::trouble::Trouble;

pub use self::event::{by_agent, by_kernel, by_operator, event, state_accepted, state_damaged};
pub use self::examine::{Examined, FilesRead, examine};
pub use self::files::Folder;
pub use self::followed::LoggedRecords;
pub use self::follower::{EventBatch, Follower};
pub use self::head::read as read_head;
pub use self::opening::LogOptions;
pub use self::queue::{CALLS_BYTES_MAX, CALLS_MAX, DECISIONS_MAX, TOLD_MAX};
use self::queue::{LogQueue, QueuedNote};
pub(crate) use self::replay::numbered;

/// An action was not done because it could not be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; what is not written down is not done")]
pub struct NotWritten(#[from] pub CommitRefusal);

/// An entry for the log. It becomes an event on the log's own thread, so that its sender does not spend the
/// time.
pub trait Note: Send + 'static {
    /// The event, and what the record keeps of the arguments of its call.
    fn event(self: Box<Self>) -> (Event, Option<KeptArguments>);
}

impl Note for Event {
    fn event(self: Box<Self>) -> (Event, Option<KeptArguments>) {
        (*self, None)
    }
}

/// Handle for everyone.
#[derive(Clone, Debug)]
pub struct AuditHandle {
    /// `None` where no log is kept.
    ledger: Option<Arc<LogQueue>>,
    /// What is masked; the log's thread reads the same.
    masks: Arc<Snapshot<Masks>>,
}

/// How long syncs of the log took since the start of this process.
#[must_use]
pub fn sync_times() -> LatencyCounts {
    writer::SYNCS.read()
}

/// A place in the log for one call, taken before it begins.
#[derive(Debug)]
#[must_use = "a call without a record is no call"]
pub struct Place(Option<(Arc<LogQueue>, [Charge; 2])>);

impl AuditHandle {
    /// For a kernel that keeps no log: every entry is accepted and dropped.
    #[must_use]
    pub fn off() -> Self {
        Self {
            ledger: None,
            masks: Arc::new(Snapshot::new(Masks::default())),
        }
    }

    /// What is masked in the log, and wherever else the kernel shows what others said.
    #[must_use]
    pub fn masks(&self) -> Arc<Masks> {
        self.masks.load()
    }

    /// Whether a log is kept.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.ledger.is_some()
    }

    /// Calls that have a place, and events that wait to be written.
    #[must_use]
    pub fn waiting(&self) -> (u64, u64) {
        let ledger = self.ledger.as_ref();
        ledger.map_or((0, 0), |ledger| ledger.held())
    }

    /// Whether the log can be written.
    #[must_use]
    pub fn trouble(&self) -> Trouble {
        let ledger = self.ledger.as_ref();
        ledger.map_or_else(Trouble::default, |ledger| ledger.trouble.clone())
    }

    /// Whether anything can be recorded.
    ///
    /// # Errors
    /// [`NotWritten`].
    pub fn check(&self) -> Result<(), NotWritten> {
        match &self.ledger {
            Some(ledger) => Ok(ledger.check()?),
            None => Ok(()),
        }
    }

    /// Records what happened, without waiting. With [`TOLD_MAX`] such entries waiting, it is dropped and
    /// counted; the count is recorded later.
    pub fn tell(&self, event: Event) {
        if let Some(ledger) = &self.ledger {
            ledger.tell(Box::new(event));
        }
    }

    /// Records a decision; resolves when it is on disk. With [`DECISIONS_MAX`] decisions waiting, this
    /// first waits for one of them.
    ///
    /// # Errors
    /// [`NotWritten`]: the decision must not take effect. After [`CommitRefusal::Late`] it is recorded
    /// nevertheless once [`AuditHandle::trouble`] is over, together with its refusal.
    pub async fn decided(&self, event: Event) -> Result<(), NotWritten> {
        let Some(ledger) = &self.ledger else {
            return Ok(());
        };
        let permit = ledger.decisions.clone().acquire_owned().await;
        let permit = permit.map_err(|_| CommitRefusal::Broken)?;
        let (reply, written) = oneshot::channel();
        ledger.push(QueuedNote::decision(Box::new(event), reply, permit));
        written.await.unwrap_or(Err(CommitRefusal::Broken.into()))
    }

    /// Reserves a place for a call that is about to begin, so that whatever is done can also be recorded.
    /// Its `params` are so many bytes long, and its note holds no more than is kept of them.
    ///
    /// # Errors
    /// [`NotWritten`] when [`CALLS_MAX`] calls are under way or wait to be recorded, when their notes hold
    /// [`CALLS_BYTES_MAX`] bytes, or when the log is broken: the call is to be refused.
    pub fn place(&self, params: usize) -> Result<Place, NotWritten> {
        let Some(ledger) = &self.ledger else {
            return Ok(Place(None));
        };
        ledger.check()?;
        let charges = ledger.place(params).ok_or(CommitRefusal::Full)?;
        Ok(Place(Some((ledger.clone(), charges))))
    }

    /// What the record of a call keeps of its arguments; nothing when there is no log.
    #[must_use]
    pub fn kept(&self, arguments: &str) -> Option<KeptArguments> {
        Some(self.ledger.as_ref()?.keeping.of(arguments))
    }

    /// From now on these secrets are masked too, also in what waits to be written.
    pub fn redact(&self, secrets: Vec<String>) {
        self.masks.update(|masks| {
            let mut masks = masks.clone();
            masks.learn(secrets);
            masks
        });
    }

    /// Writes the remaining entries and ends the log; resolves when they are on disk.
    pub async fn close(&self) {
        if let Some(ledger) = &self.ledger {
            let _ = ledger.close().await;
        }
    }
}

impl Place {
    /// Records how the call ended, without waiting: nobody is left to be answered.
    pub fn put(self, note: impl Note) {
        if let Some((ledger, charges)) = self.0 {
            ledger.push(QueuedNote::call(Box::new(note), None, charges));
        }
    }

    /// Records how the call ended. Resolves at once or, depending on the settings, once that is on disk.
    ///
    /// # Errors
    /// [`NotWritten`]: the call was made, and its record is missing.
    pub async fn fill(self, note: impl Note) -> Result<(), NotWritten> {
        let Some((ledger, charges)) = self.0 else {
            return Ok(());
        };
        if !ledger.calls_wait {
            ledger.push(QueuedNote::call(Box::new(note), None, charges));
            return Ok(());
        }
        let (reply, written) = oneshot::channel();
        ledger.push(QueuedNote::call(Box::new(note), Some(reply), charges));
        written.await.unwrap_or(Err(CommitRefusal::Broken.into()))
    }
}

#[cfg(test)]
mod tests;
