//! Rate limit for the events of a server.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::MonotonicTime;

/// Events per second: far more than a model or a person can read.
pub(crate) const EVENTS_PER_SECOND: u32 = 2_000;
/// Size of a burst: the capacity of a feed.
const BURST: u32 = 1_000;
/// Largest event, in bytes: a page of text.
pub const EVENT_BYTES_MAX: usize = 64 << 10;
/// Subscriptions whose dropped events are counted; those of further ones are only dropped.
const COUNTED_SUBSCRIPTIONS_MAX: usize = 64;
/// Longest id of a subscription, in bytes; events with longer ones are dropped.
const ID_BYTES_MAX: usize = 256;

/// A token bucket, with the number of dropped events since the last admitted one of each subscription.
#[derive(Debug, Default)]
pub struct EventRateLimiter {
    full_at: MonotonicTime,
    dropped: HashMap<String, u64>,
}

impl EventRateLimiter {
    /// Admits or drops an event with the server's id of a subscription. Returns how many events of the subscription were
    /// dropped before it; `None` if it is dropped, too.
    pub fn admit(&mut self, id: &str, bytes: usize, now: MonotonicTime) -> Option<u64> {
        let interval = Duration::from_secs(1) / EVENTS_PER_SECOND;
        let next = now.max(self.full_at) + interval;
        if bytes > EVENT_BYTES_MAX
            || id.len() > ID_BYTES_MAX
            || next.duration_since(now) > interval * BURST
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
    fn a_flood_is_limited_and_dropped_events_are_counted() {
        let (mut limiter, mut admitted, mut dropped) = (EventRateLimiter::default(), 0_u64, 0);
        for micros in (0..2_000_000).step_by(10) {
            let now = MonotonicTime::new(Duration::from_micros(micros));
            if let Some(before) = limiter.admit("a", 100, now) {
                (admitted, dropped) = (admitted + 1, dropped + before);
            }
        }
        assert!((4_900..=5_001).contains(&admitted), "{admitted}");
        let later = MonotonicTime::new(Duration::from_secs(3));
        dropped += limiter.admit("a", 100, later).unwrap();
        assert_eq!(
            admitted + dropped,
            200_000,
            "each event is admitted or counted as dropped"
        );
    }

    #[test]
    fn an_oversized_event_is_dropped_for_its_subscription_only() {
        let mut limiter = EventRateLimiter::default();
        let now = MonotonicTime::default();
        assert_eq!(limiter.admit("a", EVENT_BYTES_MAX + 1, now), None);
        assert_eq!(limiter.admit("b", 1, now), Some(0));
        assert_eq!(limiter.admit("a", EVENT_BYTES_MAX, now), Some(1));
        for other in 0..1_000 {
            assert_eq!(
                limiter.admit(&other.to_string(), EVENT_BYTES_MAX + 1, now),
                None
            );
        }
        assert!(limiter.dropped.len() <= COUNTED_SUBSCRIPTIONS_MAX);
    }
}
