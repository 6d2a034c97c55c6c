//! What a run of load came to.

use std::time::Duration;

use super::latency::Latencies;

/// The calls of a run, all of them answered with a result.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// How long each took.
    pub latencies: Latencies,
    /// How long all took together.
    pub elapsed: Duration,
}

impl Run {
    /// Calls a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.latencies.calls() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// A share of `total` for each call, in microseconds.
    #[must_use]
    pub fn per_call(&self, total: Duration) -> f64 {
        total.as_secs_f64() * 1e6 / (self.latencies.calls() as f64).max(1.0)
    }
}
