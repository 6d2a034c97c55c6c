//! Decides when a server is started, stopped and restarted (MGP §11.2, §11.5), from operators' orders,
//! configuration changes, exits and the restart config.

pub mod backoff;
mod exits;
mod on_demand;
mod rolling;
pub mod session_loss;

use std::time::Duration;

use crate::clock::MonotonicTime;
use crate::servers::lifecycle::{
    IllegalTransition, ImplausibleTransition, Lifecycle, LifecycleEvent, LifecycleState,
    Transition, TransitionReason, parse_reported_transition,
};
use crate::servers::restart::{RestartTracker, RestartVerdict, ServerExit};
use crate::servers::spec::{RestartConfig, ServerSpec, ServerTransport, StartMode};

pub use self::on_demand::GenerationUsage;
pub use self::rolling::RollStatus;
use self::rolling::Rolling;

/// Longest step of a process's shutdown during kernel shutdown: two of them and the last calls must fit into
/// the kernel's two seconds.
const SHUTDOWN_STEP_MAX: Duration = Duration::from_millis(300);

/// Shortest time from a failed attempt to the next one that a call causes.
const CALL_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// An order to stop a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopOrder {
    /// The reason.
    pub reason: TransitionReason,
    /// How long in-flight calls may take, if the order sets it.
    pub drain_timeout: Option<Duration>,
}

impl StopOrder {
    /// How long each step of the process's shutdown may take: at most [`SHUTDOWN_STEP_MAX`] if the kernel
    /// shuts down and the server has not drained.
    #[must_use]
    pub fn step_timeout(self, configured: Duration, drained: bool) -> Duration {
        if self.reason == TransitionReason::KernelShutdown && !drained {
            configured.min(SHUTDOWN_STEP_MAX)
        } else {
            configured
        }
    }
}

impl From<TransitionReason> for StopOrder {
    fn from(reason: TransitionReason) -> Self {
        Self {
            reason,
            drain_timeout: None,
        }
    }
}

/// The parts of a server's configuration that decide when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupervisionConfig {
    /// When it runs.
    pub start: StartMode,
    /// The policy after an unordered exit.
    pub restart: RestartConfig,
    /// It is remote, and may be unreachable.
    pub is_remote: bool,
    /// It is reached at a URL and may be unavailable for any time: it is never parked, and a call triggers an
    /// attempt.
    pub is_at_url: bool,
    /// Two generations may run at once.
    pub rolling: bool,
}

impl SupervisionConfig {
    fn restart_tracker(&self) -> RestartTracker {
        RestartTracker::new(self.restart).with_persistence(self.is_at_url)
    }
}

impl From<&ServerSpec> for SupervisionConfig {
    fn from(spec: &ServerSpec) -> Self {
        Self {
            start: spec.start,
            restart: spec.restart,
            is_remote: matches!(
                spec.transport,
                ServerTransport::Http { .. } | ServerTransport::Node(_)
            ),
            is_at_url: matches!(spec.transport, ServerTransport::Http { .. }),
            rolling: spec.rolling,
        }
    }
}

/// The events of a supervisor. Generations are numbered; an event of an earlier one is late and
/// changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SupervisionInput {
    /// Start, by the kernel or an operator; an operator's start resets the count of restarts.
    Start {
        /// Requested by an operator.
        by_operator: bool,
    },
    /// Drain and stop.
    Stop(StopOrder),
    /// Drain, stop, and start again.
    Restart,
    /// Replace the generation without an interruption.
    Roll,
    /// Its configuration changed.
    Reconfigured(SupervisionConfig),
    /// Only the times of its starts and idle stops changed.
    StartModeChanged(StartMode),
    /// The lists of its last run are published: it need not run to be listed.
    OfferRestored,
    /// The usage of a generation was measured.
    UsageMeasured(u64, GenerationUsage),
    /// A generation has completed its handshake, and its first lists are published.
    Connected(u64),
    /// The server reports a transition over the connection of its generation.
    Reported {
        /// The earlier state.
        from: String,
        /// The new state.
        to: String,
        /// The reason.
        reason: String,
    },
    /// This generation exceeded a resource limit, with a description.
    LimitExceeded(u64, String),
    /// A generation ended, with a description.
    Ended(u64, ServerExit, String),
    /// The backoff after this generation has elapsed.
    RetryDue(u64),
    /// A call waits for it.
    CallWaiting,
    /// When the [`RestartLimiter`](super::restart::RestartLimiter) permits the requested start.
    PermitGranted(MonotonicTime),
}

/// The published state of the supervision of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisionStatus {
    /// Its state.
    pub state: LifecycleState,
    /// The reason.
    pub reason: String,
    /// When the state was entered.
    pub since: MonotonicTime,
    /// Restarts within the window.
    pub restarts: u32,
    /// It will start without an order: for the first time, or after it has stopped.
    pub will_start: bool,
    /// It does not run, and a call starts it.
    pub starts_on_call: bool,
    /// The number of the last generation that failed; 0 if none has.
    pub failed_generation: u64,
    /// It is remote, and its last generation ended because it was unreachable or disconnected.
    pub is_unreachable: bool,
    /// Its last stop was ordered.
    pub stop_requested: bool,
    /// Its last rolling restart.
    pub roll: RollStatus,
}

/// The effects, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SupervisionEffect {
    /// Start the generation of this number, replacing a running one.
    StartGeneration(u64),
    /// Start the replacement of this number while the current generation runs.
    StartReplacement(u64),
    /// Terminate the replacement as failed: it counts as retiring until it has ended.
    FailReplacement(String),
    /// The replacement has ended.
    ReleaseReplacement,
    /// The replacement failed, with a reason: the current generation keeps running under the entry it was started
    /// with.
    RollFailed(String),
    /// The replacement becomes current: give calls its connection, then stop the former generation.
    SwitchToReplacement(StopOrder),
    /// The current generation is gone; the replacement becomes current.
    PromoteReplacement,
    /// Apply the usual drain timeout to the retiring generation.
    HurryRetiring,
    /// The retiring generation has ended.
    ReleaseRetiring,
    /// Stop the generation.
    StopGeneration(StopOrder),
    /// Terminate the generation as failed.
    FailGeneration(String),
    /// The generation has ended: release its resources.
    ReleaseGeneration,
    /// End the instances of agents.
    EndInstances(StopOrder),
    /// Give calls the connection.
    AcceptCalls,
    /// Take the connection from calls.
    SuspendCalls,
    /// Report a transition.
    Announce(Transition),
    /// The event is illegal in that state because it crossed another one.
    Ignore(IllegalTransition),
    /// Publish this state.
    Publish(SupervisionStatus),
    /// Report that it is connected.
    NotifyConnected,
    /// Report that it no longer takes calls, or never will: the exit, its description, and the restart verdict.
    NotifyDisconnected(ServerExit, String, Option<RestartVerdict>),
    /// Withdraw its tools, resources and prompts.
    WithdrawOffer,
    /// Answer the pending stop requests.
    AnswerStopRequests,
    /// Send [`SupervisionInput::RetryDue`] at this time, and publish the time.
    RetryAt(MonotonicTime),
    /// Measure the usage of the current generation at this time, and send [`SupervisionInput::UsageMeasured`].
    MeasureUsageAt(MonotonicTime),
    /// Request a start permit, and send [`SupervisionInput::PermitGranted`].
    RequestPermit,
    /// The server reported an impossible transition.
    ReportImplausible(ImplausibleTransition),
}

/// Whether the next start needs a permit of the restart limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartPermit {
    /// The server does not fail repeatedly.
    NotNeeded,
    /// The permit was not requested yet.
    Needed,
    /// The permit was requested.
    Granted,
}

/// A planned start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlannedRetry {
    ended_at: MonotonicTime,
    due_at: MonotonicTime,
}

/// The supervision of one server.
#[derive(Clone, Debug)]
pub struct Supervision {
    config: SupervisionConfig,
    lifecycle: Lifecycle,
    restarts: RestartTracker,
    generations_started: u64,
    /// The number of the current generation.
    current: u64,
    /// The current generation has not ended.
    is_running: bool,
    stop_requested: bool,
    /// The reason of the last order.
    stop_reason: Option<TransitionReason>,
    /// The limit that the current generation exceeded and is stopped for.
    limit_exceeded: Option<String>,
    rolling: Rolling,
    start_after_stop: bool,
    permit: StartPermit,
    unreachable: bool,
    retry: Option<PlannedRetry>,
    /// Its lists are known, from this run of the kernel or an earlier one.
    has_offer: bool,
    /// Only an operator or the parking time starts it again.
    is_parked: bool,
    failed_generation: u64,
    /// The values of [`Self::will_start`] and [`Self::starts_on_call`] published last.
    published_starts: (bool, bool),
    effects: Vec<SupervisionEffect>,
}

impl Supervision {
    /// Supervises a server before its first start.
    #[must_use]
    pub fn new(config: SupervisionConfig, now: MonotonicTime) -> Self {
        let mut supervision = Self {
            config,
            lifecycle: Lifecycle::new(now),
            restarts: config.restart_tracker(),
            generations_started: 0,
            current: 0,
            is_running: false,
            stop_requested: false,
            stop_reason: None,
            limit_exceeded: None,
            rolling: Rolling::default(),
            start_after_stop: false,
            permit: StartPermit::NotNeeded,
            unreachable: false,
            retry: None,
            has_offer: false,
            is_parked: false,
            failed_generation: 0,
            published_starts: (false, false),
            effects: Vec::new(),
        };
        supervision.published_starts = supervision.planned_starts();
        supervision
    }

    /// Handles an event; returns the effects.
    pub fn handle(
        &mut self,
        event: SupervisionInput,
        now: MonotonicTime,
    ) -> Vec<SupervisionEffect> {
        match event {
            SupervisionInput::Start { by_operator } => self.start(by_operator, now),
            SupervisionInput::Stop(order) => self.stop(order, now),
            SupervisionInput::Restart => self.restart(now),
            SupervisionInput::Roll => self.handle_roll(now),
            SupervisionInput::Reconfigured(config) => self.reconfigure(config, now),
            SupervisionInput::StartModeChanged(start) => self.change_start_mode(start, now),
            SupervisionInput::OfferRestored => self.handle_restored_offer(now),
            SupervisionInput::UsageMeasured(generation, usage) => {
                self.handle_usage(generation, usage, now)
            }
            SupervisionInput::Connected(generation) => self.handle_connected(generation, now),
            SupervisionInput::Reported { from, to, reason } => {
                self.handle_reported(&from, &to, &reason, now);
            }
            SupervisionInput::LimitExceeded(generation, why) => {
                self.handle_over_limit(generation, why, now)
            }
            SupervisionInput::Ended(generation, exit, how) => {
                self.handle_exit(generation, exit, how, now)
            }
            SupervisionInput::RetryDue(generation) => self.handle_retry_due(generation, now),
            SupervisionInput::CallWaiting => self.handle_call(now),
            SupervisionInput::PermitGranted(permitted_at) => {
                self.handle_permit(permitted_at, now);
            }
        }
        std::mem::take(&mut self.effects)
    }

    fn will_start(&self) -> bool {
        let is_first_start =
            self.lifecycle.state() == LifecycleState::Registered && self.should_run();
        self.start_after_stop || is_first_start && !self.stop_requested
    }

    fn planned_starts(&self) -> (bool, bool) {
        (self.will_start(), self.starts_on_call())
    }

    /// True while events of this generation are handled.
    #[must_use]
    pub fn is_current_generation(&self, generation: u64) -> bool {
        self.is_running && self.current == generation && !self.stop_requested
    }

    /// The number of the current generation.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.current
    }

    /// Its published state, with this reason instead of that of the last transition.
    #[must_use]
    pub fn status(&self, reason: Option<String>, now: MonotonicTime) -> SupervisionStatus {
        SupervisionStatus {
            state: self.lifecycle.state(),
            reason: reason
                .or_else(|| self.describe_sleep())
                .unwrap_or_else(|| self.lifecycle.reason().to_owned()),
            since: self.lifecycle.entered_at(),
            restarts: self.restarts.count_in_window(now),
            will_start: self.will_start(),
            starts_on_call: self.starts_on_call(),
            failed_generation: self.failed_generation,
            is_unreachable: self.unreachable,
            stop_requested: self.stop_requested,
            roll: self.roll_status(),
        }
    }

    fn start(&mut self, by_operator: bool, now: MonotonicTime) {
        if by_operator {
            self.restarts.clear();
        }
        self.is_parked = false;
        match self.lifecycle.state() {
            LifecycleState::Registered | LifecycleState::Disconnected | LifecycleState::Error => {
                self.apply_event(LifecycleEvent::Start, None, now);
            }
            LifecycleState::Draining => {
                self.start_after_stop = true;
                return self.publish(None, now);
            }
            LifecycleState::Connecting | LifecycleState::Restarting if !self.is_running => {}
            LifecycleState::Connecting | LifecycleState::Connected | LifecycleState::Restarting => {
                return;
            }
        }
        self.stop_requested = false;
        self.start_generation(now);
    }

    fn stop(&mut self, order: StopOrder, now: MonotonicTime) {
        self.start_after_stop = false;
        self.request_stop(order, now);
    }

    fn restart(&mut self, now: MonotonicTime) {
        let order = StopOrder::from(TransitionReason::OperatorRequest);
        if self.is_running {
            self.stop_and_start_again(order, now)
        } else {
            self.effects.push(SupervisionEffect::EndInstances(order));
            self.start(true, now);
        }
    }

    fn reconfigure(&mut self, config: SupervisionConfig, now: MonotonicTime) {
        let previous = std::mem::replace(&mut self.config, config);
        self.restarts = config.restart_tracker();
        self.has_offer = false;
        if self.can_roll_to(&config) {
            return self.roll_to_config(previous, now);
        }
        let order = StopOrder::from(TransitionReason::ConfigurationChange);
        if self.is_running {
            return self.stop_and_start_again(order, now);
        }
        self.effects.push(SupervisionEffect::EndInstances(order));
        if self.should_run() || self.lifecycle.state() == LifecycleState::Error {
            self.start(true, now);
        } else if previous.start.is_on_demand() {
            self.publish(None, now);
            self.withdraw_offer();
        }
    }

    fn stop_and_start_again(&mut self, order: StopOrder, now: MonotonicTime) {
        self.start_after_stop = true;
        self.request_stop(order, now);
    }

    /// `start_after_stop` is set before, because waiting calls fail as soon as no start is planned.
    fn request_stop(&mut self, order: StopOrder, now: MonotonicTime) {
        self.stop_requested = true;
        self.unreachable = false;
        self.stop_reason = Some(order.reason);
        self.cancel_roll(now);
        self.effects.push(SupervisionEffect::EndInstances(order));
        self.effects.push(SupervisionEffect::SuspendCalls);
        let has_changed = self.try_advance(LifecycleEvent::StopRequested(order.reason), now);
        if has_changed || self.published_starts != self.planned_starts() {
            self.publish(None, now);
        }
        if self.is_running {
            self.effects.push(SupervisionEffect::StopGeneration(order))
        } else {
            self.handle_stopped(now)
        }
    }

    fn handle_stopped(&mut self, now: MonotonicTime) {
        self.answer_stop_requests();
        if self.start_after_stop {
            self.start(true, now);
        } else {
            self.withdraw_offer();
        }
    }

    fn handle_connected(&mut self, generation: u64, now: MonotonicTime) {
        if self.try_switch_over(generation, now) {
            return self.plan_usage_check(now);
        }
        if !self.is_current_generation(generation) {
            return;
        }
        self.unreachable = false;
        self.has_offer = true;
        self.effects.push(SupervisionEffect::AcceptCalls);
        self.apply_event(LifecycleEvent::HandshakeDone, None, now);
        self.effects.push(SupervisionEffect::NotifyConnected);
        self.plan_usage_check(now);
    }

    /// MGP-144: a server may report that it drains or has failed; other reports are logged and change nothing.
    fn handle_reported(&mut self, from: &str, to: &str, reason: &str, now: MonotonicTime) {
        if !self.is_running {
            return;
        }
        match parse_reported_transition(self.lifecycle.state(), from, to, reason) {
            Ok(LifecycleEvent::Failed(why)) => {
                self.effects.push(SupervisionEffect::FailGeneration(why))
            }
            Ok(event) => {
                let order = StopOrder::from(TransitionReason::ServerRequest);
                self.defer_roll();
                self.effects.push(SupervisionEffect::StopGeneration(order));
                self.effects.push(SupervisionEffect::SuspendCalls);
                self.apply_event(event, None, now);
            }
            Err(implausible) => self
                .effects
                .push(SupervisionEffect::ReportImplausible(implausible)),
        }
    }

    fn handle_retry_due(&mut self, generation: u64, now: MonotonicTime) {
        if self.current != generation || self.is_running || self.stop_requested {
            return;
        }
        match self.permit {
            StartPermit::Needed => {
                self.permit = StartPermit::Granted;
                self.effects.push(SupervisionEffect::RequestPermit);
            }
            StartPermit::NotNeeded | StartPermit::Granted => self.retry(now),
        }
    }

    /// A call starts a sleeping server. It triggers an immediate attempt to reach a server at a URL, or to start one
    /// on demand that failed, but not within [`CALL_RETRY_INTERVAL`] of the end of the last attempt.
    fn handle_call(&mut self, now: MonotonicTime) {
        if self.try_wake(now) {
            return;
        }
        let starts_by_call = self.config.is_at_url || self.starts_on_call();
        let can_hurry = starts_by_call && !self.is_running && !self.stop_requested;
        let Some(planned) = self
            .retry
            .filter(|_| can_hurry && self.permit != StartPermit::Granted)
        else {
            return;
        };
        let due_at = now.max(planned.ended_at + CALL_RETRY_INTERVAL);
        if due_at < planned.due_at {
            self.retry = Some(PlannedRetry { due_at, ..planned });
            self.effects.push(SupervisionEffect::RetryAt(due_at));
        }
    }

    fn handle_permit(&mut self, permitted_at: MonotonicTime, now: MonotonicTime) {
        if permitted_at > now {
            self.effects.push(SupervisionEffect::RetryAt(permitted_at))
        } else {
            self.retry(now)
        }
    }

    fn retry(&mut self, now: MonotonicTime) {
        self.is_parked = false;
        if self.lifecycle.state() == LifecycleState::Error {
            self.apply_event(LifecycleEvent::Retry, None, now);
        }
        self.start_generation(now);
    }

    fn start_generation(&mut self, now: MonotonicTime) {
        self.generations_started += 1;
        self.current = self.generations_started;
        self.reset_rolling();
        self.is_running = true;
        self.start_after_stop = false;
        self.limit_exceeded = None;
        self.retry = None;
        self.effects
            .push(SupervisionEffect::StartGeneration(self.current));
        self.publish(None, now);
    }

    fn was_accepting_calls(&self) -> bool {
        matches!(
            self.lifecycle.state(),
            LifecycleState::Connected | LifecycleState::Draining
        )
    }

    fn notify_disconnected(
        &mut self,
        exit: ServerExit,
        how: String,
        verdict: Option<RestartVerdict>,
    ) {
        self.effects
            .push(SupervisionEffect::NotifyDisconnected(exit, how, verdict));
    }

    /// Applies a transition and publishes the state. An event that is illegal in this state crossed another one
    /// and changes nothing.
    fn apply_event(&mut self, event: LifecycleEvent, reason: Option<String>, now: MonotonicTime) {
        if self.try_advance(event, now) {
            self.publish(reason, now);
        }
    }

    /// Applies a transition without publishing, so that waiting calls do not see an intermediate state. True if
    /// the transition was legal.
    fn try_advance(&mut self, event: LifecycleEvent, now: MonotonicTime) -> bool {
        let transition = self.lifecycle.apply(event, now);
        let is_legal = transition.is_ok();
        self.effects
            .push(transition.map_or_else(SupervisionEffect::Ignore, SupervisionEffect::Announce));
        is_legal
    }

    fn publish(&mut self, reason: Option<String>, now: MonotonicTime) {
        self.published_starts = self.planned_starts();
        let status = self.status(reason, now);
        self.effects.push(SupervisionEffect::Publish(status));
    }
}

#[cfg(test)]
mod tests;
