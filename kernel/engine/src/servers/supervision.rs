//! Decides when a server is started, stopped and started again (MGP §11.2, §11.5), from orders of
//! operators, changes of the configuration, ends of its lives and the restart rules.

mod endings;
pub mod pace;
mod rolling;
pub mod sessions;

use std::time::Duration;

use crate::clock::MonotonicTime;
use crate::servers::lifecycle::{
    IllegalTransition, Implausible, Lifecycle, LifecycleEvent, LifecycleState, Transition,
    TransitionReason, said,
};
use crate::servers::restart::{RestartVerdict, Restarts, ServerExit};
use crate::servers::spec::{Reach, RestartRules, ServerSpec};

pub use self::rolling::RollStatus;
use self::rolling::Rolling;

/// Longest step of a process's shutdown while the whole kernel stops: two of them and the time for the last
/// calls must fit into the two seconds in which the kernel stops.
const HURRIED: Duration = Duration::from_millis(300);

/// The shortest time from the end of a try to the next one that a call causes.
const CALLED_AGAIN: Duration = Duration::from_secs(1);

/// An order to end a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopOrder {
    /// The reason.
    pub why: TransitionReason,
    /// How long calls under way may take, if that was given.
    pub within: Option<Duration>,
}

impl StopOrder {
    /// How long each step of the shutdown of its process may take: at most [`HURRIED`] for a server that
    /// does not answer its calls while the whole kernel stops.
    #[must_use]
    pub fn grace(self, configured: Duration, drained: bool) -> Duration {
        match self.why == TransitionReason::KernelShutdown && !drained {
            true => configured.min(HURRIED),
            false => configured,
        }
    }
}

impl From<TransitionReason> for StopOrder {
    fn from(why: TransitionReason) -> Self {
        Self { why, within: None }
    }
}

/// The parts of a server's configuration that decide when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupervisionRules {
    /// Started with the kernel.
    pub autostart: bool,
    /// What happens when it stops by itself.
    pub restart: RestartRules,
    /// It is remote, and may be unreachable.
    pub remote: bool,
    /// It is at a URL, where it may be away for any time: it is never parked, and tried when somebody calls.
    pub at_url: bool,
    /// Two lives of it may run at once.
    pub rolling: bool,
}

impl SupervisionRules {
    fn restarts(&self) -> Restarts {
        Restarts::new(self.restart).persistent(self.at_url)
    }
}

impl From<&ServerSpec> for SupervisionRules {
    fn from(spec: &ServerSpec) -> Self {
        Self {
            autostart: spec.autostart,
            restart: spec.restart,
            remote: matches!(spec.reach, Reach::Http { .. } | Reach::Node(_)),
            at_url: matches!(spec.reach, Reach::Http { .. }),
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
    Reconfigured(SupervisionRules),
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
    OverLimit(u64, String),
    /// A life ended, and how, in words.
    Ended(u64, ServerExit, String),
    /// The wait before the next start, after this life, is over.
    RetryDue(u64),
    /// Somebody calls it and waits.
    Called,
    /// The time of its turn among the failing servers, which was asked for.
    Turn(MonotonicTime),
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
    pub due: bool,
    /// It is remote, and its last life ended because it was unreachable or disconnected.
    pub unreachable: bool,
    /// Its last end was ordered.
    pub asked_to_stop: bool,
    /// Its last rolling restart.
    pub roll: RollStatus,
}

/// The effects, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SupervisionEffect {
    /// Start the life of this number, replacing one that is under way.
    StartLife(u64),
    /// Start the life of this number beside the current one.
    StartBeside(u64),
    /// End the life beside as failed: it counts as the one that leaves until it has ended.
    EndBeside(String),
    /// The life beside has ended.
    LetGoOfBeside,
    /// The life beside failed, and why: the current one goes on, under the entry it was started with.
    RollFailed(String),
    /// The life beside is the current one from now on: give calls its connection, then let the former one
    /// end.
    TakeOver(StopOrder),
    /// The current life is gone, the one beside takes its place.
    Promote,
    /// Give the life that leaves no more time than any other.
    HurryLeaving,
    /// The life that leaves has ended.
    LetGoOfLeaving,
    /// Let the life end.
    StopLife(StopOrder),
    /// End the life as failed.
    FailLife(String),
    /// The life is over: release what belongs to it.
    LetGo,
    /// End the instances of agents.
    EndInstances(StopOrder),
    /// Give calls the connection.
    OpenToCalls,
    /// Take the connection from calls.
    CloseToCalls,
    /// Report a transition.
    Announce(Transition),
    /// It was not possible in that state: two events crossed.
    Ignore(IllegalTransition),
    /// Publish this state.
    Publish(SupervisionStatus),
    /// Report that it is connected.
    TellConnected,
    /// Report that it takes no calls any more, or never will: how it ended, also in words, and what
    /// follows.
    TellDisconnected(ServerExit, String, Option<RestartVerdict>),
    /// Withdraw its offer.
    Withdraw,
    /// Answer those who wait for its end.
    AnswerStops,
    /// Send [`SupervisionInput::RetryDue`] at this time, and publish the time.
    RetryAt(MonotonicTime),
    /// Ask for a turn among the failing servers, and send [`SupervisionInput::Turn`].
    TakeTurn,
    /// The server reported an impossible transition.
    Note(Implausible),
}

/// Whether the next start waits for a turn among the failing servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartTurn {
    /// It is not failing repeatedly.
    Free,
    /// It is, and has not asked yet.
    Wanted,
    /// It knows the time of its turn.
    Given,
}

/// A start that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlannedRetry {
    ended: MonotonicTime,
    at: MonotonicTime,
}

/// The supervision of one server.
#[derive(Clone, Debug)]
pub struct Supervision {
    rules: SupervisionRules,
    lifecycle: Lifecycle,
    restarts: Restarts,
    /// How many lives were started.
    lives: u64,
    /// The number of the current life.
    current: u64,
    /// The current life is under way.
    lives_now: bool,
    asked_to_stop: bool,
    /// The reason of the last order.
    why: Option<TransitionReason>,
    /// Why this life ends, where it used more than it may.
    over_limit: Option<String>,
    rolling: Rolling,
    start_again: bool,
    turn: StartTurn,
    unreachable: bool,
    /// While it waits for its next start: when its last life ended, and when that start is.
    retry: Option<PlannedRetry>,
    /// The value of [`Self::is_due`] published last.
    shown_due: bool,
    /// The time of the event being handled.
    effects: Vec<SupervisionEffect>,
}

impl Supervision {
    /// For a server that was not started yet.
    #[must_use]
    pub fn new(rules: SupervisionRules, now: MonotonicTime) -> Self {
        let mut it = Self {
            rules,
            lifecycle: Lifecycle::new(now),
            restarts: rules.restarts(),
            lives: 0,
            current: 0,
            lives_now: false,
            asked_to_stop: false,
            why: None,
            over_limit: None,
            rolling: Rolling::default(),
            start_again: false,
            turn: StartTurn::Free,
            unreachable: false,
            retry: None,
            shown_due: false,
            effects: Vec::new(),
        };
        it.shown_due = it.is_due();
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
            SupervisionInput::Roll => self.roll_asked(now),
            SupervisionInput::Reconfigured(rules) => self.reconfigured(rules, now),
            SupervisionInput::Connected(life) => self.connected(life, now),
            SupervisionInput::Reported { from, to, reason } => {
                self.reported(&from, &to, &reason, now);
            }
            SupervisionInput::OverLimit(life, why) => self.over_limit(life, why, now),
            SupervisionInput::Ended(life, exit, how) => self.ended(life, exit, how, now),
            SupervisionInput::RetryDue(life) => self.retry_due(life, now),
            SupervisionInput::Called => self.called(now),
            SupervisionInput::Turn(at) => self.turn(at, now),
        }
        std::mem::take(&mut self.effects)
    }

    /// True if it will be started without an order.
    fn is_due(&self) -> bool {
        let first = self.lifecycle.state() == LifecycleState::Registered && self.rules.autostart;
        self.start_again || first && !self.asked_to_stop
    }

    /// True while reports of this life count.
    #[must_use]
    pub fn counts(&self, life: u64) -> bool {
        self.lives_now && self.current == life && !self.asked_to_stop
    }

    /// The number of the last life.
    #[must_use]
    pub fn life(&self) -> u64 {
        self.current
    }

    /// Its published state, with this reason instead of that of the last transition.
    #[must_use]
    pub fn status(&self, reason: Option<String>, now: MonotonicTime) -> SupervisionStatus {
        SupervisionStatus {
            state: self.lifecycle.state(),
            reason: reason.unwrap_or_else(|| self.lifecycle.reason().to_owned()),
            since: self.lifecycle.since(),
            restarts: self.restarts.within_window(now),
            due: self.is_due(),
            unreachable: self.unreachable,
            asked_to_stop: self.asked_to_stop,
            roll: self.roll_status(),
        }
    }

    fn start(&mut self, by_operator: bool, now: MonotonicTime) {
        if by_operator {
            self.restarts.clear();
        }
        match self.lifecycle.state() {
            LifecycleState::Registered | LifecycleState::Disconnected | LifecycleState::Error => {
                self.step(LifecycleEvent::Start, None, now);
            }
            LifecycleState::Draining => {
                self.start_again = true;
                return self.publish(None, now);
            }
            LifecycleState::Connecting | LifecycleState::Restarting if !self.lives_now => {}
            LifecycleState::Connecting | LifecycleState::Connected | LifecycleState::Restarting => {
                return;
            }
        }
        self.asked_to_stop = false;
        self.start_life(now);
    }

    fn stop(&mut self, order: StopOrder, now: MonotonicTime) {
        self.start_again = false;
        self.end(order, now);
    }

    fn restart(&mut self, now: MonotonicTime) {
        let order = StopOrder::from(TransitionReason::OperatorRequest);
        match self.lives_now {
            true => self.end_and_start_again(order, now),
            false => {
                self.effects.push(SupervisionEffect::EndInstances(order));
                self.start(true, now);
            }
        }
    }

    fn reconfigured(&mut self, rules: SupervisionRules, now: MonotonicTime) {
        let before = std::mem::replace(&mut self.rules, rules);
        self.restarts = rules.restarts();
        if self.rolls_to(&rules) {
            return self.roll_to(before, now);
        }
        let order = StopOrder::from(TransitionReason::ConfigurationChange);
        if self.lives_now {
            return self.end_and_start_again(order, now);
        }
        self.effects.push(SupervisionEffect::EndInstances(order));
        if rules.autostart || self.lifecycle.state() == LifecycleState::Error {
            self.start(true, now);
        }
    }

    fn end_and_start_again(&mut self, order: StopOrder, now: MonotonicTime) {
        self.start_again = true;
        self.end(order, now);
    }

    /// Stops it. Whether it is started again is decided before, because waiting calls are told as soon as
    /// it is not.
    fn end(&mut self, order: StopOrder, now: MonotonicTime) {
        self.asked_to_stop = true;
        self.unreachable = false;
        self.why = Some(order.why);
        self.stop_rolling(now);
        self.effects.push(SupervisionEffect::EndInstances(order));
        self.effects.push(SupervisionEffect::CloseToCalls);
        let stepped = self.advance(LifecycleEvent::StopRequested(order.why), now);
        if stepped || self.shown_due != self.is_due() {
            self.publish(None, now);
        }
        match self.lives_now {
            true => self.effects.push(SupervisionEffect::StopLife(order)),
            false => self.stopped(now),
        }
    }

    /// It has stopped as ordered.
    fn stopped(&mut self, now: MonotonicTime) {
        self.answer_stops();
        if self.start_again {
            self.start(true, now);
        } else {
            self.effects.push(SupervisionEffect::Withdraw);
        }
    }

    fn connected(&mut self, life: u64, now: MonotonicTime) {
        if self.takes_over(life, now) || !self.counts(life) {
            return;
        }
        self.unreachable = false;
        self.effects.push(SupervisionEffect::OpenToCalls);
        self.step(LifecycleEvent::HandshakeDone, None, now);
        self.effects.push(SupervisionEffect::TellConnected);
    }

    /// A server may say that it drains or is broken (MGP-144); what it cannot say of itself is noted and
    /// changes nothing.
    fn reported(&mut self, from: &str, to: &str, reason: &str, now: MonotonicTime) {
        if !self.lives_now {
            return;
        }
        match said(self.lifecycle.state(), from, to, reason) {
            Ok(LifecycleEvent::Failed(why)) => self.effects.push(SupervisionEffect::FailLife(why)),
            Ok(event) => {
                let order = StopOrder::from(TransitionReason::ServerRequest);
                self.roll_later();
                self.effects.push(SupervisionEffect::StopLife(order));
                self.effects.push(SupervisionEffect::CloseToCalls);
                self.step(event, None, now);
            }
            Err(implausible) => self.effects.push(SupervisionEffect::Note(implausible)),
        }
    }

    fn retry_due(&mut self, life: u64, now: MonotonicTime) {
        if self.current != life || self.lives_now || self.asked_to_stop {
            return;
        }
        match self.turn {
            StartTurn::Wanted => {
                self.turn = StartTurn::Given;
                self.effects.push(SupervisionEffect::TakeTurn);
            }
            StartTurn::Free | StartTurn::Given => self.retry(now),
        }
    }

    /// A server at a URL is tried at once when somebody calls, but not within [`CALLED_AGAIN`] of the end of the
    /// last try: callers make no tries faster than that.
    fn called(&mut self, now: MonotonicTime) {
        let waits = self.rules.at_url && !self.lives_now && !self.asked_to_stop;
        let Some(planned) = self
            .retry
            .filter(|_| waits && self.turn != StartTurn::Given)
        else {
            return;
        };
        let at = now.max(planned.ended + CALLED_AGAIN);
        if at < planned.at {
            self.retry = Some(PlannedRetry { at, ..planned });
            self.effects.push(SupervisionEffect::RetryAt(at));
        }
    }

    fn turn(&mut self, at: MonotonicTime, now: MonotonicTime) {
        match at > now {
            true => self.effects.push(SupervisionEffect::RetryAt(at)),
            false => self.retry(now),
        }
    }

    fn retry(&mut self, now: MonotonicTime) {
        if self.lifecycle.state() == LifecycleState::Error {
            self.step(LifecycleEvent::TryAgain, None, now);
        }
        self.start_life(now);
    }

    fn start_life(&mut self, now: MonotonicTime) {
        self.lives += 1;
        self.current = self.lives;
        self.forget_rolling();
        self.lives_now = true;
        self.start_again = false;
        self.over_limit = None;
        self.retry = None;
        self.effects
            .push(SupervisionEffect::StartLife(self.current));
        self.publish(None, now);
    }

    fn took_calls(&self) -> bool {
        matches!(
            self.lifecycle.state(),
            LifecycleState::Connected | LifecycleState::Draining
        )
    }

    fn tell_disconnected(
        &mut self,
        exit: ServerExit,
        how: String,
        verdict: Option<RestartVerdict>,
    ) {
        let told = SupervisionEffect::TellDisconnected(exit, how, verdict);
        self.effects.push(told);
    }

    /// Makes a transition and publishes it. An event that is not possible in this state changes nothing,
    /// because it crossed another.
    fn step(&mut self, event: LifecycleEvent, reason: Option<String>, now: MonotonicTime) {
        if self.advance(event, now) {
            self.publish(reason, now);
        }
    }

    /// A transition that another follows at once, so that waiting calls do not see it. True when it was
    /// made.
    fn advance(&mut self, event: LifecycleEvent, now: MonotonicTime) -> bool {
        let step = self.lifecycle.apply(event, now);
        let made = step.is_ok();
        let told = step.map_or_else(SupervisionEffect::Ignore, SupervisionEffect::Announce);
        self.effects.push(told);
        made
    }

    fn publish(&mut self, reason: Option<String>, now: MonotonicTime) {
        self.shown_due = self.is_due();
        let status = self.status(reason, now);
        self.effects.push(SupervisionEffect::Publish(status));
    }
}

#[cfg(test)]
mod tests;
