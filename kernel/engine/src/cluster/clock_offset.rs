//! How far the wall clock of a peer is from ours.

use std::collections::VecDeque;

/// Measurements kept: with one every few seconds, those of the last minute. The one with the shortest
/// way counts, since the answer was written somewhere on that way.
const KEPT: usize = 8;

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
        // A wrong clock is no reason to fail: what does not fit is as far off as can be told.
        let at_answer = asked_ms.saturating_add(way_ms / 2);
        let difference = i128::from(theirs_ms) - i128::from(at_answer);
        let far = i128::from(i64::MAX);
        let offset_ms = i64::try_from(difference.clamp(-far, far)).unwrap_or(i64::MAX);
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Sample { offset_ms, way_ms });
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

impl MeasuredClock {
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
        clock.measured(2000, 400, 9000);
        assert_eq!(clock.known(), Some(first));
        assert_eq!(first.theirs(5000), 7000);
        for n in 0..KEPT as u64 {
            clock.measured(n, 300, n + 150 - 100);
        }
        assert_eq!(clock.known().unwrap().offset_ms, -100);
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
