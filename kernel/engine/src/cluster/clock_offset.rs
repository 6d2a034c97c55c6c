//! Estimates the offset of a peer's wall clock.

use std::collections::VecDeque;

/// Samples stored: with one every few seconds, those of the last minute. The one with the shortest round trip counts,
/// since the peer read its clock somewhere within it.
const SAMPLES_MAX: usize = 8;

/// With a larger offset, grants expire too early and denials too late.
pub(crate) const SKEW_MAX_MS: u64 = 2000;

/// How far two clocks may drift apart while samples are stored. Samples that differ by more were taken before and
/// after one of the clocks was set.
const DRIFT_MS: u64 = 100;

/// Longest round trip of a usable sample.
const ROUND_TRIP_MAX_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug)]
struct Sample {
    offset_ms: i64,
    round_trip_ms: u64,
}

/// The last samples of one link.
#[derive(Debug, Default)]
pub struct ClockOffsetEstimator(VecDeque<Sample>);

/// The estimate of the peer's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerClock {
    /// The peer's clock less ours.
    pub offset_ms: i64,
    /// The error of the estimate, in either direction.
    pub error_ms: u64,
}

impl ClockOffsetEstimator {
    /// Adds a sample: our wall clock at the request, the round trip by a monotonic clock, and the peer's wall clock.
    pub fn add_sample(&mut self, sent_ms: u64, round_trip_ms: u64, theirs_ms: u64) {
        if round_trip_ms > ROUND_TRIP_MAX_MS {
            return;
        }
        let midpoint_ms = sent_ms.saturating_add(round_trip_ms / 2);
        let sample = Sample {
            offset_ms: clamped_difference(theirs_ms, midpoint_ms),
            round_trip_ms,
        };
        self.0.retain(|older| older.is_consistent_with(&sample));
        if self.0.len() >= SAMPLES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// The current estimate.
    #[must_use]
    pub fn estimate(&self) -> Option<PeerClock> {
        let best = self.0.iter().min_by_key(|sample| sample.round_trip_ms)?;
        Some(PeerClock {
            offset_ms: best.offset_ms,
            error_ms: best.round_trip_ms.div_ceil(2),
        })
    }
}

impl Sample {
    /// False when one of the clocks was set between the two samples.
    fn is_consistent_with(&self, other: &Self) -> bool {
        let difference = self.offset_ms.abs_diff(other.offset_ms);
        difference <= self.round_trip_ms.div_ceil(2) + other.round_trip_ms.div_ceil(2) + DRIFT_MS
    }
}

/// A wrong clock must not cause a failure: the difference saturates.
fn clamped_difference(theirs_ms: u64, ours_ms: u64) -> i64 {
    let difference = i128::from(theirs_ms) - i128::from(ours_ms);
    let limit = i128::from(i64::MAX);
    i64::try_from(difference.clamp(-limit, limit)).unwrap_or(i64::MAX)
}

impl PeerClock {
    /// The offset from two clocks at the same moment.
    #[must_use]
    pub fn from_clocks(theirs_ms: u64, ours_ms: u64, error_ms: u64) -> Self {
        Self {
            offset_ms: clamped_difference(theirs_ms, ours_ms),
            error_ms,
        }
    }

    /// True when the two clocks certainly differ by more than [`SKEW_MAX_MS`].
    #[must_use]
    pub fn is_skewed(self) -> bool {
        let difference = self.offset_ms.unsigned_abs();
        difference.saturating_sub(self.error_ms) > SKEW_MAX_MS
    }

    /// The peer's clock at this time of our clock.
    #[must_use]
    pub fn to_peer_ms(self, ours_ms: u64) -> u64 {
        ours_ms.saturating_add_signed(self.offset_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_round_trip_of_recent_samples_counts() {
        let mut clock = ClockOffsetEstimator::default();
        assert_eq!(clock.estimate(), None);
        clock.add_sample(1000, 100, 3050);
        let (offset_ms, error_ms) = (2000, 50);
        let first = PeerClock {
            offset_ms,
            error_ms,
        };
        assert_eq!(clock.estimate(), Some(first));
        clock.add_sample(2000, 400, 4300);
        assert_eq!(clock.estimate(), Some(first));
        assert_eq!(first.to_peer_ms(5000), 7000);
        for n in 0..SAMPLES_MAX as u64 {
            clock.add_sample(n, 300, n + 150 + 1900);
        }
        assert_eq!(clock.estimate().unwrap().offset_ms, 1900);
    }

    /// FEDERATION, clocks: the first answer after it tells that a clock was set, however short the ways before.
    #[test]
    fn samples_before_a_clock_change_are_dropped() {
        let mut clock = ClockOffsetEstimator::default();
        for n in 0..SAMPLES_MAX as u64 {
            clock.add_sample(1000 * n, 2, 1000 * n + 1);
        }
        clock.add_sample(9000, 40, 9020 + 60_000);
        assert_eq!(clock.estimate().unwrap().offset_ms, 60_000);
        clock.add_sample(10_000, 40, 10_020);
        assert_eq!(clock.estimate().unwrap().offset_ms, 0);
    }

    /// No clock and no way makes an arithmetic mistake, and a way that is too long teaches nothing.
    #[test]
    fn extreme_clocks_do_not_overflow() {
        let mut clock = ClockOffsetEstimator::default();
        clock.add_sample(0, ROUND_TRIP_MAX_MS + 1, 5);
        assert_eq!(clock.estimate(), None);
        clock.add_sample(0, 0, u64::MAX);
        assert_eq!(clock.estimate().unwrap().to_peer_ms(u64::MAX), u64::MAX);
        let mut behind = ClockOffsetEstimator::default();
        behind.add_sample(u64::MAX, 9, 0);
        assert_eq!(behind.estimate().unwrap().to_peer_ms(7), 0);
    }
}
