//! How long calls took.

use std::time::Duration;

/// The times of the calls of a run.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    nanos: Vec<u32>,
}

impl Latencies {
    /// Room for as many calls without a move.
    #[must_use]
    pub fn with_room(calls: u64) -> Self {
        let room = usize::try_from(calls).expect("calls are counted in memory");
        Self {
            nanos: Vec::with_capacity(room),
        }
    }

    /// Adds a call; more than four seconds count as four.
    pub fn add(&mut self, took: Duration) {
        self.nanos
            .push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
    }

    /// Adds the calls of another client.
    pub fn join(&mut self, other: &Self) {
        self.nanos.extend_from_slice(&other.nanos);
    }

    /// How many calls there were.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.nanos.len() as u64
    }

    /// The time that `percent` of the calls stayed within, in microseconds; 0 without calls.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> f64 {
        let mut sorted = self.nanos.clone();
        sorted.sort_unstable();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
        let at = sorted.get(rank.saturating_sub(1));
        at.map_or(0.0, |&nanos| f64::from(nanos) / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let mut latencies = Latencies::default();
        (1..=100).for_each(|n| latencies.add(Duration::from_micros(n)));
        assert!((latencies.percentile(50.0) - 50.0).abs() < 1e-9);
        assert!((latencies.percentile(99.0) - 99.0).abs() < 1e-9);
        assert!((Latencies::default().percentile(50.0)).abs() < 1e-9);
    }
}
