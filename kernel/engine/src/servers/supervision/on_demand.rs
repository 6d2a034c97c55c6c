//! Servers that run on demand: a call starts one, and it is stopped when it has been idle for a while. While it
//! sleeps, the lists of its last run stay published.

use std::time::Duration;

use super::{PlannedRetry, StopOrder, Supervision, SupervisionEffect};
use crate::clock::MonotonicTime;
use crate::servers::lifecycle::{LifecycleState, TransitionReason};
use crate::servers::restart::{RestartVerdict, ServerExit};
use crate::servers::spec::{IdleStop, StartMode};

/// How long a generation that nobody has called runs: it was started for its lists, and has no state to lose. Short,
/// so that many servers that are started once do not stay in memory together.
const UNUSED_LIMIT: Duration = Duration::from_secs(10);

/// A generation in use is measured again after a tenth of its idle limit, within these bounds.
const MEASURE_INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The use that callers make of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationUsage {
    /// Something is open that its end would cut off: a call, a subscription, a task, a callback.
    pub is_in_use: bool,
    /// The last moment at which it was in use, or its start.
    pub last_used: MonotonicTime,
    /// It was called, so it may have state.
    pub was_called: bool,
    /// It declares that it has state.
    pub declares_state: bool,
}

impl IdleStop {
    /// How long the generation may be idle; `None` if it is never stopped for that.
    fn limit_for(self, usage: GenerationUsage) -> Option<Duration> {
        match self {
            Self::After(limit) | Self::UnlessStateful(limit) if !usage.was_called => {
                Some(limit.min(UNUSED_LIMIT))
            }
            Self::Never if !usage.was_called => Some(UNUSED_LIMIT),
            Self::After(limit) => Some(limit),
            Self::UnlessStateful(limit) => (!usage.declares_state).then_some(limit),
            Self::Never => None,
        }
    }

    fn unused_limit(self) -> Duration {
        match self {
            Self::After(limit) | Self::UnlessStateful(limit) => limit.min(UNUSED_LIMIT),
            Self::Never => UNUSED_LIMIT,
        }
    }
}

impl Supervision {
    /// True if it runs without a call: always, or once for its lists.
    pub(super) fn should_run(&self) -> bool {
        match self.config.start {
            StartMode::Kernel => true,
            StartMode::OnDemand(_) => !self.has_offer,
            StartMode::Manual => false,
        }
    }

    /// True if it does not run, or is ending, and a call starts it. Not after another order than an idle stop, nor
    /// while it is parked.
    pub(super) fn starts_on_call(&self) -> bool {
        let is_away = match self.lifecycle.state() {
            LifecycleState::Registered
            | LifecycleState::Draining
            | LifecycleState::Disconnected
            | LifecycleState::Error => true,
            LifecycleState::Connecting | LifecycleState::Connected | LifecycleState::Restarting => {
                false
            }
        };
        self.config.start.is_on_demand()
            && is_away
            && !self.is_stopped_by_order()
            && !self.is_parked
    }

    fn is_stopped_by_order(&self) -> bool {
        self.stop_requested && self.stop_reason != Some(TransitionReason::IdleTimeout)
    }

    /// The reason of a server that waits for a call.
    pub(super) fn describe_sleep(&self) -> Option<String> {
        let is_asleep = matches!(
            self.lifecycle.state(),
            LifecycleState::Registered | LifecycleState::Disconnected
        );
        (is_asleep && self.starts_on_call() && !self.will_start())
            .then(|| "sleeping: a call starts it".to_owned())
    }

    pub(super) fn describe_stop(&self, why: TransitionReason) -> String {
        if why == TransitionReason::IdleTimeout && self.config.start.is_on_demand() {
            "sleeping: a call starts it".to_owned()
        } else {
            format!("stopped ({why})")
        }
    }

    /// Withdraws its lists, unless a call starts it: callers then find its tools.
    pub(super) fn withdraw_offer(&mut self) {
        if !self.starts_on_call() {
            self.effects.push(SupervisionEffect::WithdrawOffer);
        }
    }

    pub(super) fn handle_restored_offer(&mut self, now: MonotonicTime) {
        if !self.has_offer && self.config.start.is_on_demand() {
            self.has_offer = true;
            self.publish(None, now);
        }
    }

    pub(super) fn change_start_mode(&mut self, start: StartMode, now: MonotonicTime) {
        let was_asleep = self.describe_sleep().is_some();
        self.config.start = start;
        let is_away = matches!(
            self.lifecycle.state(),
            LifecycleState::Registered | LifecycleState::Disconnected | LifecycleState::Error
        ) && !self.is_running;
        if is_away && !self.is_stopped_by_order() && !self.is_parked && self.should_run() {
            return self.start(false, now);
        }
        self.publish(None, now);
        if was_asleep {
            self.withdraw_offer();
        }
        self.plan_usage_check(now);
    }

    /// True if the call starts it, or is sent to the generation that follows the one that ends.
    pub(super) fn try_wake(&mut self, now: MonotonicTime) -> bool {
        let can_start = match self.lifecycle.state() {
            LifecycleState::Registered | LifecycleState::Disconnected => !self.is_running,
            LifecycleState::Draining => !self.start_after_stop,
            LifecycleState::Connecting
            | LifecycleState::Connected
            | LifecycleState::Error
            | LifecycleState::Restarting => false,
        };
        let wakes = can_start && self.starts_on_call();
        if wakes {
            self.start(false, now);
        }
        wakes
    }

    /// Calls start a failed server, not the restart policy, once its lists are known. The policy still limits how
    /// often, and whether at all.
    pub(super) fn defer_restart(
        &mut self,
        exit: &ServerExit,
        verdict: RestartVerdict,
        now: MonotonicTime,
    ) -> RestartVerdict {
        if !self.config.start.is_on_demand() {
            return verdict;
        }
        let waits_for_call = match (&verdict, exit) {
            (RestartVerdict::StayStopped, ServerExit::Failed(_) | ServerExit::Rejected(_)) => {
                self.is_parked = true;
                false
            }
            (RestartVerdict::StayStopped, ServerExit::Clean) => true,
            (
                RestartVerdict::Restart { .. },
                ServerExit::Clean | ServerExit::Failed(_) | ServerExit::Rejected(_),
            ) => self.has_offer,
            (_, ServerExit::SessionEnded(_)) | (RestartVerdict::Park { .. }, _) => false,
        };
        if waits_for_call {
            self.retry = Some(PlannedRetry {
                ended_at: now,
                due_at: MonotonicTime::LATEST,
            });
            RestartVerdict::StayStopped
        } else {
            verdict
        }
    }

    /// Plans the first measurement of the current generation.
    pub(super) fn plan_usage_check(&mut self, now: MonotonicTime) {
        if let StartMode::OnDemand(idle_stop) = self.config.start
            && self.is_running
        {
            self.effects.push(SupervisionEffect::MeasureUsageAt(
                now + idle_stop.unused_limit(),
            ));
        }
    }

    /// Stops the generation if it was idle long enough; else plans the next measurement.
    pub(super) fn handle_usage(
        &mut self,
        generation: u64,
        usage: GenerationUsage,
        now: MonotonicTime,
    ) {
        let StartMode::OnDemand(idle_stop) = self.config.start else {
            return;
        };
        let is_connected = self.lifecycle.state() == LifecycleState::Connected;
        if !self.is_current_generation(generation) || !is_connected {
            return;
        }
        // Without a limit it stays until another order.
        let Some(limit) = idle_stop.limit_for(usage) else {
            return;
        };
        let due_at = usage.last_used + limit;
        if usage.is_in_use || !self.is_only_generation() {
            let (shortest, longest) = MEASURE_INTERVAL;
            let next_at = now + (limit / 10).clamp(shortest, longest);
            self.effects
                .push(SupervisionEffect::MeasureUsageAt(next_at));
        } else if now < due_at {
            self.effects.push(SupervisionEffect::MeasureUsageAt(due_at));
        } else {
            self.request_stop(StopOrder::from(TransitionReason::IdleTimeout), now);
        }
    }
}

#[cfg(test)]
mod tests;
