//! A restart without a gap: a second life is started beside the first, takes its place once it is connected,
//! and the first one ends when its calls are done. Whoever calls sees the server `connected` all the while.

use std::time::Duration;

use super::{StopOrder, Supervision, SupervisionEffect, SupervisionRules};
use crate::clock::MonotonicTime;
use crate::servers::lifecycle::{LifecycleEvent, LifecycleState, TransitionReason};
use crate::servers::restart::ServerExit;

/// How long the calls of a life that was replaced may take: nobody waits for its end.
const LEAVING: Duration = Duration::from_secs(600);

/// The last rolling restart of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RollStatus {
    /// There was none since it was started.
    #[default]
    None,
    /// The second life is being started.
    UnderWay,
    /// The second life took over.
    Done,
    /// The first one stayed; why, in words.
    Failed(String),
}

impl RollStatus {
    /// For people, while it is under way or where it failed.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        match self {
            Self::None | Self::Done => None,
            Self::UnderWay => Some("a second life is being started, to take over".into()),
            Self::Failed(why) => Some(format!("it was not replaced and goes on as before: {why}")),
        }
    }
}

/// The lives beside the current one.
#[derive(Clone, Debug, Default)]
pub(super) struct Rolling {
    /// Is started to take over.
    beside: Option<u64>,
    /// Was replaced, and finishes its calls.
    leaving: Option<u64>,
    why: Option<TransitionReason>,
    /// The rules of the current life, where those of the one beside are others.
    before: Option<SupervisionRules>,
    status: RollStatus,
    /// A stop is answered when the replaced life has ended, too.
    owes_answer: bool,
}

impl Supervision {
    /// Whether a change to these rules replaces the life that runs without a gap.
    #[must_use]
    pub fn rolls_to(&self, rules: &SupervisionRules) -> bool {
        rules.rolling && self.can_roll()
    }

    /// Whether this life is started to take the place of the current one.
    #[must_use]
    pub fn is_beside(&self, life: u64) -> bool {
        self.rolling.beside == Some(life)
    }

    pub(super) fn roll_status(&self) -> RollStatus {
        self.rolling.status.clone()
    }

    fn can_roll(&self) -> bool {
        let connected = self.lifecycle.state() == LifecycleState::Connected;
        let alone = self.rolling.beside.is_none() && self.rolling.leaving.is_none();
        connected && self.lives_now && !self.asked_to_stop && alone
    }

    /// The operator wants it. A server that is not connected is restarted as usual.
    pub(super) fn roll_asked(&mut self, now: MonotonicTime) {
        if self.can_roll() {
            return self.roll(TransitionReason::OperatorRequest, now);
        }
        if self.rolling.beside.is_some() {
            return;
        }
        if self.rolling.leaving.is_none() {
            return self.restart(now);
        }
        let why = "the life before this one still finishes its calls; try again when it has ended";
        self.rolling.status = RollStatus::Failed(why.into());
        self.publish(None, now);
    }

    /// For other rules than those `before`, which hold again if it fails.
    pub(super) fn roll_to(&mut self, before: SupervisionRules, now: MonotonicTime) {
        self.rolling.before = Some(before);
        self.roll(TransitionReason::ConfigurationChange, now);
    }

    pub(super) fn roll(&mut self, why: TransitionReason, now: MonotonicTime) {
        self.lives += 1;
        self.rolling.beside = Some(self.lives);
        self.rolling.why = Some(why);
        self.rolling.status = RollStatus::UnderWay;
        self.effects
            .push(SupervisionEffect::StartBeside(self.lives));
        self.publish(None, now);
    }

    /// True when it was the second life that connected: new calls go to it from now on.
    pub(super) fn takes_over(&mut self, life: u64, now: MonotonicTime) -> bool {
        if self.rolling.beside != Some(life) {
            return false;
        }
        self.rolling.beside = None;
        self.rolling.before = None;
        self.rolling.leaving = Some(self.current);
        self.rolling.status = RollStatus::Done;
        self.current = life;
        let why = self
            .rolling
            .why
            .unwrap_or(TransitionReason::OperatorRequest);
        let within = Some(LEAVING);
        self.effects
            .push(SupervisionEffect::TakeOver(StopOrder { why, within }));
        self.publish(None, now);
        self.effects.push(SupervisionEffect::TellConnected);
        true
    }

    /// True when it was not the current life that ended.
    pub(super) fn ended_beside(&mut self, life: u64, how: &str, now: MonotonicTime) -> bool {
        if self.rolling.leaving == Some(life) {
            self.rolling.leaving = None;
            self.effects.push(SupervisionEffect::LetGoOfLeaving);
            let stops = self.lives_now && self.asked_to_stop;
            if !stops && std::mem::take(&mut self.rolling.owes_answer) {
                self.effects.push(SupervisionEffect::AnswerStops);
            }
            return true;
        }
        let beside = self.rolling.beside == Some(life);
        if beside {
            self.rolling.beside = None;
            self.rolling.status = RollStatus::Failed(how.to_owned());
            self.effects.push(SupervisionEffect::LetGoOfBeside);
            self.roll_failed(how, now);
        }
        beside
    }

    /// What failed must not be what a later crash of the current life starts.
    fn roll_failed(&mut self, why: &str, now: MonotonicTime) {
        if let Some(before) = self.rolling.before.take() {
            self.rules = before;
            self.restarts = before.restarts();
        }
        self.effects
            .push(SupervisionEffect::RollFailed(why.to_owned()));
        self.publish(None, now);
    }

    /// The current life ended by itself while the second one starts, which goes on as the next life.
    /// False where there is none.
    pub(super) fn promotes(&mut self, exit: &ServerExit, how: &str, now: MonotonicTime) -> bool {
        let Some(life) = self.rolling.beside.take() else {
            return false;
        };
        self.rolling.before = None;
        if self.took_calls() {
            self.tell_disconnected(exit.clone(), how.to_owned(), None);
        }
        self.advance_to_end(exit, how.to_owned(), now);
        self.advance(LifecycleEvent::TryAgain, now);
        self.current = life;
        self.lives_now = true;
        self.rolling.status = RollStatus::None;
        self.effects.push(SupervisionEffect::Promote);
        self.publish(Some(how.to_owned()), now);
        true
    }

    /// The current life begins to end by itself: what was asked for follows when it has.
    pub(super) fn roll_later(&mut self) {
        if self.rolling.beside.is_some() {
            self.give_up_rolling("the server began to end meanwhile; it is started again");
            self.start_again = true;
        }
    }

    /// Somebody ordered something else.
    pub(super) fn stop_rolling(&mut self, now: MonotonicTime) {
        if self.rolling.beside.is_some() {
            self.give_up_rolling("it was stopped meanwhile");
            self.publish(None, now);
        }
        if self.rolling.leaving.is_some() {
            self.effects.push(SupervisionEffect::HurryLeaving);
        }
    }

    /// A whole new life forgets what came of the last rolling restart.
    pub(super) fn forget_rolling(&mut self) {
        self.rolling.status = RollStatus::None;
    }

    /// A stop is answered when no life is left.
    pub(super) fn answer_stops(&mut self) {
        match self.rolling.leaving {
            Some(_) => self.rolling.owes_answer = true,
            None => self.effects.push(SupervisionEffect::AnswerStops),
        }
    }

    /// The life beside failed and is to end; the current one stays.
    pub(super) fn end_beside(&mut self, why: &str, now: MonotonicTime) {
        let before = self.rolling.before;
        self.give_up_rolling(why);
        self.rolling.before = before;
        self.roll_failed(why, now);
    }

    fn give_up_rolling(&mut self, why: &str) {
        self.rolling.before = None;
        self.rolling.leaving = self.rolling.beside.take();
        self.rolling.status = RollStatus::Failed(why.to_owned());
        self.effects
            .push(SupervisionEffect::EndBeside(why.to_owned()));
    }
}

#[cfg(test)]
mod tests;
