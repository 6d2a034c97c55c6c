//! When records are synced, and who waits for that.
//!
//! A written record survives the end of the kernel, a synced one a power cut. Decisions wait until they are
//! synced; calls wait too, or are synced together within a window. Records that nobody waits for may be
//! gathered for a moment before they are written: the writer decides how long, and reports a record here
//! when it is written.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::MonotonicTime;

/// Most answers that wait at once. Beyond it no record is accepted: the disk does not keep up.
pub const WAITING_MAX: usize = 4_096;
/// The default window.
pub const WINDOW: Duration = Duration::from_millis(50);

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
        Self::Window(WINDOW)
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

/// What the sender of a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitAnswer {
    /// Go on.
    Now,
    /// Wait until this record is on disk.
    Wait,
}

/// Why a record is refused. Its action is refused too, because nothing is done that is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitRefusal {
    /// Too many wait.
    #[error("the audit log does not keep up; try again later")]
    Full,
    /// The disk failed and does not work yet.
    #[error(
        "the audit log cannot be written; it is tried again each second, and `mgp status` says why"
    )]
    Broken,
    /// The disk failed during the write of this record. When it works again, the record is in the log, with
    /// another one that says that it was refused.
    #[error("the audit log could not be written just now; `mgp status` says why")]
    Late,
}

/// The schedule of syncs of one log. Records are reported in order.
#[derive(Clone, Debug)]
pub struct Commit {
    calls: CallAuditing,
    /// The last record written.
    written: u64,
    /// The last record on disk.
    synced: u64,
    /// The last record of the sync that is under way.
    syncing: Option<u64>,
    /// When the records written since the last sync must be on disk.
    due: Option<MonotonicTime>,
    /// Numbers of records that are waited for, in order. At most [`WAITING_MAX`].
    waiting: VecDeque<u64>,
    broken: bool,
}

impl Commit {
    /// A log that is synced up to this record.
    #[must_use]
    pub fn new(calls: CallAuditing, synced: u64) -> Self {
        Self {
            calls,
            written: synced,
            synced,
            syncing: None,
            due: None,
            waiting: VecDeque::new(),
            broken: false,
        }
    }

    /// Whether another record is accepted. Asked before it is written.
    ///
    /// # Errors
    /// [`CommitRefusal`] when too many wait or the disk failed.
    pub fn room(&self) -> Result<(), CommitRefusal> {
        match () {
            () if self.broken => Err(CommitRefusal::Broken),
            () if self.waiting.len() >= WAITING_MAX => Err(CommitRefusal::Full),
            () => Ok(()),
        }
    }

    /// A record was written at `now`.
    pub fn written(&mut self, sequence: u64, kind: RecordKind, now: MonotonicTime) -> CommitAnswer {
        self.written = sequence;
        let within = match (kind, self.calls) {
            (RecordKind::Decision, _) | (RecordKind::Call, CallAuditing::BeforeReply) => {
                Duration::ZERO
            }
            (RecordKind::Call, CallAuditing::Window(window)) => window,
        };
        let due = now + within;
        self.due = Some(self.due.map_or(due, |d| d.min(due)));
        // A window of zero is possible, too.
        if within.is_zero() {
            self.waiting.push_back(sequence);
            CommitAnswer::Wait
        } else {
            CommitAnswer::Now
        }
    }

    /// When to call [`Commit::begin`] next; `None` while there is nothing to sync or a sync is under way.
    #[must_use]
    pub fn wake(&self) -> Option<MonotonicTime> {
        self.due.filter(|_| self.syncing.is_none() && !self.broken)
    }

    /// Begins a sync if one is due: the file is synced now, then [`Commit::synced`] is called. One at a
    /// time; later records are in the next one.
    #[must_use]
    pub fn begin(&mut self, now: MonotonicTime) -> bool {
        let due = self.wake().is_some_and(|due| due <= now);
        if due {
            self.syncing = Some(self.written);
            self.due = None;
        }
        due
    }

    /// The sync is done. Answers the awaited records that are on disk now.
    #[must_use]
    pub fn synced(&mut self) -> Vec<u64> {
        let upto = self.syncing.take().unwrap_or(self.synced);
        self.synced = upto;
        let there = self.waiting.partition_point(|n| *n <= upto);
        self.waiting.drain(..there).collect()
    }

    /// A write or sync failed. A second try may report success for lost bytes, so there is none until
    /// [`Commit::recovered`]. Answers the awaited records, which must not be acknowledged.
    #[must_use]
    pub fn failed(&mut self) -> Vec<u64> {
        self.broken = true;
        self.syncing = None;
        self.waiting.drain(..).collect()
    }

    /// Writing continues elsewhere, with everything up to this record on disk.
    pub fn recovered(&mut self, synced: u64) {
        *self = Self::new(self.calls, synced);
    }

    /// The last record known to be on disk, for [`super::verify`].
    #[cfg(test)]
    pub(crate) fn durable(&self) -> u64 {
        self.synced
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
        let mut commit = Commit::new(CallAuditing::default(), 0);
        assert_eq!(
            commit.written(1, RecordKind::Call, at(0)),
            CommitAnswer::Now
        );
        assert_eq!(
            commit.written(2, RecordKind::Call, at(30)),
            CommitAnswer::Now
        );
        assert_eq!(commit.wake(), Some(at(50)));
        assert!(!commit.begin(at(49)));
        assert_eq!(
            commit.written(3, RecordKind::Decision, at(49)),
            CommitAnswer::Wait
        );
        assert!(commit.begin(at(49)));
        assert_eq!(
            commit.written(4, RecordKind::Decision, at(49)),
            CommitAnswer::Wait
        );
        assert!(!commit.begin(at(200)), "one at a time");
        assert_eq!(commit.synced(), [3]);
        assert_eq!(commit.durable(), 3);
        assert!(commit.begin(at(60)));
        assert_eq!(commit.synced(), [4]);
        assert_eq!(commit.wake(), None);
    }

    #[test]
    fn before_reply_lets_every_call_wait() {
        let mut commit = Commit::new(CallAuditing::BeforeReply, 10);
        assert_eq!(
            commit.written(11, RecordKind::Call, at(0)),
            CommitAnswer::Wait
        );
        assert!(commit.begin(at(0)));
        assert_eq!(commit.synced(), [11]);
    }

    #[test]
    fn a_failing_disk_acknowledges_nothing_more() {
        let mut commit = Commit::new(CallAuditing::BeforeReply, 0);
        let _ = commit.written(1, RecordKind::Decision, at(0));
        assert!(commit.begin(at(0)));
        assert_eq!(commit.failed(), [1]);
        assert_eq!(commit.room(), Err(CommitRefusal::Broken));
        assert!(!commit.begin(at(99)));
        assert_eq!((commit.synced(), commit.durable()), (vec![], 0));
        commit.recovered(2);
        assert_eq!((commit.room(), commit.durable()), (Ok(()), 2));
        let _ = commit.written(3, RecordKind::Decision, at(100));
        assert!(commit.begin(at(100)));
        assert_eq!(commit.synced(), [3]);
    }

    #[test]
    fn a_slow_disk_is_said_to_be_one() {
        let mut commit = Commit::new(CallAuditing::BeforeReply, 0);
        for n in 1..=WAITING_MAX as u64 {
            commit.room().unwrap();
            let _ = commit.written(n, RecordKind::Call, at(0));
        }
        assert_eq!(commit.room(), Err(CommitRefusal::Full));
        assert!(commit.begin(at(0)));
        assert_eq!(commit.synced().len(), WAITING_MAX);
        assert_eq!(commit.room(), Ok(()));
    }

    proptest! {
        /// Nobody who waits is let go before the disk has the record, or forgotten; and with a disk that
        /// takes no time, no record stays off it longer than the window.
        #[test]
        fn who_waits_is_let_go_once_and_in_time(
            steps in proptest::collection::vec((any::<bool>(), 0u64..40), 1..100)
        ) {
            let mut commit = Commit::new(CallAuditing::default(), 0);
            let (mut now, mut disk, mut written_at, mut waits) = (0, 0, vec![], vec![]);
            for (n, (decision, gap)) in (1u64..).zip(steps) {
                for _ in 0..gap {
                    now += 1;
                    if commit.begin(at(now)) {
                        disk = commit.syncing.unwrap();
                        for let_go in commit.synced() {
                            prop_assert!(let_go <= disk);
                            prop_assert_eq!(waits.first(), Some(&let_go));
                            waits.remove(0);
                        }
                    }
                }
                let kind = if decision { RecordKind::Decision } else { RecordKind::Call };
                let answer = commit.written(n, kind, at(now));
                prop_assert_eq!(answer == CommitAnswer::Wait, decision);
                if decision { waits.push(n); }
                written_at.push(now);
                let late = written_at.iter().skip(disk as usize).filter(|t| **t + 50 < now);
                prop_assert_eq!(late.count(), 0);
            }
            while let Some(due) = commit.wake() {
                prop_assert!(commit.begin(due));
                for let_go in commit.synced() {
                    prop_assert_eq!(waits.remove(0), let_go);
                }
            }
            prop_assert_eq!(waits, Vec::<u64>::new());
            prop_assert_eq!(commit.durable(), written_at.len() as u64);
        }
    }
}
