//! The audit log: one thread owns its files, all others send to it (MGP §6).
//!
//! Used by calls, access, permissions and servers. Only decisions wait for the disk and, if configured so, calls.

mod acknowledgement;
mod calls;
mod event;
mod files;
mod follower;
mod head;
mod queue;
mod reader;
mod replay;
mod server_reports;
mod startup;
mod tail;
mod verification;
mod writer;

use std::sync::Arc;

use mgp_engine::calls::telemetry::latency::LatencyHistogram;
use mgp_engine::store::audit::commit::CommitError;
use mgp_engine::store::audit::redact::RecordedArguments;
use mgp_engine::store::audit::successful_call::SuccessfulCall;
use mgp_protocol::mgp::audit::Event;
use mgp_screening::masks::Masks;
use mgp_sync::{Charge, Snapshot};
use tokio::sync::oneshot;

use crate::health::DiskHealth;

pub use self::event::{
    agent_actor, kernel_actor, kernel_upgraded_event, new_event, operator_actor,
    state_accepted_event, state_damaged_event,
};
pub use self::files::LogFolder;
pub use self::follower::EventBatch;
#[cfg(test)]
pub(crate) use self::head::read as read_head;
#[cfg(test)]
pub(crate) use self::queue::{CALLS_BYTES_MAX, CALLS_MAX};
use self::queue::{LogQueue, QueuedEntry};
pub(crate) use self::replay::with_sequence;
pub use self::startup::LogOptions;
pub use self::verification::{VerificationResult, verify_folder};

/// An action was not done because it could not be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; what is not written down is not done")]
pub struct AuditWriteError(#[from] pub CommitError);

/// An entry for the log. It becomes an event on the log's own thread, so that its sender does not spend the
/// time.
pub trait AuditEntry: Send + 'static {
    /// The event, and what the record keeps of the arguments of its call.
    fn into_event(self: Box<Self>) -> (Event, Option<RecordedArguments>);

    /// The same as a successful call, if it is one of which nothing else is to be recorded.
    fn as_successful_call(&self) -> Option<SuccessfulCall<'_>> {
        None
    }
}

impl AuditEntry for Event {
    fn into_event(self: Box<Self>) -> (Event, Option<RecordedArguments>) {
        (*self, None)
    }
}

/// Handle for everyone.
#[derive(Clone, Debug)]
pub struct AuditHandle {
    /// `None` if no log is written.
    queue: Option<Arc<LogQueue>>,
    /// What is masked; the log's thread shares it.
    masks: Arc<Snapshot<Masks>>,
}

/// How long syncs of the log took since the start of this process.
#[must_use]
pub fn sync_times() -> LatencyHistogram {
    writer::SYNCS.snapshot()
}

/// The reservation of a log record for one call, made before the call begins.
#[derive(Debug)]
#[must_use = "a call without a record is no call"]
pub struct CallReservation(Option<(Arc<LogQueue>, [Charge; 2])>);

impl AuditHandle {
    /// For a kernel without a log: every entry is accepted and dropped.
    #[must_use]
    pub fn disabled() -> Self {
        Self {
            queue: None,
            masks: Arc::new(Snapshot::new(Masks::default())),
        }
    }

    /// What is masked in the log and wherever the kernel shows text of others.
    #[must_use]
    pub fn masks(&self) -> Arc<Masks> {
        self.masks.load()
    }

    /// Whether a log is written.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.queue.is_some()
    }

    /// The number of reserved calls and of events waiting to be written.
    #[must_use]
    pub fn pending_counts(&self) -> (u64, u64) {
        let queue = self.queue.as_ref();
        queue.map_or((0, 0), |queue| queue.pending_counts())
    }

    /// Whether the log can be written.
    #[must_use]
    pub fn health(&self) -> DiskHealth {
        let queue = self.queue.as_ref();
        queue.map_or_else(DiskHealth::default, |queue| queue.health.clone())
    }

    /// Checks that entries can be recorded.
    ///
    /// # Errors
    /// [`AuditWriteError`].
    pub fn check(&self) -> Result<(), AuditWriteError> {
        match &self.queue {
            Some(queue) => Ok(queue.check()?),
            None => Ok(()),
        }
    }

    /// Records what happened, without waiting. With [`EVENTS_MAX`] such entries waiting, it is dropped and
    /// counted; the count is recorded later.
    pub fn record(&self, event: Event) {
        if let Some(queue) = &self.queue {
            queue.push_event(Box::new(event));
        }
    }

    /// Records a decision; resolves when it is on disk. With [`DECISIONS_MAX`] decisions waiting, this
    /// first waits for one of them.
    ///
    /// # Errors
    /// [`AuditWriteError`]: the decision must not take effect. After [`CommitError::Late`] it is recorded
    /// nevertheless once [`AuditHandle::health`] is over, together with its refusal.
    pub async fn record_decision(&self, event: Event) -> Result<(), AuditWriteError> {
        let Some(queue) = &self.queue else {
            return Ok(());
        };
        let permit = queue.decisions.clone().acquire_owned().await;
        let permit = permit.map_err(|_| CommitError::Failed)?;
        let (reply, written) = oneshot::channel();
        queue.push(QueuedEntry::decision(Box::new(event), reply, permit));
        written.await.unwrap_or(Err(CommitError::Failed.into()))
    }

    /// Reserves the record of a call before it begins, so that no call goes unrecorded. `params` is the length
    /// of its parameters in bytes; its note stores no more than an excerpt of them.
    ///
    /// # Errors
    /// [`AuditWriteError`] when [`CALLS_MAX`] calls are pending, when their notes hold [`CALLS_BYTES_MAX`] bytes, or
    /// when the log cannot be written: the call must be refused.
    pub fn reserve_call(&self, params: usize) -> Result<CallReservation, AuditWriteError> {
        let Some(queue) = &self.queue else {
            return Ok(CallReservation(None));
        };
        queue.check()?;
        let charges = queue.reserve_call(params).ok_or(CommitError::Full)?;
        Ok(CallReservation(Some((queue.clone(), charges))))
    }

    /// What the record of a call stores of its arguments; `None` without a log.
    #[must_use]
    pub fn stored_arguments(&self, arguments: &str) -> Option<RecordedArguments> {
        Some(self.queue.as_ref()?.keeping.record(arguments))
    }

    /// Masks these secrets from now on, also in entries that are waiting to be written.
    pub fn redact(&self, secrets: Vec<String>) {
        self.masks.update(|masks| {
            let mut masks = masks.clone();
            masks.add_secrets(secrets);
            masks
        });
    }

    /// Writes the remaining entries and ends the log; resolves when they are on disk.
    pub async fn close(&self) {
        if let Some(queue) = &self.queue {
            let _ = queue.close().await;
        }
    }
}

impl CallReservation {
    /// Records the outcome of a call, without waiting: there is no caller left to answer.
    pub fn record(self, note: impl AuditEntry) {
        if let Some((queue, charges)) = self.0 {
            queue.push(QueuedEntry::call(Box::new(note), None, charges));
        }
    }

    /// Records how the call ended. Resolves at once or, depending on the settings, once that is on disk.
    ///
    /// # Errors
    /// [`AuditWriteError`]: the call was made, and its record is missing.
    pub async fn record_and_wait(self, note: impl AuditEntry) -> Result<(), AuditWriteError> {
        let Some((queue, charges)) = self.0 else {
            return Ok(());
        };
        if !queue.calls_wait {
            queue.push(QueuedEntry::call(Box::new(note), None, charges));
            return Ok(());
        }
        let (reply, written) = oneshot::channel();
        queue.push(QueuedEntry::call(Box::new(note), Some(reply), charges));
        written.await.unwrap_or(Err(CommitError::Failed.into()))
    }
}

#[cfg(test)]
mod tests;
