//! How far the wall clock of a peer is from ours.

use std::collections::VecDeque;

/// Measurements kept: with one every few seconds, those of the last minute. The one with the shortest
/// way counts, since the answer was written somewhere on that way.
const KEPT: usize = 8;

/// Clocks that differ by more make what is allowed end early and what is denied end late.
pub const CLOCKS_DIFFER_MS: u64 = 2000;

/// By so much two clocks drift apart while measurements are kept. Those that differ by more were made before and
/// after one of them was set.
const DRIFT_MS: u64 = 100;

/// Longest way of a question and its answer from which anything is learnt.
const LONGEST_WAY_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug)]
struct Sample {
    offset_ms: i64,
    way_ms: u64,
}

/// The last measurements of one link.
#[derive(Debug, Default)]
pub struct ClockOffset(VecDeque<Sample>);

/// What is known of the peer's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredClock {
    /// The peer's clock less ours.
    pub offset_ms: i64,
    /// How far that may be off, either way.
    pub error_ms: u64,
}

impl ClockOffset {
    /// Takes an answer: our wall clock when it was asked, the time until the answer was here, which is
    /// measured by a clock that nobody sets, and the peer's wall clock.
    pub fn measured(&mut self, asked_ms: u64, way_ms: u64, theirs_ms: u64) {
        if way_ms > LONGEST_WAY_MS {
            return;
        }
        let at_answer = asked_ms.saturating_add(way_ms / 2);
        let sample = Sample {
            offset_ms: difference(theirs_ms, at_answer),
            way_ms,
        };
        self.0
            .retain(|older| older.is_of_the_same_clocks_as(&sample));
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// What is known by now.
    #[must_use]
    pub fn known(&self) -> Option<MeasuredClock> {
        let best = self.0.iter().min_by_key(|sample| sample.way_ms)?;
        Some(MeasuredClock {
            offset_ms: best.offset_ms,
            error_ms: best.way_ms.div_ceil(2),
        })
    }
}

impl Sample {
    /// False when one of the clocks was set between the two.
    fn is_of_the_same_clocks_as(&self, other: &Self) -> bool {
        let apart = self.offset_ms.abs_diff(other.offset_ms);
        apart <= self.way_ms.div_ceil(2) + other.way_ms.div_ceil(2) + DRIFT_MS
    }
}

/// A wrong clock is no reason to fail: what does not fit is as far off as can be told.
fn difference(theirs_ms: u64, ours_ms: u64) -> i64 {
    let difference = i128::from(theirs_ms) - i128::from(ours_ms);
    let far = i128::from(i64::MAX);
    i64::try_from(difference.clamp(-far, far)).unwrap_or(i64::MAX)
}

impl MeasuredClock {
    /// Of two clocks at the same moment.
    #[must_use]
    pub fn between(theirs_ms: u64, ours_ms: u64, error_ms: u64) -> Self {
        Self {
            offset_ms: difference(theirs_ms, ours_ms),
            error_ms,
        }
    }

    /// True when the two clocks certainly differ by so much that it matters: [`CLOCKS_DIFFER_MS`].
    #[must_use]
    pub fn differs(self) -> bool {
        let apart = self.offset_ms.unsigned_abs();
        apart.saturating_sub(self.error_ms) > CLOCKS_DIFFER_MS
    }

    /// The peer's clock at a moment of ours.
    #[must_use]
    pub fn theirs(self, ours_ms: u64) -> u64 {
        ours_ms.saturating_add_signed(self.offset_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_way_counts_and_old_ones_are_forgotten() {
        let mut clock = ClockOffset::default();
        assert_eq!(clock.known(), None);
        clock.measured(1000, 100, 3050);
        let (offset_ms, error_ms) = (2000, 50);
        let first = MeasuredClock {
            offset_ms,
            error_ms,
        };
        assert_eq!(clock.known(), Some(first));
        clock.measured(2000, 400, 4300);
        assert_eq!(clock.known(), Some(first));
        assert_eq!(first.theirs(5000), 7000);
        for n in 0..KEPT as u64 {
            clock.measured(n, 300, n + 150 + 1900);
        }
        assert_eq!(clock.known().unwrap().offset_ms, 1900);
    }

    /// FEDERATION, clocks: the first answer after it tells that a clock was set, however short the ways before.
    #[test]
    fn what_was_measured_before_a_clock_was_set_is_forgotten() {
        let mut clock = ClockOffset::default();
        for n in 0..KEPT as u64 {
            clock.measured(1000 * n, 2, 1000 * n + 1);
        }
        clock.measured(9000, 40, 9020 + 60_000);
        assert_eq!(clock.known().unwrap().offset_ms, 60_000);
        clock.measured(10_000, 40, 10_020);
        assert_eq!(clock.known().unwrap().offset_ms, 0);
    }

    /// No clock and no way makes an arithmetic mistake, and a way that is too long teaches nothing.
    #[test]
    fn the_wildest_clocks_are_far_and_nothing_else() {
        let mut clock = ClockOffset::default();
        clock.measured(0, LONGEST_WAY_MS + 1, 5);
        assert_eq!(clock.known(), None);
        clock.measured(0, 0, u64::MAX);
        assert_eq!(clock.known().unwrap().theirs(u64::MAX), u64::MAX);
        let mut behind = ClockOffset::default();
        behind.measured(u64::MAX, 9, 0);
        assert_eq!(behind.known().unwrap().theirs(7), 0);
    }
}
