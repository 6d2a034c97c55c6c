//! When the next pull may be sent.

use std::time::Duration;

use super::PULL_TIMEOUT;
use crate::clock::MonotonicTime;

/// The wait after the first failure; it doubles each time.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// The longest wait.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// The longest wait that the owner can request.
const REQUESTED_BACKOFF_MAX: Duration = Duration::from_secs(300);
/// Most pages in a row. Even the largest index has fewer; after more, the pull waits as after a failure and continues
/// where it stopped.
const PAGES_MAX: u32 = 1024;

/// The pulls from one owner: at most one in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PullBackoff {
    number: u64,
    sent: Option<MonotonicTime>,
    not_before: Option<MonotonicTime>,
    failures: u32,
    pages: u32,
}

impl PullBackoff {
    /// Starts the next pull and returns its number, if one may be sent.
    pub(super) fn start(&mut self, now: MonotonicTime) -> Option<u64> {
        if self.sent.is_some() || self.not_before.is_some_and(|until| now < until) {
            return None;
        }
        self.number += 1;
        self.sent = Some(now);
        Some(self.number)
    }

    /// True for the answer to the pull in flight; any other is ignored.
    pub(super) fn finish(&mut self, number: u64) -> bool {
        let it = self.sent.is_some() && number == self.number;
        if it {
            self.sent = None;
        }
        it
    }

    /// A page was applied, and others follow or not.
    pub(super) fn record_page(&mut self, last: bool, now: MonotonicTime) {
        self.pages = if last { 0 } else { self.pages + 1 };
        (self.not_before, self.failures) = (None, 0);
        if self.pages >= PAGES_MAX {
            self.pages = 0;
            self.record_failure(None, now);
        }
    }

    /// The pull failed: the next one waits, longer each time.
    pub(super) fn record_failure(&mut self, requested: Option<Duration>, now: MonotonicTime) {
        let backoff = BACKOFF_MIN
            .saturating_mul(1 << self.failures.min(6))
            .min(BACKOFF_MAX);
        let requested = requested.unwrap_or_default().min(REQUESTED_BACKOFF_MAX);
        self.failures = self.failures.saturating_add(1);
        self.sent = None;
        self.not_before = Some(now + backoff.max(requested));
    }

    /// The link is lost: no pull is in flight, and the next link begins without a delay.
    pub(super) fn reset(&mut self) {
        self.sent = None;
        self.not_before = None;
    }

    /// True when the pull in flight has timed out.
    pub(super) fn is_timed_out(&self, now: MonotonicTime) -> bool {
        self.sent.is_some_and(|sent| now >= sent + PULL_TIMEOUT)
    }

    /// When the next timeout is.
    pub(super) fn next_timeout(&self) -> Option<MonotonicTime> {
        self.sent
            .map(|sent| sent + PULL_TIMEOUT)
            .or(self.not_before)
    }
}
