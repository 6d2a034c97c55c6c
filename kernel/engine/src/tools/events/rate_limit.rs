//! How many events a server may tell: one that tells without end takes no more of the kernel than this.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::MonotonicTime;

/// Events a second: far more than a model or a person takes in.
pub(crate) const EVENTS_PER_SECOND: u32 = 2_000;
/// Events that may come at once: what a feed holds.
const BURST: u32 = 1_000;
/// Largest event, in bytes: as large as a page of text.
pub const EVENT_BYTES_MAX: usize = 64 << 10;
/// Subscriptions whose dropped events are counted; those of others are dropped all the same.
const COUNTED_SUBSCRIPTIONS_MAX: usize = 64;
/// Longest id of a subscription that is kept, in bytes.
const ID_BYTES_MAX: usize = 256;

/// A token bucket, and what was dropped since the last event of each subscription.
#[derive(Debug, Default)]
pub struct EventRateLimiter {
    full_at: MonotonicTime,
    dropped: HashMap<String, u64>,
}

impl EventRateLimiter {
    /// An event came under the server's id of a subscription. How many of the same were dropped before it;
    /// `None` when it is dropped, too.
    pub fn admit(&mut self, id: &str, bytes: usize, now: MonotonicTime) -> Option<u64> {
        let each = Duration::from_secs(1) / EVENTS_PER_SECOND;
        let next = now.max(self.full_at) + each;
        if bytes > EVENT_BYTES_MAX
            || id.len() > ID_BYTES_MAX
            || next.duration_since(now) > each * BURST
        {
            self.count_dropped(id);
            return None;
        }
        self.full_at = next;
        Some(self.dropped.remove(id).unwrap_or_default())
    }

    fn count_dropped(&mut self, id: &str) {
        if let Some(missed) = self.dropped.get_mut(id) {
            *missed = missed.saturating_add(1);
        } else if self.dropped.len() < COUNTED_SUBSCRIPTIONS_MAX && id.len() <= ID_BYTES_MAX {
            self.dropped.insert(id.to_owned(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_the_rate_and_what_is_lost_is_told() {
        let (mut flow, mut taken, mut missed) = (EventRateLimiter::default(), 0_u64, 0);
        for micros in (0..2_000_000).step_by(10) {
            let now = MonotonicTime::new(Duration::from_micros(micros));
            if let Some(lost) = flow.admit("a", 100, now) {
                (taken, missed) = (taken + 1, missed + lost);
            }
        }
        assert!((4_900..=5_001).contains(&taken), "{taken}");
        let later = MonotonicTime::new(Duration::from_secs(3));
        missed += flow.admit("a", 100, later).unwrap();
        assert_eq!(
            taken + missed,
            200_000,
            "each event is taken or told as lost"
        );
    }

    #[test]
    fn what_is_too_large_is_lost_to_its_own_subscription_only() {
        let mut flow = EventRateLimiter::default();
        let now = MonotonicTime::default();
        assert_eq!(flow.admit("a", EVENT_BYTES_MAX + 1, now), None);
        assert_eq!(flow.admit("b", 1, now), Some(0));
        assert_eq!(flow.admit("a", EVENT_BYTES_MAX, now), Some(1));
        for other in 0..1_000 {
            assert_eq!(
                flow.admit(&other.to_string(), EVENT_BYTES_MAX + 1, now),
                None
            );
        }
        assert!(flow.dropped.len() <= COUNTED_SUBSCRIPTIONS_MAX);
    }
}
