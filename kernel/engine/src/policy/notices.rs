//! When pending entries are announced outside of the kernel: each once, several at a time together, and failed attempts
//! again.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::MonotonicTime;

/// A server that starts requests several permissions within moments: they are one notice.
pub const GATHER_TIME: Duration = Duration::from_secs(1);
/// The least time between two notices of one channel, so that no agent can flood a person.
pub const NOTICE_INTERVAL: Duration = Duration::from_secs(10);
/// The delays of further attempts; after the last one its entries are given up.
pub const RETRY_DELAYS: [Duration; 6] = [
    Duration::from_secs(2),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(300),
    Duration::from_secs(900),
];

/// The notices of one channel. Holds ids of open entries only, whose number the list of pending entries bounds.
#[derive(Debug, Default)]
pub struct NoticeSchedule {
    /// Announced or given up, and still open.
    done: BTreeSet<String>,
    /// Not yet announced.
    waiting: BTreeSet<String>,
    due: Option<MonotonicTime>,
    /// No notice before this.
    not_before: MonotonicTime,
    failures: usize,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Another attempt after this time.
    Retry(Duration),
    /// None: the entries stay in the list, unannounced.
    GiveUp,
}

impl NoticeSchedule {
    /// The entries that are open now.
    pub fn set_open(&mut self, open: &BTreeSet<String>, now: MonotonicTime) {
        self.done.retain(|id| open.contains(id));
        self.waiting = open.difference(&self.done).cloned().collect();
        if self.waiting.is_empty() {
            self.due = None;
            self.failures = 0;
        } else if self.due.is_none() {
            self.due = Some((now + GATHER_TIME).max(self.not_before));
        }
    }

    /// When the next notice is due, if entries wait for one.
    #[must_use]
    pub fn due(&self) -> Option<MonotonicTime> {
        self.due
    }

    /// The entries to announce now; empty if no notice is due.
    #[must_use]
    pub fn due_entries(&self, now: MonotonicTime) -> BTreeSet<String> {
        match self.due {
            Some(due) if due <= now => self.waiting.clone(),
            Some(_) | None => BTreeSet::new(),
        }
    }

    /// These entries were announced.
    pub fn record_success(&mut self, announced: BTreeSet<String>, now: MonotonicTime) {
        self.failures = 0;
        self.finish(announced, now);
    }

    /// An attempt to announce these entries failed.
    pub fn record_failure(
        &mut self,
        entries: BTreeSet<String>,
        now: MonotonicTime,
    ) -> AfterFailure {
        match RETRY_DELAYS.get(self.failures) {
            Some(delay) => {
                self.failures += 1;
                self.due = Some(now + *delay);
                AfterFailure::Retry(*delay)
            }
            None => {
                // New entries get attempts of their own.
                self.failures = 0;
                self.finish(entries, now);
                AfterFailure::GiveUp
            }
        }
    }

    /// Entries that were added during the attempt wait for the next notice.
    fn finish(&mut self, entries: BTreeSet<String>, now: MonotonicTime) {
        self.waiting.retain(|id| !entries.contains(id));
        self.done.extend(entries);
        self.not_before = now + NOTICE_INTERVAL;
        self.due = (!self.waiting.is_empty()).then_some(self.not_before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|id| (*id).to_owned()).collect()
    }

    fn second(secs: u64) -> MonotonicTime {
        MonotonicTime::new(Duration::from_secs(secs))
    }

    #[test]
    fn an_entry_is_announced_once_together_with_those_of_the_same_moment() {
        let mut schedule = NoticeSchedule::default();
        schedule.set_open(&ids(&["a"]), second(100));
        schedule.set_open(&ids(&["a", "b"]), second(100));
        assert_eq!(schedule.due_entries(second(100)), ids(&[]));
        assert_eq!(schedule.due(), Some(second(101)));
        let due = schedule.due_entries(second(101));
        assert_eq!(due, ids(&["a", "b"]));
        schedule.record_success(due, second(101));
        schedule.set_open(&ids(&["a", "b"]), second(200));
        assert_eq!(schedule.due(), None);
    }

    #[test]
    fn notices_keep_their_interval_and_entries_of_the_meantime_are_in_the_next() {
        let mut schedule = NoticeSchedule::default();
        schedule.set_open(&ids(&["a"]), second(100));
        let due = schedule.due_entries(second(101));
        schedule.set_open(&ids(&["a", "b"]), second(101));
        schedule.record_success(due, second(101));
        assert_eq!(schedule.due(), Some(second(111)));
        schedule.set_open(&ids(&["a", "b", "c"]), second(105));
        assert_eq!(schedule.due_entries(second(110)), ids(&[]));
        assert_eq!(schedule.due_entries(second(111)), ids(&["b", "c"]));
        schedule.record_success(ids(&["b", "c"]), second(111));
        schedule.set_open(&ids(&["d"]), second(112));
        assert_eq!(schedule.due(), Some(second(121)), "also for later entries");
    }

    #[test]
    fn failed_attempts_are_repeated_until_they_are_given_up() {
        let mut schedule = NoticeSchedule::default();
        let mut now = second(0);
        schedule.set_open(&ids(&["a"]), now);
        for delay in RETRY_DELAYS {
            now = schedule.due().unwrap();
            let due = schedule.due_entries(now);
            assert_eq!(
                schedule.record_failure(due, now),
                AfterFailure::Retry(delay)
            );
            // A change of the list is no reason to try earlier.
            schedule.set_open(&ids(&["a"]), now);
            assert_eq!(schedule.due(), Some(now + delay));
        }
        now = schedule.due().unwrap();
        let due = schedule.due_entries(now);
        assert_eq!(schedule.record_failure(due, now), AfterFailure::GiveUp);
        schedule.set_open(&ids(&["a"]), now);
        assert_eq!(schedule.due(), None);
        schedule.set_open(&ids(&["a", "b"]), now);
        assert_eq!(
            schedule.due_entries(now + NOTICE_INTERVAL),
            ids(&["b"]),
            "a new entry gets attempts of its own"
        );
        assert_eq!(
            schedule.record_failure(ids(&["b"]), now + NOTICE_INTERVAL),
            AfterFailure::Retry(RETRY_DELAYS[0])
        );
    }

    #[test]
    fn decided_entries_are_not_announced() {
        let mut schedule = NoticeSchedule::default();
        schedule.set_open(&ids(&["a"]), second(0));
        schedule.record_failure(ids(&["a"]), second(1));
        schedule.set_open(&ids(&[]), second(2));
        assert_eq!(schedule.due(), None);
        schedule.set_open(&ids(&["b"]), second(3));
        assert_eq!(schedule.due(), Some(second(4)));
        assert_eq!(
            schedule.record_failure(ids(&["b"]), second(4)),
            AfterFailure::Retry(RETRY_DELAYS[0]),
            "without the earlier failures"
        );
    }

    #[test]
    fn ids_of_closed_entries_are_forgotten() {
        let mut schedule = NoticeSchedule::default();
        schedule.set_open(&ids(&["a"]), second(0));
        schedule.record_success(ids(&["a"]), second(1));
        schedule.set_open(&ids(&["b"]), second(2));
        assert_eq!(schedule.done, ids(&[]));
    }

    #[test]
    fn an_entry_that_came_during_the_last_attempt_gets_attempts_of_its_own() {
        let mut schedule = NoticeSchedule::default();
        schedule.set_open(&ids(&["a"]), second(0));
        for _ in RETRY_DELAYS {
            schedule.record_failure(ids(&["a"]), second(1));
        }
        schedule.set_open(&ids(&["a", "b"]), second(2));
        let after = schedule.record_failure(ids(&["a"]), second(2));
        assert_eq!(after, AfterFailure::GiveUp);
        let after = schedule.record_failure(ids(&["b"]), second(20));
        assert_eq!(after, AfterFailure::Retry(RETRY_DELAYS[0]));
    }
}
