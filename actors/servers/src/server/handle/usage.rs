//! The use that callers make of a server or an instance: decides when it may be stopped.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::servers::supervision::GenerationUsage;

use super::{ServerHandle, ms};
use mgp_runtime::time::monotonic_now;

impl ServerHandle {
    /// Records a use by a caller.
    pub(in crate::server) fn record_use(&self) {
        let now = ms(monotonic_now().since_start());
        // Most calls write nothing, so that threads do not contend for it.
        if self.last_used_ms.load(Ordering::Relaxed) != now {
            self.last_used_ms.store(now, Ordering::Relaxed);
        }
        if !self.was_called.load(Ordering::Relaxed) {
            self.was_called.store(true, Ordering::Relaxed);
        }
    }

    /// Records how long a start took, until its lists were visible.
    pub(in crate::server) fn record_start(&self, took: Duration) {
        let mut last = self
            .last_start
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *last = Some(took);
    }

    /// How long the last start took.
    pub(super) fn last_start(&self) -> Option<Duration> {
        *self
            .last_start
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the use of an earlier generation.
    pub(in crate::server) fn reset_use(&self) {
        self.record_use();
        self.was_called.store(false, Ordering::Relaxed);
    }

    /// The time of the last use.
    pub(in crate::server) fn last_used(&self) -> Duration {
        Duration::from_millis(self.last_used_ms.load(Ordering::Relaxed))
    }

    /// True if it is starting, has waiting or in-flight calls, or has subscriptions.
    pub(in crate::server) fn is_in_use(&self) -> bool {
        let starts = matches!(
            self.state(),
            LifecycleState::Registered | LifecycleState::Connecting
        );
        let link = self.link.get();
        let busy = link.is_some_and(|link| link.in_flight() > 0 || link.has_subscriptions());
        starts || busy || self.waiting_calls.taken_count() > 0
    }

    /// Measures the use of the current generation.
    pub(in crate::server) fn measure_usage(&self) -> GenerationUsage {
        let link = self.link.get();
        let is_in_use = self.is_in_use()
            || self.has_instances()
            || link.as_ref().is_some_and(|link| link.has_open_work());
        if is_in_use {
            self.record_use();
        }
        GenerationUsage {
            is_in_use,
            last_used: MonotonicTime::new(self.last_used()),
            was_called: self.was_called.load(Ordering::Relaxed),
            declares_state: link.is_some_and(|link| link.declares_state()),
        }
    }
}
