//! A restart without interruption: a replacement starts while the current generation runs, takes over once it is
//! connected, and the former generation ends when its calls are done. Callers see the server `connected` throughout.

use std::time::Duration;

use super::{StopOrder, Supervision, SupervisionConfig, SupervisionEffect};
use crate::clock::MonotonicTime;
use crate::servers::lifecycle::{LifecycleEvent, LifecycleState, TransitionReason};
use crate::servers::restart::ServerExit;

/// How long the calls of a replaced generation may take: nothing waits for its end.
const RETIRING_DRAIN_TIMEOUT: Duration = Duration::from_secs(600);

/// The last rolling restart of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RollStatus {
    /// None since the start.
    #[default]
    None,
    /// The replacement starts.
    InProgress,
    /// The replacement took over.
    Done,
    /// The current generation stays, with a reason.
    Failed(String),
}

impl RollStatus {
    /// A text for people while it is in progress or if it failed.
    #[must_use]
    pub fn render(&self) -> Option<String> {
        match self {
            Self::None | Self::Done => None,
            Self::InProgress => Some("a replacement is starting".into()),
            Self::Failed(why) => Some(format!("it was not replaced and goes on as before: {why}")),
        }
    }
}

/// The generations besides the current one.
#[derive(Clone, Debug, Default)]
pub(super) struct Rolling {
    replacement: Option<u64>,
    /// Replaced; finishes its calls.
    retiring: Option<u64>,
    reason: Option<TransitionReason>,
    /// The config of the current generation, if the replacement's differs.
    previous_config: Option<SupervisionConfig>,
    status: RollStatus,
    /// Stop requests wait for the retiring generation.
    has_pending_stop: bool,
}

impl Supervision {
    /// Whether a change to this config replaces the running generation without interruption.
    #[must_use]
    pub fn can_roll_to(&self, config: &SupervisionConfig) -> bool {
        config.rolling && self.can_roll()
    }

    /// Whether this generation is the replacement of the current one.
    #[must_use]
    pub fn is_replacement(&self, generation: u64) -> bool {
        self.rolling.replacement == Some(generation)
    }

    pub(super) fn roll_status(&self) -> RollStatus {
        self.rolling.status.clone()
    }

    fn can_roll(&self) -> bool {
        let is_connected = self.lifecycle.state() == LifecycleState::Connected;
        is_connected && self.is_running && !self.stop_requested && self.is_only_generation()
    }

    /// True without a replacement and a retiring generation.
    pub(super) fn is_only_generation(&self) -> bool {
        self.rolling.replacement.is_none() && self.rolling.retiring.is_none()
    }

    /// Handles the operator's request. A server that is not connected is restarted as usual.
    pub(super) fn handle_roll(&mut self, now: MonotonicTime) {
        if self.can_roll() {
            return self.roll(TransitionReason::OperatorRequest, now);
        }
        if self.rolling.replacement.is_some() {
            return;
        }
        if self.rolling.retiring.is_none() {
            return self.restart(now);
        }
        let why = "the previous generation still finishes its calls; try again when it has ended";
        self.rolling.status = RollStatus::Failed(why.into());
        self.publish(None, now);
    }

    /// Rolls to a changed config; `previous` applies again if that fails.
    pub(super) fn roll_to_config(&mut self, previous: SupervisionConfig, now: MonotonicTime) {
        self.rolling.previous_config = Some(previous);
        self.roll(TransitionReason::ConfigurationChange, now);
    }

    pub(super) fn roll(&mut self, why: TransitionReason, now: MonotonicTime) {
        self.generations_started += 1;
        self.rolling.replacement = Some(self.generations_started);
        self.rolling.reason = Some(why);
        self.rolling.status = RollStatus::InProgress;
        self.effects.push(SupervisionEffect::StartReplacement(
            self.generations_started,
        ));
        self.publish(None, now);
    }

    /// True if the replacement connected: new calls go to it.
    pub(super) fn try_switch_over(&mut self, generation: u64, now: MonotonicTime) -> bool {
        if self.rolling.replacement != Some(generation) {
            return false;
        }
        self.rolling.replacement = None;
        self.rolling.previous_config = None;
        self.rolling.retiring = Some(self.current);
        self.rolling.status = RollStatus::Done;
        self.current = generation;
        let why = self
            .rolling
            .reason
            .unwrap_or(TransitionReason::OperatorRequest);
        self.effects
            .push(SupervisionEffect::SwitchToReplacement(StopOrder {
                reason: why,
                drain_timeout: Some(RETIRING_DRAIN_TIMEOUT),
            }));
        self.publish(None, now);
        self.effects.push(SupervisionEffect::NotifyConnected);
        true
    }

    /// True if the retiring generation or the replacement ended.
    pub(super) fn handle_other_exit(
        &mut self,
        generation: u64,
        how: &str,
        now: MonotonicTime,
    ) -> bool {
        if self.rolling.retiring == Some(generation) {
            self.rolling.retiring = None;
            self.effects.push(SupervisionEffect::ReleaseRetiring);
            let is_stopping = self.is_running && self.stop_requested;
            if !is_stopping && std::mem::take(&mut self.rolling.has_pending_stop) {
                self.effects.push(SupervisionEffect::AnswerStopRequests);
            }
            return true;
        }
        let is_replacement = self.rolling.replacement == Some(generation);
        if is_replacement {
            self.rolling.replacement = None;
            self.rolling.status = RollStatus::Failed(how.to_owned());
            self.effects.push(SupervisionEffect::ReleaseReplacement);
            self.fail_roll(how, now);
        }
        is_replacement
    }

    /// Restores the previous config: a later crash must not start the config that failed.
    fn fail_roll(&mut self, why: &str, now: MonotonicTime) {
        if let Some(previous) = self.rolling.previous_config.take() {
            self.config = previous;
            self.restarts = previous.restart_tracker();
        }
        self.effects
            .push(SupervisionEffect::RollFailed(why.to_owned()));
        self.publish(None, now);
    }

    /// The current generation ended without an order while a replacement starts: promotes the replacement. False
    /// if no replacement exists.
    pub(super) fn try_promote(&mut self, exit: &ServerExit, how: &str, now: MonotonicTime) -> bool {
        let Some(generation) = self.rolling.replacement.take() else {
            return false;
        };
        self.rolling.previous_config = None;
        if self.was_accepting_calls() {
            self.notify_disconnected(exit.clone(), how.to_owned(), None);
        }
        self.advance_to_end(exit, how.to_owned(), now);
        self.try_advance(LifecycleEvent::Retry, now);
        self.current = generation;
        self.is_running = true;
        self.rolling.status = RollStatus::None;
        self.effects.push(SupervisionEffect::PromoteReplacement);
        self.publish(Some(how.to_owned()), now);
        true
    }

    /// The current generation begins to end without an order: the requested restart follows when it has.
    pub(super) fn defer_roll(&mut self) {
        if self.rolling.replacement.is_some() {
            self.abort_roll("the server began to end meanwhile; it is started again");
            self.start_after_stop = true;
        }
    }

    /// Another order replaces the rolling restart.
    pub(super) fn cancel_roll(&mut self, now: MonotonicTime) {
        if self.rolling.replacement.is_some() {
            self.abort_roll("it was stopped meanwhile");
            self.publish(None, now);
        }
        if self.rolling.retiring.is_some() {
            self.effects.push(SupervisionEffect::HurryRetiring);
        }
    }

    pub(super) fn reset_rolling(&mut self) {
        self.rolling.status = RollStatus::None;
    }

    /// Answers stop requests once no generation is left.
    pub(super) fn answer_stop_requests(&mut self) {
        match self.rolling.retiring {
            Some(_) => self.rolling.has_pending_stop = true,
            None => self.effects.push(SupervisionEffect::AnswerStopRequests),
        }
    }

    /// Terminates the failed replacement; the current generation stays.
    pub(super) fn fail_replacement(&mut self, why: &str, now: MonotonicTime) {
        let previous = self.rolling.previous_config;
        self.abort_roll(why);
        self.rolling.previous_config = previous;
        self.fail_roll(why, now);
    }

    fn abort_roll(&mut self, why: &str) {
        self.rolling.previous_config = None;
        self.rolling.retiring = self.rolling.replacement.take();
        self.rolling.status = RollStatus::Failed(why.to_owned());
        self.effects
            .push(SupervisionEffect::FailReplacement(why.to_owned()));
    }
}

#[cfg(test)]
mod tests;
