//! When records are synced, and which callers wait for it.
//!
//! A written record survives the end of the kernel, a synced one a power cut. Decisions wait until they are
//! synced; calls wait too, or are synced together within a window. The writer may buffer records that nobody waits for,
//! and reports each record here when it is written.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::MonotonicTime;

/// Most replies that wait at once. Beyond it no record is accepted: the disk does not keep up.
pub(crate) const WAITING_MAX: usize = 4_096;
/// The default window.
pub const DEFAULT_WINDOW: Duration = Duration::from_millis(50);

/// `audit.calls` of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAuditing {
    /// A call is answered once its record is on disk.
    BeforeReply,
    /// A call is answered at once. A sync of its record begins at most this long after it is written.
    Window(Duration),
}

impl Default for CallAuditing {
    fn default() -> Self {
        Self::Window(DEFAULT_WINDOW)
    }
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A grant, a permission, a registration or a pairing: on disk before it is acknowledged.
    Decision,
    /// A call, or anything else that has already happened.
    Call,
}

/// What the sender of a record does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// Continue.
    Proceed,
    /// Wait until this record is on disk.
    Wait,
}

/// Why a record is refused. Its action is refused too, because nothing is done that is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Too many replies wait.
    #[error("the audit log does not keep up; try again later")]
    Full,
    /// The disk failed and does not work yet.
    #[error(
        "the audit log cannot be written; it is tried again each second, and `mgp status` says why"
    )]
    Failed,
    /// The disk failed during the write of this record. When it works again, the record is in the log, with
    /// another one that says that it was refused.
    #[error("the audit log could not be written just now; `mgp status` says why")]
    FailedDuringWrite,
}

/// The schedule of syncs of one log. Records are reported in order.
#[derive(Clone, Debug)]
pub struct CommitScheduler {
    calls: CallAuditing,
    /// The last record written.
    last_written: u64,
    /// The last record on disk.
    last_synced: u64,
    /// The last record of the sync that is under way.
    syncing_through: Option<u64>,
    /// When the records written since the last sync must be on disk.
    sync_due: Option<MonotonicTime>,
    /// The records that replies wait for, in order. At most [`WAITING_MAX`].
    waiting: VecDeque<u64>,
    has_failed: bool,
}

impl CommitScheduler {
    /// A log that is synced up to this record.
    #[must_use]
    pub fn new(calls: CallAuditing, last_synced: u64) -> Self {
        Self {
            calls,
            last_written: last_synced,
            last_synced,
            syncing_through: None,
            sync_due: None,
            waiting: VecDeque::new(),
            has_failed: false,
        }
    }

    /// Whether another record is accepted. Call it before each write.
    ///
    /// # Errors
    /// [`CommitError`] when too many wait or the disk failed.
    pub fn check_capacity(&self) -> Result<(), CommitError> {
        match () {
            () if self.has_failed => Err(CommitError::Failed),
            () if self.waiting.len() >= WAITING_MAX => Err(CommitError::Full),
            () => Ok(()),
        }
    }

    /// A record was written at `now`.
    pub fn record_written(
        &mut self,
        sequence: u64,
        kind: RecordKind,
        now: MonotonicTime,
    ) -> CommitOutcome {
        self.last_written = sequence;
        let delay = match (kind, self.calls) {
            (RecordKind::Decision, _) | (RecordKind::Call, CallAuditing::BeforeReply) => {
                Duration::ZERO
            }
            (RecordKind::Call, CallAuditing::Window(window)) => window,
        };
        let due = now + delay;
        self.sync_due = Some(self.sync_due.map_or(due, |d| d.min(due)));
        // The window may be zero.
        if delay.is_zero() {
            self.waiting.push_back(sequence);
            CommitOutcome::Wait
        } else {
            CommitOutcome::Proceed
        }
    }

    /// When to call [`CommitScheduler::begin_sync`] next; `None` while there is nothing to sync or a sync is under way.
    #[must_use]
    pub fn next_timeout(&self) -> Option<MonotonicTime> {
        self.sync_due
            .filter(|_| self.syncing_through.is_none() && !self.has_failed)
    }

    /// Begins a sync if one is due: the file is synced now, then [`CommitScheduler::synced`] is called. One at a
    /// time; later records are in the next one.
    #[must_use]
    pub fn begin_sync(&mut self, now: MonotonicTime) -> bool {
        let is_due = self.next_timeout().is_some_and(|due| due <= now);
        if is_due {
            self.syncing_through = Some(self.last_written);
            self.sync_due = None;
        }
        is_due
    }

    /// The sync is done. Answers the awaited records that are on disk now.
    #[must_use]
    pub fn finish_sync(&mut self) -> Vec<u64> {
        let last = self.syncing_through.take().unwrap_or(self.last_synced);
        self.last_synced = last;
        let count = self.waiting.partition_point(|n| *n <= last);
        self.waiting.drain(..count).collect()
    }

    /// A write or sync failed. A second try may report success for lost bytes, so there is none until
    /// [`CommitScheduler::recover`]. Answers the awaited records, which must not be acknowledged.
    #[must_use]
    pub fn fail_sync(&mut self) -> Vec<u64> {
        self.has_failed = true;
        self.syncing_through = None;
        self.waiting.drain(..).collect()
    }

    /// Writing continues elsewhere, with everything up to this record on disk.
    pub fn recover(&mut self, synced: u64) {
        *self = Self::new(self.calls, synced);
    }

    /// The last record known to be on disk, for [`super::verify`].
    #[cfg(test)]
    pub(crate) fn durable(&self) -> u64 {
        self.last_synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> MonotonicTime {
        MonotonicTime::new(Duration::from_millis(ms))
    }

    #[test]
    fn calls_share_a_sync_within_the_window_and_decisions_wait() {
        let mut commit = CommitScheduler::new(CallAuditing::default(), 0);
        assert_eq!(
            commit.record_written(1, RecordKind::Call, at(0)),
            CommitOutcome::Proceed
        );
        assert_eq!(
            commit.record_written(2, RecordKind::Call, at(30)),
            CommitOutcome::Proceed
        );
        assert_eq!(commit.next_timeout(), Some(at(50)));
        assert!(!commit.begin_sync(at(49)));
        assert_eq!(
            commit.record_written(3, RecordKind::Decision, at(49)),
            CommitOutcome::Wait
        );
        assert!(commit.begin_sync(at(49)));
        assert_eq!(
            commit.record_written(4, RecordKind::Decision, at(49)),
            CommitOutcome::Wait
        );
        assert!(!commit.begin_sync(at(200)), "one at a time");
        assert_eq!(commit.finish_sync(), [3]);
        assert_eq!(commit.durable(), 3);
        assert!(commit.begin_sync(at(60)));
        assert_eq!(commit.finish_sync(), [4]);
        assert_eq!(commit.next_timeout(), None);
    }

    #[test]
    fn before_reply_lets_every_call_wait() {
        let mut commit = CommitScheduler::new(CallAuditing::BeforeReply, 10);
        assert_eq!(
            commit.record_written(11, RecordKind::Call, at(0)),
            CommitOutcome::Wait
        );
        assert!(commit.begin_sync(at(0)));
        assert_eq!(commit.finish_sync(), [11]);
    }

    #[test]
    fn a_failing_disk_acknowledges_nothing_more() {
        let mut commit = CommitScheduler::new(CallAuditing::BeforeReply, 0);
        let _ = commit.record_written(1, RecordKind::Decision, at(0));
        assert!(commit.begin_sync(at(0)));
        assert_eq!(commit.fail_sync(), [1]);
        assert_eq!(commit.check_capacity(), Err(CommitError::Failed));
        assert!(!commit.begin_sync(at(99)));
        assert_eq!((commit.finish_sync(), commit.durable()), (vec![], 0));
        commit.recover(2);
        assert_eq!((commit.check_capacity(), commit.durable()), (Ok(()), 2));
        let _ = commit.record_written(3, RecordKind::Decision, at(100));
        assert!(commit.begin_sync(at(100)));
        assert_eq!(commit.finish_sync(), [3]);
    }

    #[test]
    fn a_slow_disk_is_reported() {
        let mut commit = CommitScheduler::new(CallAuditing::BeforeReply, 0);
        for n in 1..=WAITING_MAX as u64 {
            commit.check_capacity().unwrap();
            let _ = commit.record_written(n, RecordKind::Call, at(0));
        }
        assert_eq!(commit.check_capacity(), Err(CommitError::Full));
        assert!(commit.begin_sync(at(0)));
        assert_eq!(commit.finish_sync().len(), WAITING_MAX);
        assert_eq!(commit.check_capacity(), Ok(()));
    }

    proptest! {
        /// Each reply is released once its record is on disk; with an instant disk, no record is synced later than the
        /// window.
        #[test]
        fn each_waiting_reply_is_released_once_and_in_time(
            steps in proptest::collection::vec((any::<bool>(), 0u64..40), 1..100)
        ) {
            let mut commit = CommitScheduler::new(CallAuditing::default(), 0);
            let (mut now, mut disk, mut written_at, mut waits) = (0, 0, vec![], vec![]);
            for (n, (decision, gap)) in (1u64..).zip(steps) {
                for _ in 0..gap {
                    now += 1;
                    if commit.begin_sync(at(now)) {
                        disk = commit.syncing_through.unwrap();
                        for released in commit.finish_sync() {
                            prop_assert!(released <= disk);
                            prop_assert_eq!(waits.first(), Some(&released));
                            waits.remove(0);
                        }
                    }
                }
                let kind = if decision { RecordKind::Decision } else { RecordKind::Call };
                let answer = commit.record_written(n, kind, at(now));
                prop_assert_eq!(answer == CommitOutcome::Wait, decision);
                if decision { waits.push(n); }
                written_at.push(now);
                let late = written_at.iter().skip(disk as usize).filter(|t| **t + 50 < now);
                prop_assert_eq!(late.count(), 0);
            }
            while let Some(due) = commit.next_timeout() {
                prop_assert!(commit.begin_sync(due));
                for released in commit.finish_sync() {
                    prop_assert_eq!(waits.remove(0), released);
                }
            }
            prop_assert_eq!(waits, Vec::<u64>::new());
            prop_assert_eq!(commit.durable(), written_at.len() as u64);
        }
    }
}
