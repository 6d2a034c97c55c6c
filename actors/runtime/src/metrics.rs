//! Counts that any thread adds to without waiting, and a reader sums up now and then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mgp_engine::calls::telemetry::latency::{BUCKETS, LatencyCounts, bucket};
use mgp_engine::clock::micros;

/// A number that only grows, from the kernel's start on.
#[derive(Debug, Default)]
pub struct GrowingCount(AtomicU64);

impl GrowingCount {
    /// Nothing counted yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// One more.
    pub fn one_more(&self) {
        self.more(1);
    }

    /// So many more.
    pub fn more(&self, many: u64) {
        self.0.fetch_add(many, Ordering::Relaxed);
    }

    /// How many there are.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Times, counted in buckets.
#[derive(Debug)]
pub struct Latencies {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// Nothing measured yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum_us: AtomicU64::new(0),
        }
    }

    /// Takes in a time: two additions, and no lock.
    pub fn record(&self, time: Duration) {
        self.buckets[bucket(time)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(micros(time), Ordering::Relaxed);
    }

    /// How many there are of each. What is recorded meanwhile may be in one of the numbers and not yet in
    /// another.
    #[must_use]
    pub fn read(&self) -> LatencyCounts {
        LatencyCounts {
            buckets: std::array::from_fn(|at| self.buckets[at].load(Ordering::Relaxed)),
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0066: nothing that is recorded by many at once is lost.
    #[test]
    fn what_many_threads_record_is_all_there() {
        let times = Latencies::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|n| times.record(Duration::from_micros(n))));
            }
        });
        let read = times.read();
        assert_eq!(read.count(), 4_000);
        assert_eq!(read.sum_us, 4 * 999 * 1000 / 2);
        assert_eq!(read.buckets[0], 4 * 251);
    }
}
