//! Requests by method.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use mgp_engine::calls::telemetry::families::{MetricFamily, MetricKind};
use mgp_runtime::Counter;

/// Counts of requests. Bounded, because only methods with a route are counted.
#[derive(Debug, Default)]
pub(crate) struct RequestCounts(RwLock<BTreeMap<Box<str>, Counter>>);

impl RequestCounts {
    /// Counts a request of a method that has a route.
    pub(crate) fn increment(&self, method: &str) {
        {
            let counts = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = counts.get(method) {
                return count.increment();
            }
        }
        let mut counts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        counts.entry(method.into()).or_default().increment();
    }

    pub(crate) fn family(&self) -> MetricFamily {
        let mut family = MetricFamily::new(
            "mgp_requests",
            MetricKind::Counter,
            "Requests of agents, of other nodes and of the operator, by method.",
        );
        let counts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for (method, count) in &*counts {
            family.add_point(&[("method", method)], count.get());
        }
        family
    }
}
