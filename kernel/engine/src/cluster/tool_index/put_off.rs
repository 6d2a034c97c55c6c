//! When the next pull may be made.

use std::time::Duration;

use super::PULL_TIME;
use crate::clock::MonotonicTime;

/// The wait after the first failure; doubled with each.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(60);
/// The longest wait that the owner can ask for.
const LONGEST_TOLD: Duration = Duration::from_secs(300);
/// Most pages in a row. A whole index of the largest size has fewer; who has more waits like one that
/// failed, and goes on from where it is.
const PAGES_MAX: u32 = 1024;

/// One owner's pulls: at most one under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PutOff {
    number: u64,
    sent: Option<MonotonicTime>,
    until: Option<MonotonicTime>,
    failures: u32,
    pages: u32,
}

impl PutOff {
    /// The number of the next pull, where one may be made.
    pub(super) fn begin(&mut self, now: MonotonicTime) -> Option<u64> {
        if self.sent.is_some() || self.until.is_some_and(|until| now < until) {
            return None;
        }
        self.number += 1;
        self.sent = Some(now);
        Some(self.number)
    }

    /// True for the answer that is waited for; whatever comes after it is none.
    pub(super) fn ends(&mut self, number: u64) -> bool {
        let it = self.sent.is_some() && number == self.number;
        if it {
            self.sent = None;
        }
        it
    }

    /// A page was taken, and others follow or not.
    pub(super) fn brought(&mut self, last: bool, now: MonotonicTime) {
        self.pages = if last { 0 } else { self.pages + 1 };
        (self.until, self.failures) = (None, 0);
        if self.pages >= PAGES_MAX {
            self.pages = 0;
            self.failed(None, now);
        }
    }

    /// It brought nothing: the next one waits, longer each time.
    pub(super) fn failed(&mut self, told: Option<Duration>, now: MonotonicTime) {
        let backoff = FIRST.saturating_mul(1 << self.failures.min(6)).min(LONGEST);
        let told = told.unwrap_or_default().min(LONGEST_TOLD);
        self.failures = self.failures.saturating_add(1);
        self.sent = None;
        self.until = Some(now + backoff.max(told));
    }

    /// There is no link: nothing is waited for, and the next link begins without delay.
    pub(super) fn unlinked(&mut self) {
        self.sent = None;
        self.until = None;
    }

    /// The pull under way is given up when its time is over.
    pub(super) fn is_lost(&self, now: MonotonicTime) -> bool {
        self.sent.is_some_and(|sent| now >= sent + PULL_TIME)
    }

    /// When something is due by itself.
    pub(super) fn next(&self) -> Option<MonotonicTime> {
        self.sent.map(|sent| sent + PULL_TIME).or(self.until)
    }
}
