//! The entries that wait to be written. Each kind has its own limit, so that none displaces another.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_engine::store::audit::chain::Head;
use mgp_engine::store::audit::commit::{CommitRefusal, RecordKind};
use mgp_engine::store::audit::redact::Keeping;
use mgp_sync::credit::{Charge, Credit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::files::Folder;
use super::heard::ReportCounts;
use super::{NotWritten, Note};
use crate::trouble::Trouble;

/// Calls under way or waiting to be written, and what their notes may hold, in bytes. Further calls are
/// refused, because they could not be logged.
pub const CALLS_MAX: u64 = 65_536;
/// See [`CALLS_MAX`]: twice as much as that many notes take without anything of their callers.
pub const CALLS_BYTES_MAX: u64 = 128 << 20;
/// A note of a call without what is its caller's, in bytes.
const NOTE: u64 = 1 << 10;
/// Decisions that wait for the disk. Further ones wait before they begin.
pub const DECISIONS_MAX: usize = 1_024;
/// Events that cannot be refused; above this number they are dropped and counted.
pub const TOLD_MAX: u64 = 4_096;

type Written = oneshot::Sender<Result<(), NotWritten>>;

/// An entry with its share of a limit.
pub(super) struct QueuedNote {
    pub(super) note: Box<dyn Note>,
    pub(super) kind: RecordKind,
    pub(super) written: Option<Written>,
    #[expect(
        dead_code,
        reason = "what it holds of its bound is free when it is dropped"
    )]
    pub(super) hold: HeldRoom,
}

/// An entry's share of its limit.
#[derive(Debug)]
pub(super) enum HeldRoom {
    Charge { _charge: Charge },
    Call { _charges: [Charge; 2] },
    Permit { _permit: OwnedSemaphorePermit },
}

impl QueuedNote {
    pub(super) fn decision(
        note: Box<dyn Note>,
        written: Written,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            note,
            kind: RecordKind::Decision,
            written: Some(written),
            hold: HeldRoom::Permit { _permit: permit },
        }
    }

    pub(super) fn call(
        note: Box<dyn Note>,
        written: Option<Written>,
        charges: [Charge; 2],
    ) -> Self {
        Self {
            note,
            kind: RecordKind::Call,
            written,
            hold: HeldRoom::Call { _charges: charges },
        }
    }

    fn told(note: Box<dyn Note>, charge: Charge) -> Self {
        Self {
            note,
            kind: RecordKind::Call,
            written: None,
            hold: HeldRoom::Charge { _charge: charge },
        }
    }
}

/// Shared by the writing thread and all that send to it.
pub(super) struct LogQueue {
    queue: Mutex<Queue>,
    more: Condvar,
    calls: Arc<Credit>,
    calls_bytes: Arc<Credit>,
    pub(super) decisions: Arc<Semaphore>,
    told: Arc<Credit>,
    /// Events that found no room.
    dropped: AtomicU64,
    broken: AtomicBool,
    /// Why nothing can be written now.
    pub(super) trouble: Trouble,
    /// The files found at the start were verified, so the oldest may be trimmed.
    examined: AtomicBool,
    /// Calls are answered only after their record is on disk.
    pub(super) calls_wait: bool,
    pub(super) keeping: Keeping,
    /// Where it writes.
    pub(super) folder: Folder,
    /// One reads the whole log at a time.
    pub(super) readers: Semaphore,
    /// One verifies it at a time, beside those.
    pub(super) verifiers: Semaphore,
    /// The last record that was written.
    pub(super) written: watch::Sender<Head>,
    /// The counts of reports by servers.
    pub(super) heard: ReportCounts,
}

#[derive(Default)]
struct Queue {
    entries: Vec<QueuedNote>,
    /// Somebody waits for a sync.
    hurry: bool,
    asleep: Asleep,
    /// Who waits until what came before is in the files.
    flushed: Vec<oneshot::Sender<()>>,
    closing: Option<oneshot::Sender<()>>,
    closed: bool,
}

/// What the writing thread waits for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Asleep {
    #[default]
    Awake,
    /// For more entries to write together, unless somebody waits.
    Gathering,
    /// For any entry.
    Idle,
}

/// The entries that waited.
pub(super) struct Taken {
    pub(super) entries: Vec<QueuedNote>,
    pub(super) dropped: u64,
    /// To be told when these entries are in the files.
    pub(super) flushed: Vec<oneshot::Sender<()>>,
    /// No entry follows.
    pub(super) closing: Option<oneshot::Sender<()>>,
}

impl LogQueue {
    pub(super) fn new(calls_wait: bool, keeping: Keeping, folder: Folder, last: Head) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            more: Condvar::new(),
            calls: Credit::new(CALLS_MAX),
            calls_bytes: Credit::new(CALLS_BYTES_MAX),
            decisions: Arc::new(Semaphore::new(DECISIONS_MAX)),
            told: Credit::new(TOLD_MAX),
            dropped: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            trouble: Trouble::default(),
            examined: AtomicBool::new(false),
            calls_wait,
            keeping,
            folder,
            readers: Semaphore::new(1),
            verifiers: Semaphore::new(1),
            written: watch::Sender::new(last),
            heard: ReportCounts::default(),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, entry: QueuedNote) {
        let mut queue = self.queue();
        if queue.closed {
            // Dropping it wakes whoever waits for it.
            return;
        }
        let hurry = entry.written.is_some();
        queue.hurry |= hurry;
        queue.entries.push(entry);
        let wake = match queue.asleep {
            Asleep::Awake => false,
            Asleep::Gathering => hurry,
            Asleep::Idle => true,
        };
        if wake {
            queue.asleep = Asleep::Awake;
            drop(queue);
            self.more.notify_one();
        }
    }

    /// The place of a call with `params` of so many bytes: it is one of so many, and holds so much.
    pub(super) fn place(&self, params: usize) -> Option<[Charge; 2]> {
        let bytes = NOTE + self.keeping.longest(params) as u64;
        let one = self.calls.try_take(1)?;
        Some([one, self.calls_bytes.try_take(bytes)?])
    }

    /// Calls that have a place, and events that wait.
    pub(super) fn held(&self) -> (u64, u64) {
        (self.calls.taken(), self.told.taken())
    }

    pub(super) fn tell(&self, note: Box<dyn Note>) {
        match self.told.try_take(1) {
            Some(charge) => self.push(QueuedNote::told(note, charge)),
            None => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether anything can be written at all.
    pub(super) fn check(&self) -> Result<(), CommitRefusal> {
        match self.broken.load(Ordering::Relaxed) {
            true => Err(CommitRefusal::Broken),
            false => Ok(()),
        }
    }

    pub(super) fn examined(&self) {
        self.examined.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_examined(&self) -> bool {
        self.examined.load(Ordering::Relaxed)
    }

    /// Nothing can be written for now.
    pub(super) fn fail(&self, why: &str) {
        self.broken.store(true, Ordering::Relaxed);
        self.trouble.begin(why);
    }

    /// Entries can be written again, unless the log is being closed.
    pub(super) fn recover(&self) {
        let queue = self.queue();
        self.broken.store(queue.closed, Ordering::Relaxed);
        drop(queue);
        self.trouble.end();
    }

    /// Takes no more entries; drops those that wait, which wakes their senders.
    pub(super) fn end(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.decisions.close();
        let mut queue = self.queue();
        queue.closed = true;
        let entries = mem::take(&mut queue.entries);
        let waiting = (mem::take(&mut queue.flushed), queue.closing.take());
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
            self.more.notify_one();
        }
        closed
    }

    /// Resolves when everything is in the files that was told before, or cannot be.
    pub(super) fn flushed(&self) -> oneshot::Receiver<()> {
        let (told, flushed) = oneshot::channel();
        let mut queue = self.queue();
        if queue.closed {
            // Dropping it tells whoever waits.
            return flushed;
        }
        queue.hurry = true;
        queue.asleep = Asleep::Awake;
        queue.flushed.push(told);
        drop(queue);
        self.more.notify_one();
        flushed
    }

    /// Waits for entries: first for the time in which entries are gathered, unless somebody waits for a
    /// sync, then until there is one or until `until`.
    pub(super) fn take(&self, gather: Duration, until: Option<Duration>) -> Taken {
        let mut queue = self.queue();
        queue.asleep = Asleep::Gathering;
        let waits = |queue: &mut Queue| !queue.hurry && queue.closing.is_none();
        let waited = self.more.wait_timeout_while(queue, gather, waits);
        queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        queue.asleep = Asleep::Idle;
        let idle = |queue: &mut Queue| {
            queue.entries.is_empty() && queue.flushed.is_empty() && queue.closing.is_none()
        };
        queue = match until {
            Some(until) => {
                let waited = self.more.wait_timeout_while(queue, until, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.more.wait_while(queue, idle);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        queue.asleep = Asleep::Awake;
        queue.hurry = false;
        if queue.closing.is_some() {
            // Whoever is told that the log is closed finds it so: a call that began now would have no record.
            queue.closed = true;
            self.broken.store(true, Ordering::Relaxed);
        }
        Taken {
            entries: mem::take(&mut queue.entries),
            dropped: self.dropped.swap(0, Ordering::Relaxed),
            flushed: mem::take(&mut queue.flushed),
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
    use mgp_engine::store::audit::redact::{ArgumentsKept, Redaction};

    /// A call that begins has its record: from the moment in which the log takes its last entries, none does, also
    /// where the disk of a log is well again just then.
    #[test]
    fn a_log_that_is_being_closed_takes_no_call() {
        let keeping = Redaction::new(ArgumentsKept::Digest, &[7; 32], []);
        let folder = Folder::of(std::path::Path::new("nowhere"));
        let queue = LogQueue::new(false, keeping.keeping().clone(), folder, Head::START);
        let mut closed = queue.close();
        assert!(queue.check().is_ok());
        let taken = queue.take(Duration::ZERO, Some(Duration::ZERO));
        assert!(taken.closing.is_some() && closed.try_recv().is_err());
        assert_eq!(queue.check(), Err(CommitRefusal::Broken));
        queue.recover();
        assert_eq!(queue.check(), Err(CommitRefusal::Broken));
    }
}
