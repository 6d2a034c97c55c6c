//! Counters that any thread updates without waiting, and a reader sums up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mgp_engine::calls::telemetry::latency::{BUCKET_COUNT, LatencyHistogram, bucket_index};
use mgp_engine::clock::to_micros_rounded_up;

/// A counter since the kernel's start.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Starts at 0.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds a number.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The current value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of durations.
#[derive(Debug)]
pub struct LatencyRecorder {
    buckets: [AtomicU64; BUCKET_COUNT],
    sum_us: AtomicU64,
}

impl Default for LatencyRecorder {
    fn default() -> Self {
        Self::new()
    }
}

impl LatencyRecorder {
    /// Starts empty.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKET_COUNT],
            sum_us: AtomicU64::new(0),
        }
    }

    /// Adds a duration: two additions, and no lock.
    pub fn record(&self, time: Duration) {
        self.buckets[bucket_index(time)].fetch_add(1, Ordering::Relaxed);
        self.sum_us
            .fetch_add(to_micros_rounded_up(time), Ordering::Relaxed);
    }

    /// The current counts. A concurrent update may be in one of the numbers and not yet in another.
    #[must_use]
    pub fn snapshot(&self) -> LatencyHistogram {
        LatencyHistogram {
            buckets: std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed)),
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0066: concurrent updates are not lost.
    #[test]
    fn updates_of_many_threads_are_all_counted() {
        let times = LatencyRecorder::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|n| times.record(Duration::from_micros(n))));
            }
        });
        let read = times.snapshot();
        assert_eq!(read.count(), 4_000);
        assert_eq!(read.sum_us, 4 * 999 * 1000 / 2);
        assert_eq!(read.buckets[0], 4 * 251);
    }
}
