//! A restart without a gap: a second life is started beside the first, takes its place once it is connected,
//! and the first one ends when its calls are done. Whoever calls sees the server `connected` all the while.

use std::time::Duration;

use super::{StopOrder, Supervision, SupervisionConfig, SupervisionEffect};
use crate::clock::MonotonicTime;
use crate::servers::lifecycle::{LifecycleEvent, LifecycleState, TransitionReason};
use crate::servers::restart::ServerExit;

/// How long the calls of a life that was replaced may take: nobody waits for its end.
const RETIRING_DRAIN_TIMEOUT: Duration = Duration::from_secs(600);

/// The last rolling restart of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RollStatus {
    /// There was none since it was started.
    #[default]
    None,
    /// The second life is being started.
    InProgress,
    /// The second life took over.
    Done,
    /// The first one stayed; why, in words.
    Failed(String),
}

impl RollStatus {
    /// For people, while it is under way or where it failed.
    #[must_use]
    pub fn render(&self) -> Option<String> {
        match self {
            Self::None | Self::Done => None,
            Self::InProgress => Some("a second life is being started, to take over".into()),
            Self::Failed(why) => Some(format!("it was not replaced and goes on as before: {why}")),
        }
    }
}

/// The lives beside the current one.
#[derive(Clone, Debug, Default)]
pub(super) struct Rolling {
    /// Is started to take over.
    replacement: Option<u64>,
    /// Was replaced, and finishes its calls.
    retiring: Option<u64>,
    reason: Option<TransitionReason>,
    /// The rules of the current life, where those of the one beside are others.
    previous_config: Option<SupervisionConfig>,
    status: RollStatus,
    /// A stop is answered when the replaced life has ended, too.
    has_pending_stop: bool,
}

impl Supervision {
    /// Whether a change to these rules replaces the life that runs without a gap.
    #[must_use]
    pub fn can_roll_to(&self, rules: &SupervisionConfig) -> bool {
        rules.rolling && self.can_roll()
    }

    /// Whether this life is started to take the place of the current one.
    #[must_use]
    pub fn is_replacement(&self, life: u64) -> bool {
        self.rolling.replacement == Some(life)
    }

    pub(super) fn roll_status(&self) -> RollStatus {
        self.rolling.status.clone()
    }

    fn can_roll(&self) -> bool {
        let connected = self.lifecycle.state() == LifecycleState::Connected;
        let alone = self.rolling.replacement.is_none() && self.rolling.retiring.is_none();
        connected && self.is_running && !self.stop_requested && alone
    }

    /// The operator wants it. A server that is not connected is restarted as usual.
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
        let why = "the life before this one still finishes its calls; try again when it has ended";
        self.rolling.status = RollStatus::Failed(why.into());
        self.publish(None, now);
    }

    /// For other rules than those `before`, which hold again if it fails.
    pub(super) fn roll_to_config(&mut self, before: SupervisionConfig, now: MonotonicTime) {
        self.rolling.previous_config = Some(before);
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

    /// True when it was the second life that connected: new calls go to it from now on.
    pub(super) fn try_switch_over(&mut self, life: u64, now: MonotonicTime) -> bool {
        if self.rolling.replacement != Some(life) {
            return false;
        }
        self.rolling.replacement = None;
        self.rolling.previous_config = None;
        self.rolling.retiring = Some(self.current);
        self.rolling.status = RollStatus::Done;
        self.current = life;
        let why = self
            .rolling
            .reason
            .unwrap_or(TransitionReason::OperatorRequest);
        let within = Some(RETIRING_DRAIN_TIMEOUT);
        self.effects
            .push(SupervisionEffect::SwitchToReplacement(StopOrder {
                reason: why,
                drain_timeout: within,
            }));
        self.publish(None, now);
        self.effects.push(SupervisionEffect::NotifyConnected);
        true
    }

    /// True when it was not the current life that ended.
    pub(super) fn handle_other_exit(&mut self, life: u64, how: &str, now: MonotonicTime) -> bool {
        if self.rolling.retiring == Some(life) {
            self.rolling.retiring = None;
            self.effects.push(SupervisionEffect::ReleaseRetiring);
            let stops = self.is_running && self.stop_requested;
            if !stops && std::mem::take(&mut self.rolling.has_pending_stop) {
                self.effects.push(SupervisionEffect::AnswerStopRequests);
            }
            return true;
        }
        let beside = self.rolling.replacement == Some(life);
        if beside {
            self.rolling.replacement = None;
            self.rolling.status = RollStatus::Failed(how.to_owned());
            self.effects.push(SupervisionEffect::ReleaseReplacement);
            self.fail_roll(how, now);
        }
        beside
    }

    /// What failed must not be what a later crash of the current life starts.
    fn fail_roll(&mut self, why: &str, now: MonotonicTime) {
        if let Some(before) = self.rolling.previous_config.take() {
            self.rules = before;
            self.restarts = before.restart_tracker();
        }
        self.effects
            .push(SupervisionEffect::RollFailed(why.to_owned()));
        self.publish(None, now);
    }

    /// The current life ended by itself while the second one starts, which goes on as the next life.
    /// False where there is none.
    pub(super) fn try_promote(&mut self, exit: &ServerExit, how: &str, now: MonotonicTime) -> bool {
        let Some(life) = self.rolling.replacement.take() else {
            return false;
        };
        self.rolling.previous_config = None;
        if self.was_accepting_calls() {
            self.notify_disconnected(exit.clone(), how.to_owned(), None);
        }
        self.advance_to_end(exit, how.to_owned(), now);
        self.try_advance(LifecycleEvent::Retry, now);
        self.current = life;
        self.is_running = true;
        self.rolling.status = RollStatus::None;
        self.effects.push(SupervisionEffect::PromoteReplacement);
        self.publish(Some(how.to_owned()), now);
        true
    }

    /// The current life begins to end by itself: what was asked for follows when it has.
    pub(super) fn defer_roll(&mut self) {
        if self.rolling.replacement.is_some() {
            self.abort_roll("the server began to end meanwhile; it is started again");
            self.start_after_stop = true;
        }
    }

    /// Somebody ordered something else.
    pub(super) fn cancel_roll(&mut self, now: MonotonicTime) {
        if self.rolling.replacement.is_some() {
            self.abort_roll("it was stopped meanwhile");
            self.publish(None, now);
        }
        if self.rolling.retiring.is_some() {
            self.effects.push(SupervisionEffect::HurryRetiring);
        }
    }

    /// A whole new life forgets what came of the last rolling restart.
    pub(super) fn reset_rolling(&mut self) {
        self.rolling.status = RollStatus::None;
    }

    /// A stop is answered when no life is left.
    pub(super) fn answer_stop_requests(&mut self) {
        match self.rolling.retiring {
            Some(_) => self.rolling.has_pending_stop = true,
            None => self.effects.push(SupervisionEffect::AnswerStopRequests),
        }
    }

    /// The life beside failed and is to end; the current one stays.
    pub(super) fn fail_replacement(&mut self, why: &str, now: MonotonicTime) {
        let before = self.rolling.previous_config;
        self.abort_roll(why);
        self.rolling.previous_config = before;
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
