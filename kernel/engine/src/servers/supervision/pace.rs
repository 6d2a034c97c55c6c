//! How often a server can make the kernel do the same again.

use std::time::Duration;

use crate::clock::MonotonicTime;
use crate::servers::restart::StartBudget;

/// A stream that was open for so long may be opened again at once: no server can have more of them a second.
const STEADY: Duration = Duration::from_secs(1);
/// The shortest wait before a stream is opened again (CMCP-037).
const FIRST: Duration = Duration::from_millis(50);
/// The longest; also the most that a server can ask for.
const LONGEST: Duration = Duration::from_secs(30);

/// The waits before a stream that its server ended is opened again.
#[derive(Clone, Debug, Default)]
pub struct ReopenPace {
    /// Streams in a row that ended at once.
    short: u32,
}

impl ReopenPace {
    /// The wait after a stream that was open for so long, whose server asked for this wait (`retry`).
    pub fn wait(&mut self, lasted: Duration, asked: Option<Duration>) -> Duration {
        let asked = asked.unwrap_or_default().min(LONGEST);
        // A server that is to be asked at intervals closes each stream at once.
        if lasted >= STEADY || asked >= STEADY {
            self.short = 0;
            return asked.max(FIRST);
        }
        self.short = self.short.saturating_add(1);
        let doubled = 2u32.saturating_pow(self.short - 1);
        asked.max(FIRST.saturating_mul(doubled).min(LONGEST))
    }
}

/// Times a list is fetched at once after a quiet time.
const AT_ONCE: u32 = 3;
/// Afterwards it is fetched once in each such interval.
const GAP: Duration = Duration::from_secs(1);

/// How often one list of a server is fetched that reports its changes.
#[derive(Clone, Debug, Default)]
pub struct RefreshPace(StartBudget);

impl RefreshPace {
    /// Takes a fetch; returns how long it has to wait.
    pub fn take(&mut self, now: MonotonicTime) -> Duration {
        self.0.take(now, AT_ONCE, GAP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(3);

    #[test]
    fn streams_that_end_at_once_are_opened_ever_more_rarely() {
        for asked in [None, Some(Duration::ZERO), Some(Duration::from_millis(20))] {
            let mut pace = ReopenPace::default();
            let waits: Vec<_> = (0..40).map(|_| pace.wait(SHORT, asked)).collect();
            assert_eq!(waits[0], FIRST);
            assert_eq!(waits[1], FIRST * 2);
            assert_eq!(waits[39], LONGEST);
            // One that stays open for a while begins the count anew.
            assert_eq!(pace.wait(STEADY, asked), FIRST);
            assert_eq!(pace.wait(SHORT, asked), FIRST);
        }
    }

    #[test]
    fn a_server_may_ask_for_a_longer_wait_and_for_no_endless_one() {
        let mut pace = ReopenPace::default();
        let asked = Duration::from_secs(3);
        for _ in 0..10 {
            assert_eq!(pace.wait(SHORT, Some(asked)), asked);
        }
        assert_eq!(pace.wait(SHORT, Some(Duration::MAX)), LONGEST);
    }

    #[test]
    fn a_list_is_fetched_a_few_times_at_once_and_then_once_a_second() {
        let mut pace = RefreshPace::default();
        let mut now = MonotonicTime::START + Duration::from_secs(9);
        let begun = now;
        for n in 0..20 {
            let wait = pace.take(now);
            assert_eq!(wait.is_zero(), n < AT_ONCE, "{n}");
            now = now + wait;
        }
        assert_eq!(now.since(begun), GAP * (20 - AT_ONCE));
        assert_eq!(pace.take(now + GAP * AT_ONCE), Duration::ZERO);
    }
}
