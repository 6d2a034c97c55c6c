//! The audit log: one thread owns its files, all others send to it (MGP §6).
//!
//! Used by calls, access, permissions and servers. Nobody waits for the disk except whoever makes a
//! decision, and, if configured so, calls.

mod acknowledging;
mod event;
mod examine;
mod files;
mod follower;
mod head;
mod heard;
mod opening;
mod queue;
mod replay;
mod tail;
mod writer;

use std::sync::Arc;

use mgp_engine::store::audit::commit::CommitRefusal;
use mgp_engine::store::audit::redact::KeptArguments;
use mgp_protocol::mgp::audit::Event;
use tokio::sync::oneshot;

use crate::trouble::Trouble;

pub use self::event::{by_agent, by_kernel, by_operator, event, state_damaged};
pub use self::examine::{Examined, examine};
pub use self::files::Folder;
pub use self::follower::{EventBatch, Follower};
pub use self::head::read as read_head;
pub use self::opening::LogOptions;
pub use self::queue::{CALLS_MAX, DECISIONS_MAX, TOLD_MAX};
use self::queue::{LogQueue, QueuedNote};

/// What it was of was not done, since it could not be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; what is not written down is not done")]
pub struct NotWritten(#[from] pub CommitRefusal);

/// Something to be written down. It becomes an event on the log's own thread, so that whoever tells it
/// does not pay for that.
pub trait Note: Send + 'static {
    /// The event, and what is kept of the arguments of the call that it is of.
    fn event(self: Box<Self>) -> (Event, Option<KeptArguments>);
}

impl Note for Event {
    fn event(self: Box<Self>) -> (Event, Option<KeptArguments>) {
        (*self, None)
    }
}

/// The way in for everybody else.
#[derive(Clone, Debug)]
pub struct AuditHandle(Option<Arc<LogQueue>>);

/// A place in the log for one call, taken before it begins.
#[derive(Debug)]
#[must_use = "a call without a record is no call"]
pub struct Place(Option<(Arc<LogQueue>, mgp_sync::credit::Charge)>);

impl AuditHandle {
    /// Of a kernel that keeps no log: everything is taken, nothing is written.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// Whether a log is kept.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the log can be written.
    #[must_use]
    pub fn trouble(&self) -> Trouble {
        let ledger = self.0.as_ref();
        ledger.map_or_else(Trouble::default, |ledger| ledger.trouble.clone())
    }

    /// Whether anything can be written down at all.
    ///
    /// # Errors
    /// [`NotWritten`].
    pub fn check(&self) -> Result<(), NotWritten> {
        match &self.0 {
            Some(ledger) => Ok(ledger.check()?),
            None => Ok(()),
        }
    }

    /// Writes down what happened, and never waits. Beyond [`TOLD_MAX`] that wait it is not taken; how
    /// many were not is then written down.
    pub fn tell(&self, event: Event) {
        if let Some(ledger) = &self.0 {
            ledger.tell(Box::new(event));
        }
    }

    /// Writes down a decision; resolves when it is on disk. Where [`DECISIONS_MAX`] wait already, this
    /// waits for one of them first.
    ///
    /// # Errors
    /// [`NotWritten`]: then it is not to be done. With [`CommitRefusal::Late`] it is written down nevertheless
    /// once [`AuditHandle::trouble`] is over, and so is that it was refused.
    pub async fn decided(&self, event: Event) -> Result<(), NotWritten> {
        let Some(ledger) = &self.0 else { return Ok(()) };
        let permit = ledger.decisions.clone().acquire_owned().await;
        let permit = permit.map_err(|_| CommitRefusal::Broken)?;
        let (reply, written) = oneshot::channel();
        ledger.push(QueuedNote::decision(Box::new(event), reply, permit));
        written.await.unwrap_or(Err(CommitRefusal::Broken.into()))
    }

    /// Takes a place for a call that is about to begin, so that what is done is also written.
    ///
    /// # Errors
    /// [`NotWritten`] where [`CALLS_MAX`] calls are under way or wait to be written, or the log is
    /// broken: the call is to be refused.
    pub fn place(&self) -> Result<Place, NotWritten> {
        let Some(ledger) = &self.0 else {
            return Ok(Place(None));
        };
        ledger.check()?;
        let charge = ledger.calls.try_take(1).ok_or(CommitRefusal::Full)?;
        Ok(Place(Some((ledger.clone(), charge))))
    }

    /// What the record of a call keeps of its arguments; nothing where there is no log.
    #[must_use]
    pub fn kept(&self, arguments: &str) -> Option<KeptArguments> {
        Some(self.0.as_ref()?.keeping.of(arguments))
    }

    /// From now on these values are kept out too.
    pub fn redact(&self, secrets: Vec<String>) {
        if let Some(ledger) = &self.0 {
            ledger.redact(secrets);
        }
    }

    /// Writes what is left and ends the log; resolves when it is on disk.
    pub async fn close(&self) {
        if let Some(ledger) = &self.0 {
            let _ = ledger.close().await;
        }
    }
}

impl Place {
    /// Writes down how the call ended, and waits for nothing: nobody is there to be answered.
    pub fn put(self, note: impl Note) {
        if let Some((ledger, charge)) = self.0 {
            ledger.push(QueuedNote::call(Box::new(note), None, charge));
        }
    }

    /// Writes down how the call ended. Resolves at once, or, when the settings say so, once it is on
    /// disk.
    ///
    /// # Errors
    /// [`NotWritten`]: the call was done and cannot be said to have been.
    pub async fn fill(self, note: impl Note) -> Result<(), NotWritten> {
        let Some((ledger, charge)) = self.0 else {
            return Ok(());
        };
        if !ledger.calls_wait {
            ledger.push(QueuedNote::call(Box::new(note), None, charge));
            return Ok(());
        }
        let (reply, written) = oneshot::channel();
        ledger.push(QueuedNote::call(Box::new(note), Some(reply), charge));
        written.await.unwrap_or(Err(CommitRefusal::Broken.into()))
    }
}

#[cfg(test)]
mod tests;
