//! The buckets of a latency histogram.

use std::time::Duration;

use crate::clock::to_micros_rounded_up;

/// Upper bounds, in microseconds: the kernel's own overhead is below the first, a call of a local server below the
/// fourth, and what takes more than a minute waits for a person.
pub const BOUNDS_US: [u64; 14] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
    15_000_000, 60_000_000,
];

/// Buckets of a histogram: one for each bound, and one for values above all bounds.
pub const BUCKET_COUNT: usize = BOUNDS_US.len() + 1;

/// The bucket of a duration: a bound belongs to its own bucket, as in Prometheus (`le`).
#[must_use]
pub fn bucket_index(time: Duration) -> usize {
    let micros = to_micros_rounded_up(time);
    BOUNDS_US.partition_point(|bound| *bound < micros)
}

/// A bound in seconds.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "a time in microseconds is far below 2^53"
)]
pub(crate) fn micros_to_seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// A snapshot of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    /// The number of values in each bucket; not cumulative.
    pub buckets: [u64; BUCKET_COUNT],
    /// The sum of all values, in microseconds.
    pub sum_us: u64,
}

impl LatencyHistogram {
    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0066: a time at a bound is within it, a nanosecond more is not.
    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        for (at, bound) in BOUNDS_US.into_iter().enumerate() {
            let time = Duration::from_micros(bound);
            assert_eq!(bucket_index(time), at, "{bound}");
            assert_eq!(
                bucket_index(time + Duration::from_nanos(1)),
                at + 1,
                "{bound}"
            );
        }
        assert_eq!(bucket_index(Duration::ZERO), 0);
        assert_eq!(bucket_index(Duration::MAX), BUCKET_COUNT - 1);
        assert!(BOUNDS_US.is_sorted());
    }
}
