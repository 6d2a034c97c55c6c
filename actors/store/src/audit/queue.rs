//! The entries waiting to be written. Each kind has its own limit, so that none displaces another.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_engine::store::audit::chain::Head;
use mgp_engine::store::audit::commit::{CommitError, RecordKind};
use mgp_engine::store::audit::redact::ArgumentRecorder;
use mgp_sync::{Charge, Credit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::files::LogFolder;
use super::server_reports::ReportCounts;
use super::{AuditEntry, AuditWriteError};
use crate::health::DiskHealth;

/// Maximum number of pending calls, and of bytes in their notes. Further calls are refused, because they could
/// not be logged.
pub(crate) const CALLS_MAX: u64 = 65_536;
/// See [`CALLS_MAX`]: twice the size of that many notes without caller data.
pub(crate) const CALLS_BYTES_MAX: u64 = 128 << 20;
/// The size of a call's note without caller data, in bytes.
const ENTRY_BYTES: u64 = 1 << 10;
/// Maximum number of decisions waiting for the disk. Further ones wait before they begin.
pub(crate) const DECISIONS_MAX: usize = 1_024;
/// Maximum number of waiting events. They cannot be refused, so further ones are dropped and counted.
pub(crate) const EVENTS_MAX: u64 = 4_096;

type ResultSender = oneshot::Sender<Result<(), AuditWriteError>>;

/// An entry with its share of a limit.
pub(super) struct QueuedEntry {
    pub(super) entry: Box<dyn AuditEntry>,
    pub(super) kind: RecordKind,
    pub(super) reply: Option<ResultSender>,
    #[expect(
        dead_code,
        reason = "what it holds of its bound is free when it is dropped"
    )]
    pub(super) limit_share: LimitShare,
}

/// An entry's share of its limit.
#[derive(Debug)]
pub(super) enum LimitShare {
    Charge { _charge: Charge },
    Call { _charges: [Charge; 2] },
    Permit { _permit: OwnedSemaphorePermit },
}

impl QueuedEntry {
    pub(super) fn decision(
        entry: Box<dyn AuditEntry>,
        written: ResultSender,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            entry,
            kind: RecordKind::Decision,
            reply: Some(written),
            limit_share: LimitShare::Permit { _permit: permit },
        }
    }

    pub(super) fn call(
        entry: Box<dyn AuditEntry>,
        reply: Option<ResultSender>,
        charges: [Charge; 2],
    ) -> Self {
        Self {
            entry,
            kind: RecordKind::Call,
            reply,
            limit_share: LimitShare::Call { _charges: charges },
        }
    }

    fn event(entry: Box<dyn AuditEntry>, charge: Charge) -> Self {
        Self {
            entry,
            kind: RecordKind::Call,
            reply: None,
            limit_share: LimitShare::Charge { _charge: charge },
        }
    }
}

/// Shared by the writing thread and all that send to it.
pub(super) struct LogQueue {
    queue: Mutex<Queue>,
    wakeup: Condvar,
    calls: Arc<Credit>,
    calls_bytes: Arc<Credit>,
    pub(super) decisions: Arc<Semaphore>,
    events: Arc<Credit>,
    /// Events dropped for lack of capacity.
    dropped: AtomicU64,
    broken: AtomicBool,
    /// Why nothing can be written now; `None` if all is well.
    pub(super) health: DiskHealth,
    /// The files found at the start were verified, so the oldest may be trimmed.
    verified: AtomicBool,
    /// Calls are answered only after their record is on disk.
    pub(super) calls_wait: bool,
    pub(super) keeping: ArgumentRecorder,
    /// The folder of the log.
    pub(super) folder: LogFolder,
    /// Allows one full read of the log at a time.
    pub(super) readers: Semaphore,
    /// Allows one verification at a time, in addition to `readers`.
    pub(super) verifiers: Semaphore,
    /// The last written record.
    pub(super) written: watch::Sender<Head>,
    /// The number of reports by each server.
    pub(super) report_counts: ReportCounts,
}

#[derive(Default)]
struct Queue {
    entries: Vec<QueuedEntry>,
    /// Whether an entry is waiting for a sync.
    sync_requested: bool,
    writer: WriterState,
    /// Notified when the entries before them are in the files.
    flush_waiters: Vec<oneshot::Sender<()>>,
    closing: Option<oneshot::Sender<()>>,
    closed: bool,
}

/// What the writing thread is waiting for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum WriterState {
    #[default]
    Awake,
    /// For more entries to write as a group, unless a sync is requested.
    Gathering,
    /// For any entry.
    Idle,
}

/// The entries taken from the queue.
pub(super) struct QueueBatch {
    pub(super) entries: Vec<QueuedEntry>,
    pub(super) dropped: u64,
    /// Notified when these entries are in the files.
    pub(super) flush_waiters: Vec<oneshot::Sender<()>>,
    /// Set if no more entries follow.
    pub(super) closing: Option<oneshot::Sender<()>>,
}

impl LogQueue {
    pub(super) fn new(
        calls_wait: bool,
        keeping: ArgumentRecorder,
        folder: LogFolder,
        last: Head,
    ) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            wakeup: Condvar::new(),
            calls: Credit::new(CALLS_MAX),
            calls_bytes: Credit::new(CALLS_BYTES_MAX),
            decisions: Arc::new(Semaphore::new(DECISIONS_MAX)),
            events: Credit::new(EVENTS_MAX),
            dropped: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            health: DiskHealth::default(),
            verified: AtomicBool::new(false),
            calls_wait,
            keeping,
            folder,
            readers: Semaphore::new(1),
            verifiers: Semaphore::new(1),
            written: watch::Sender::new(last),
            report_counts: ReportCounts::default(),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, entry: QueuedEntry) {
        let mut queue = self.queue();
        if queue.closed {
            // Dropping it wakes its waiters.
            return;
        }
        let wants_sync = entry.reply.is_some();
        queue.sync_requested |= wants_sync;
        queue.entries.push(entry);
        let should_wake = match queue.writer {
            WriterState::Awake => false,
            WriterState::Gathering => wants_sync,
            WriterState::Idle => true,
        };
        if should_wake {
            queue.writer = WriterState::Awake;
            drop(queue);
            self.wakeup.notify_one();
        }
    }

    /// Reserves the slot of a call with `params` of this many bytes, counted in number and in bytes.
    pub(super) fn reserve_call(&self, params: usize) -> Option<[Charge; 2]> {
        let bytes = ENTRY_BYTES + self.keeping.recorded_bytes_max(params) as u64;
        let one = self.calls.try_take(1)?;
        Some([one, self.calls_bytes.try_take(bytes)?])
    }

    /// The number of reserved calls and of waiting events.
    pub(super) fn pending_counts(&self) -> (u64, u64) {
        (self.calls.in_use_amount(), self.events.in_use_amount())
    }

    pub(super) fn push_event(&self, note: Box<dyn AuditEntry>) {
        match self.events.try_take(1) {
            Some(charge) => self.push(QueuedEntry::event(note, charge)),
            None => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Checks that entries can be written.
    pub(super) fn check(&self) -> Result<(), CommitError> {
        if self.broken.load(Ordering::Relaxed) {
            Err(CommitError::Failed)
        } else {
            Ok(())
        }
    }

    pub(super) fn mark_verified(&self) {
        self.verified.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_verified(&self) -> bool {
        self.verified.load(Ordering::Relaxed)
    }

    /// Marks that nothing can be written for now.
    pub(super) fn fail(&self, why: &str) {
        self.broken.store(true, Ordering::Relaxed);
        self.health.set_failure(why);
    }

    /// Marks that entries can be written again, unless the log is being closed.
    pub(super) fn recover(&self) {
        let queue = self.queue();
        self.broken.store(queue.closed, Ordering::Relaxed);
        drop(queue);
        self.health.clear_failure();
    }

    /// Takes no more entries; drops those that wait, which wakes their senders.
    pub(super) fn shut_down(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.decisions.close();
        let mut queue = self.queue();
        queue.closed = true;
        let entries = mem::take(&mut queue.entries);
        let waiting = (mem::take(&mut queue.flush_waiters), queue.closing.take());
        drop(queue);
        drop((entries, waiting));
    }

    /// Resolves when everything sent before is written.
    pub(super) fn close(&self) -> oneshot::Receiver<()> {
        let (closing, closed) = oneshot::channel();
        let mut queue = self.queue();
        if !queue.closed {
            queue.closing = Some(closing);
            drop(queue);
            self.wakeup.notify_one();
        }
        closed
    }

    /// Resolves when everything sent before is in the files, or cannot be written.
    pub(super) fn flush(&self) -> oneshot::Receiver<()> {
        let (sender, flushed) = oneshot::channel();
        let mut queue = self.queue();
        if queue.closed {
            // Dropping it notifies the waiters.
            return flushed;
        }
        queue.sync_requested = true;
        queue.writer = WriterState::Awake;
        queue.flush_waiters.push(sender);
        drop(queue);
        self.wakeup.notify_one();
        flushed
    }

    /// Waits for entries: first for the gathering time, unless a sync is requested, then until there is an entry
    /// or until `until`.
    pub(super) fn next_batch(&self, gather: Duration, until: Option<Duration>) -> QueueBatch {
        let mut queue = self.queue();
        queue.writer = WriterState::Gathering;
        let waits = |queue: &mut Queue| !queue.sync_requested && queue.closing.is_none();
        let waited = self.wakeup.wait_timeout_while(queue, gather, waits);
        queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        queue.writer = WriterState::Idle;
        let idle = |queue: &mut Queue| {
            queue.entries.is_empty() && queue.flush_waiters.is_empty() && queue.closing.is_none()
        };
        queue = match until {
            Some(until) => {
                let waited = self.wakeup.wait_timeout_while(queue, until, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.wakeup.wait_while(queue, idle);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        queue.writer = WriterState::Awake;
        queue.sync_requested = false;
        if queue.closing.is_some() {
            // Waiters that are notified of the closing must find the log closed: a call that begins now would have no record.
            queue.closed = true;
            self.broken.store(true, Ordering::Relaxed);
        }
        QueueBatch {
            entries: mem::take(&mut queue.entries),
            dropped: self.dropped.swap(0, Ordering::Relaxed),
            flush_waiters: mem::take(&mut queue.flush_waiters),
            closing: queue.closing.take(),
        }
    }
}

impl std::fmt::Debug for LogQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogQueue").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgp_engine::store::audit::redact::{ArgumentRetention, Redaction};

    /// A log that is taking its last entries reserves no call, even if its disk has just recovered: the call would have
    /// no record.
    #[test]
    fn closing_log_reserves_no_call() {
        let keeping = Redaction::new(ArgumentRetention::Digest, &[7; 32], []);
        let folder = LogFolder::new(std::path::Path::new("nowhere"));
        let queue = LogQueue::new(
            false,
            keeping.argument_recorder().clone(),
            folder,
            Head::START,
        );
        let mut closed = queue.close();
        assert!(queue.check().is_ok());
        let batch = queue.next_batch(Duration::ZERO, Some(Duration::ZERO));
        assert!(batch.closing.is_some() && closed.try_recv().is_err());
        assert_eq!(queue.check(), Err(CommitError::Failed));
        queue.recover();
        assert_eq!(queue.check(), Err(CommitError::Failed));
    }
}
