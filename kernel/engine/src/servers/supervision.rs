//! Decides when a server is started, stopped and started again (MGP §11.2, §11.5), from orders of
//! operators, changes of the configuration, ends of its lives and the restart rules.

pub mod backoff;
mod exits;
mod rolling;
pub mod session_loss;

use std::time::Duration;

use crate::clock::MonotonicTime;
use crate::servers::lifecycle::{
    IllegalTransition, ImplausibleTransition, Lifecycle, LifecycleEvent, LifecycleState,
    Transition, TransitionReason, parse_reported_transition,
};
use crate::servers::restart::{RestartTracker, RestartVerdict, ServerExit};
use crate::servers::spec::{RestartConfig, ServerSpec, ServerTransport};

pub use self::rolling::RollStatus;
use self::rolling::Rolling;

/// Longest step of a process's shutdown while the whole kernel stops: two of them and the time for the last
/// calls must fit into the two seconds in which the kernel stops.
const SHUTDOWN_STEP_MAX: Duration = Duration::from_millis(300);

/// The shortest time from the end of a try to the next one that a call causes.
const CALL_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// An order to end a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopOrder {
    /// The reason.
    pub reason: TransitionReason,
    /// How long calls under way may take, if that was given.
    pub drain_timeout: Option<Duration>,
}

impl StopOrder {
    /// How long each step of the shutdown of its process may take: at most [`SHUTDOWN_STEP_MAX`] for a server that
    /// does not answer its calls while the whole kernel stops.
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
    fn from(why: TransitionReason) -> Self {
        Self {
            reason: why,
            drain_timeout: None,
        }
    }
}

/// The parts of a server's configuration that decide when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupervisionConfig {
    /// Started with the kernel.
    pub autostart: bool,
    /// What happens when it stops by itself.
    pub restart: RestartConfig,
    /// It is remote, and may be unreachable.
    pub is_remote: bool,
    /// It is at a URL, where it may be away for any time: it is never parked, and tried when somebody calls.
    pub is_at_url: bool,
    /// Two lives of it may run at once.
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
            autostart: spec.autostart,
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

/// The events of a supervisor. Lives are numbered; an event of a life that is not the last is late and
/// changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SupervisionInput {
    /// Start, by the kernel or an operator; an operator's start resets the count of restarts.
    Start {
        /// An operator asked.
        by_operator: bool,
    },
    /// Drain and stop.
    Stop(StopOrder),
    /// Drain, stop, and start again.
    Restart,
    /// Replace the life by another one without a gap.
    Roll,
    /// Its configuration changed.
    Reconfigured(SupervisionConfig),
    /// A life has completed its handshake, and agents see its first lists.
    Connected(u64),
    /// The server reports a transition over the connection of its life.
    Reported {
        /// The earlier state.
        from: String,
        /// The new state.
        to: String,
        /// The reason.
        reason: String,
    },
    /// What this life uses is more than it may; why, in words.
    LimitExceeded(u64, String),
    /// A life ended, and how, in words.
    Ended(u64, ServerExit, String),
    /// The wait before the next start, after this life, is over.
    RetryDue(u64),
    /// Somebody calls it and waits.
    CallWaiting,
    /// The time of its turn among the failing servers, which was asked for.
    PermitGranted(MonotonicTime),
}

/// The published state of the supervision of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisionStatus {
    /// Its state.
    pub state: LifecycleState,
    /// The reason.
    pub reason: String,
    /// Since when.
    pub since: MonotonicTime,
    /// Restarts within the window.
    pub restarts: u32,
    /// It will be started without an order: for the first time, or again once it has stopped.
    pub will_start: bool,
    /// It is remote, and its last life ended because it was unreachable or disconnected.
    pub is_unreachable: bool,
    /// Its last end was ordered.
    pub stop_requested: bool,
    /// Its last rolling restart.
    pub roll: RollStatus,
}

/// The effects, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SupervisionEffect {
    /// Start the life of this number, replacing one that is under way.
    StartGeneration(u64),
    /// Start the life of this number beside the current one.
    StartReplacement(u64),
    /// End the life beside as failed: it counts as the one that leaves until it has ended.
    FailReplacement(String),
    /// The life beside has ended.
    ReleaseReplacement,
    /// The life beside failed, and why: the current one goes on, under the entry it was started with.
    RollFailed(String),
    /// The life beside is the current one from now on: give calls its connection, then let the former one
    /// end.
    SwitchToReplacement(StopOrder),
    /// The current life is gone, the one beside takes its place.
    PromoteReplacement,
    /// Give the life that leaves no more time than any other.
    HurryRetiring,
    /// The life that leaves has ended.
    ReleaseRetiring,
    /// Let the life end.
    StopGeneration(StopOrder),
    /// End the life as failed.
    FailGeneration(String),
    /// The life is over: release what belongs to it.
    ReleaseGeneration,
    /// End the instances of agents.
    EndInstances(StopOrder),
    /// Give calls the connection.
    AcceptCalls,
    /// Take the connection from calls.
    SuspendCalls,
    /// Report a transition.
    Announce(Transition),
    /// It was not possible in that state: two events crossed.
    Ignore(IllegalTransition),
    /// Publish this state.
    Publish(SupervisionStatus),
    /// Report that it is connected.
    NotifyConnected,
    /// Report that it takes no calls any more, or never will: how it ended, also in words, and what
    /// follows.
    NotifyDisconnected(ServerExit, String, Option<RestartVerdict>),
    /// Withdraw its offer.
    WithdrawOffer,
    /// Answer those who wait for its end.
    AnswerStopRequests,
    /// Send [`SupervisionInput::RetryDue`] at this time, and publish the time.
    RetryAt(MonotonicTime),
    /// Ask for a turn among the failing servers, and send [`SupervisionInput::PermitGranted`].
    RequestPermit,
    /// The server reported an impossible transition.
    ReportImplausible(ImplausibleTransition),
}

/// Whether the next start waits for a turn among the failing servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartPermit {
    /// It is not failing repeatedly.
    NotNeeded,
    /// It is, and has not asked yet.
    Needed,
    /// It knows the time of its turn.
    Granted,
}

/// A start that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlannedRetry {
    ended: MonotonicTime,
    due_at: MonotonicTime,
}

/// The supervision of one server.
#[derive(Clone, Debug)]
pub struct Supervision {
    rules: SupervisionConfig,
    lifecycle: Lifecycle,
    restarts: RestartTracker,
    /// How many lives were started.
    generations_started: u64,
    /// The number of the current life.
    current: u64,
    /// The current life is under way.
    is_running: bool,
    stop_requested: bool,
    /// The reason of the last order.
    stop_reason: Option<TransitionReason>,
    /// Why this life ends, where it used more than it may.
    limit_exceeded: Option<String>,
    rolling: Rolling,
    start_after_stop: bool,
    permit: StartPermit,
    unreachable: bool,
    /// While it waits for its next start: when its last life ended, and when that start is.
    retry: Option<PlannedRetry>,
    /// The value of [`Self::will_start`] published last.
    published_will_start: bool,
    /// The time of the event being handled.
    effects: Vec<SupervisionEffect>,
}

impl Supervision {
    /// For a server that was not started yet.
    #[must_use]
    pub fn new(rules: SupervisionConfig, now: MonotonicTime) -> Self {
        let mut it = Self {
            rules,
            lifecycle: Lifecycle::new(now),
            restarts: rules.restart_tracker(),
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
            published_will_start: false,
            effects: Vec::new(),
        };
        it.published_will_start = it.will_start();
        it
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
            SupervisionInput::Reconfigured(rules) => self.reconfigure(rules, now),
            SupervisionInput::Connected(life) => self.handle_connected(life, now),
            SupervisionInput::Reported { from, to, reason } => {
                self.handle_reported(&from, &to, &reason, now);
            }
            SupervisionInput::LimitExceeded(life, why) => self.handle_over_limit(life, why, now),
            SupervisionInput::Ended(life, exit, how) => self.handle_exit(life, exit, how, now),
            SupervisionInput::RetryDue(life) => self.handle_retry_due(life, now),
            SupervisionInput::CallWaiting => self.handle_call(now),
            SupervisionInput::PermitGranted(at) => self.handle_permit(at, now),
        }
        std::mem::take(&mut self.effects)
    }

    /// True if it will be started without an order.
    fn will_start(&self) -> bool {
        let first = self.lifecycle.state() == LifecycleState::Registered && self.rules.autostart;
        self.start_after_stop || first && !self.stop_requested
    }

    /// True while reports of this life count.
    #[must_use]
    pub fn is_current_generation(&self, life: u64) -> bool {
        self.is_running && self.current == life && !self.stop_requested
    }

    /// The number of the last life.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.current
    }

    /// Its published state, with this reason instead of that of the last transition.
    #[must_use]
    pub fn status(&self, reason: Option<String>, now: MonotonicTime) -> SupervisionStatus {
        SupervisionStatus {
            state: self.lifecycle.state(),
            reason: reason.unwrap_or_else(|| self.lifecycle.reason().to_owned()),
            since: self.lifecycle.entered_at(),
            restarts: self.restarts.count_in_window(now),
            will_start: self.will_start(),
            is_unreachable: self.unreachable,
            stop_requested: self.stop_requested,
            roll: self.roll_status(),
        }
    }

    fn start(&mut self, by_operator: bool, now: MonotonicTime) {
        if by_operator {
            self.restarts.clear();
        }
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

    fn reconfigure(&mut self, rules: SupervisionConfig, now: MonotonicTime) {
        let before = std::mem::replace(&mut self.rules, rules);
        self.restarts = rules.restart_tracker();
        if self.can_roll_to(&rules) {
            return self.roll_to_config(before, now);
        }
        let order = StopOrder::from(TransitionReason::ConfigurationChange);
        if self.is_running {
            return self.stop_and_start_again(order, now);
        }
        self.effects.push(SupervisionEffect::EndInstances(order));
        if rules.autostart || self.lifecycle.state() == LifecycleState::Error {
            self.start(true, now);
        }
    }

    fn stop_and_start_again(&mut self, order: StopOrder, now: MonotonicTime) {
        self.start_after_stop = true;
        self.request_stop(order, now);
    }

    /// Stops it. Whether it is started again is decided before, because waiting calls are told as soon as
    /// it is not.
    fn request_stop(&mut self, order: StopOrder, now: MonotonicTime) {
        self.stop_requested = true;
        self.unreachable = false;
        self.stop_reason = Some(order.reason);
        self.cancel_roll(now);
        self.effects.push(SupervisionEffect::EndInstances(order));
        self.effects.push(SupervisionEffect::SuspendCalls);
        let stepped = self.try_advance(LifecycleEvent::StopRequested(order.reason), now);
        if stepped || self.published_will_start != self.will_start() {
            self.publish(None, now);
        }
        if self.is_running {
            self.effects.push(SupervisionEffect::StopGeneration(order))
        } else {
            self.handle_stopped(now)
        }
    }

    /// It has stopped as ordered.
    fn handle_stopped(&mut self, now: MonotonicTime) {
        self.answer_stop_requests();
        if self.start_after_stop {
            self.start(true, now);
        } else {
            self.effects.push(SupervisionEffect::WithdrawOffer);
        }
    }

    fn handle_connected(&mut self, life: u64, now: MonotonicTime) {
        if self.try_switch_over(life, now) || !self.is_current_generation(life) {
            return;
        }
        self.unreachable = false;
        self.effects.push(SupervisionEffect::AcceptCalls);
        self.apply_event(LifecycleEvent::HandshakeDone, None, now);
        self.effects.push(SupervisionEffect::NotifyConnected);
    }

    /// A server may say that it drains or is broken (MGP-144); what it cannot say of itself is noted and
    /// changes nothing.
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

    fn handle_retry_due(&mut self, life: u64, now: MonotonicTime) {
        if self.current != life || self.is_running || self.stop_requested {
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

    /// A server at a URL is tried at once when somebody calls, but not within [`CALL_RETRY_INTERVAL`] of the end of the
    /// last try: callers make no tries faster than that.
    fn handle_call(&mut self, now: MonotonicTime) {
        let waits = self.rules.is_at_url && !self.is_running && !self.stop_requested;
        let Some(planned) = self
            .retry
            .filter(|_| waits && self.permit != StartPermit::Granted)
        else {
            return;
        };
        let at = now.max(planned.ended + CALL_RETRY_INTERVAL);
        if at < planned.due_at {
            self.retry = Some(PlannedRetry {
                due_at: at,
                ..planned
            });
            self.effects.push(SupervisionEffect::RetryAt(at));
        }
    }

    fn handle_permit(&mut self, at: MonotonicTime, now: MonotonicTime) {
        if at > now {
            self.effects.push(SupervisionEffect::RetryAt(at))
        } else {
            self.retry(now)
        }
    }

    fn retry(&mut self, now: MonotonicTime) {
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
        let told = SupervisionEffect::NotifyDisconnected(exit, how, verdict);
        self.effects.push(told);
    }

    /// Makes a transition and publishes it. An event that is not possible in this state changes nothing,
    /// because it crossed another.
    fn apply_event(&mut self, event: LifecycleEvent, reason: Option<String>, now: MonotonicTime) {
        if self.try_advance(event, now) {
            self.publish(reason, now);
        }
    }

    /// A transition that another follows at once, so that waiting calls do not see it. True when it was
    /// made.
    fn try_advance(&mut self, event: LifecycleEvent, now: MonotonicTime) -> bool {
        let step = self.lifecycle.apply(event, now);
        let made = step.is_ok();
        let told = step.map_or_else(SupervisionEffect::Ignore, SupervisionEffect::Announce);
        self.effects.push(told);
        made
    }

    fn publish(&mut self, reason: Option<String>, now: MonotonicTime) {
        self.published_will_start = self.will_start();
        let status = self.status(reason, now);
        self.effects.push(SupervisionEffect::Publish(status));
    }
}

#[cfg(test)]
mod tests;
