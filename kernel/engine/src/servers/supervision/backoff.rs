//! How often a server can make the kernel do the same again.

use std::time::Duration;

use crate::clock::MonotonicTime;
use crate::servers::restart::RateBudget;

/// A stream that was open for so long may be opened again at once: no server can have more of them a second.
const STABLE_AFTER: Duration = Duration::from_secs(1);
/// The shortest wait before a stream is opened again (CMCP-037).
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// The longest; also the most that a server can ask for.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The waits before a stream that its server ended is opened again.
#[derive(Clone, Debug, Default)]
pub struct ReopenBackoff {
    /// Streams in a row that ended at once.
    short_streams: u32,
}

impl ReopenBackoff {
    /// The wait after a stream that was open for so long, whose server asked for this wait (`retry`).
    pub fn next_wait(&mut self, lasted: Duration, asked: Option<Duration>) -> Duration {
        let asked = asked.unwrap_or_default().min(BACKOFF_MAX);
        // A server that is to be asked at intervals closes each stream at once.
        if lasted >= STABLE_AFTER || asked >= STABLE_AFTER {
            self.short_streams = 0;
            return asked.max(BACKOFF_MIN);
        }
        self.short_streams = self.short_streams.saturating_add(1);
        let doubled = 2u32.saturating_pow(self.short_streams - 1);
        asked.max(BACKOFF_MIN.saturating_mul(doubled).min(BACKOFF_MAX))
    }
}

/// Times a list is fetched at once after a quiet time.
const REFRESH_BURST: u32 = 3;
/// Afterwards it is fetched once in each such interval.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// How often one list of a server is fetched that reports its changes.
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
    fn streams_that_end_at_once_are_opened_ever_more_rarely() {
        for asked in [None, Some(Duration::ZERO), Some(Duration::from_millis(20))] {
            let mut pace = ReopenBackoff::default();
            let waits: Vec<_> = (0..40).map(|_| pace.next_wait(SHORT, asked)).collect();
            assert_eq!(waits[0], BACKOFF_MIN);
            assert_eq!(waits[1], BACKOFF_MIN * 2);
            assert_eq!(waits[39], BACKOFF_MAX);
            // One that stays open for a while begins the count anew.
            assert_eq!(pace.next_wait(STABLE_AFTER, asked), BACKOFF_MIN);
            assert_eq!(pace.next_wait(SHORT, asked), BACKOFF_MIN);
        }
    }

    #[test]
    fn a_server_may_ask_for_a_longer_wait_and_for_no_endless_one() {
        let mut pace = ReopenBackoff::default();
        let asked = Duration::from_secs(3);
        for _ in 0..10 {
            assert_eq!(pace.next_wait(SHORT, Some(asked)), asked);
        }
        assert_eq!(pace.next_wait(SHORT, Some(Duration::MAX)), BACKOFF_MAX);
    }

    #[test]
    fn a_list_is_fetched_a_few_times_at_once_and_then_once_a_second() {
        let mut pace = RefreshLimiter::default();
        let mut now = MonotonicTime::START + Duration::from_secs(9);
        let begun = now;
        for n in 0..20 {
            let wait = pace.reserve(now);
            assert_eq!(wait.is_zero(), n < REFRESH_BURST, "{n}");
            now = now + wait;
        }
        assert_eq!(
            now.duration_since(begun),
            REFRESH_INTERVAL * (20 - REFRESH_BURST)
        );
        assert_eq!(
            pace.reserve(now + REFRESH_INTERVAL * REFRESH_BURST),
            Duration::ZERO
        );
    }
}
