//! Bounds on how often a server can make the kernel repeat an action.

use std::time::Duration;

use crate::clock::MonotonicTime;
use crate::servers::restart::RateBudget;

/// A stream that was open this long may be reopened at once, which bounds a server to one per second.
const STABLE_AFTER: Duration = Duration::from_secs(1);
/// Shortest wait before a stream is reopened (CMCP-037).
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest wait, also for a server's `retry`.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Backoff before a stream that its server ended is reopened.
#[derive(Clone, Debug, Default)]
pub struct ReopenBackoff {
    /// Consecutive streams shorter than [`STABLE_AFTER`].
    short_streams: u32,
}

impl ReopenBackoff {
    /// The wait after a stream that lasted this long, whose server requested this `retry`.
    pub fn next_wait(&mut self, lasted: Duration, requested: Option<Duration>) -> Duration {
        let requested = requested.unwrap_or_default().min(BACKOFF_MAX);
        // A server that expects polling closes each stream at once.
        if lasted >= STABLE_AFTER || requested >= STABLE_AFTER {
            self.short_streams = 0;
            return requested.max(BACKOFF_MIN);
        }
        self.short_streams = self.short_streams.saturating_add(1);
        let doubled = 2u32.saturating_pow(self.short_streams - 1);
        requested.max(BACKOFF_MIN.saturating_mul(doubled).min(BACKOFF_MAX))
    }
}

/// Immediate fetches of a list when the budget is full.
const REFRESH_BURST: u32 = 3;
/// Afterwards one fetch per interval.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Limits how often one changed list of a server is fetched.
#[derive(Clone, Debug, Default)]
pub struct RefreshLimiter(RateBudget);

impl RefreshLimiter {
    /// Takes a fetch; returns how long it has to wait.
    pub fn reserve(&mut self, now: MonotonicTime) -> Duration {
        self.0.reserve(now, REFRESH_BURST, REFRESH_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(3);

    #[test]
    fn short_streams_are_reopened_with_growing_backoff() {
        for requested in [None, Some(Duration::ZERO), Some(Duration::from_millis(20))] {
            let mut backoff = ReopenBackoff::default();
            let waits: Vec<_> = (0..40)
                .map(|_| backoff.next_wait(SHORT, requested))
                .collect();
            assert_eq!(waits[0], BACKOFF_MIN);
            assert_eq!(waits[1], BACKOFF_MIN * 2);
            assert_eq!(waits[39], BACKOFF_MAX);
            // A stable stream resets the count.
            assert_eq!(backoff.next_wait(STABLE_AFTER, requested), BACKOFF_MIN);
            assert_eq!(backoff.next_wait(SHORT, requested), BACKOFF_MIN);
        }
    }

    #[test]
    fn a_server_may_request_a_longer_wait_up_to_the_maximum() {
        let mut backoff = ReopenBackoff::default();
        let requested = Duration::from_secs(3);
        for _ in 0..10 {
            assert_eq!(backoff.next_wait(SHORT, Some(requested)), requested);
        }
        assert_eq!(backoff.next_wait(SHORT, Some(Duration::MAX)), BACKOFF_MAX);
    }

    #[test]
    fn list_fetches_are_a_burst_and_then_one_per_second() {
        let mut backoff = RefreshLimiter::default();
        let mut now = MonotonicTime::START + Duration::from_secs(9);
        let started_at = now;
        for n in 0..20 {
            let wait = backoff.reserve(now);
            assert_eq!(wait.is_zero(), n < REFRESH_BURST, "{n}");
            now = now + wait;
        }
        assert_eq!(
            now.duration_since(started_at),
            REFRESH_INTERVAL * (20 - REFRESH_BURST)
        );
        assert_eq!(
            backoff.reserve(now + REFRESH_INTERVAL * REFRESH_BURST),
            Duration::ZERO
        );
    }
}
