//! The ends of lives: by themselves, on request, or for using too much.

use super::{PlannedRetry, StartTurn, StopOrder, Supervision, SupervisionEffect};
use crate::clock::MonotonicTime;
use crate::servers::lifecycle::{LifecycleEvent, LifecycleState, TransitionReason};
use crate::servers::restart::{RestartVerdict, ServerExit};

impl Supervision {
    /// It ends as on request, and counts as failed (MGP-140). While it starts there is nothing to be
    /// drained; where it ends already, that goes on.
    pub(super) fn over_limit(&mut self, life: u64, why: String, now: MonotonicTime) {
        if self.is_beside(life) {
            return self.end_beside(&why, now);
        }
        if !self.counts(life) {
            return;
        }
        match self.lifecycle.state() {
            LifecycleState::Connected => {
                let order = StopOrder::from(TransitionReason::ResourceLimit);
                self.roll_later();
                self.over_limit = Some(why.clone());
                self.effects.push(SupervisionEffect::EndInstances(order));
                self.effects.push(SupervisionEffect::StopLife(order));
                self.effects.push(SupervisionEffect::CloseToCalls);
                self.step(LifecycleEvent::StopRequested(order.why), Some(why), now);
            }
            LifecycleState::Connecting | LifecycleState::Restarting => {
                self.effects.push(SupervisionEffect::FailLife(why));
            }
            LifecycleState::Registered
            | LifecycleState::Draining
            | LifecycleState::Disconnected
            | LifecycleState::Error => {}
        }
    }

    pub(super) fn ended(&mut self, life: u64, exit: ServerExit, how: String, now: MonotonicTime) {
        if self.ended_beside(life, &how, now) || !self.lives_now || self.current != life {
            return;
        }
        self.lives_now = false;
        self.effects.push(SupervisionEffect::LetGo);
        let (exit, how) = match self.over_limit.take() {
            Some(why) if !self.asked_to_stop => (ServerExit::Failed(why.clone()), why),
            Some(_) | None => (exit, how),
        };
        let exit = match exit {
            // One that was never in use says nothing good of its server.
            ServerExit::SessionEnded(why) if !self.took_calls() => ServerExit::Failed(why),
            exit @ (ServerExit::Clean
            | ServerExit::Failed(_)
            | ServerExit::SessionEnded(_)
            | ServerExit::Rejected(_)) => exit,
        };
        if !self.asked_to_stop && self.promotes(&exit, &how, now) {
            return;
        }
        let failed = matches!(exit, ServerExit::Failed(_));
        self.unreachable = self.rules.remote && failed && !self.asked_to_stop;
        let verdict = self.restarts.exited(&exit, self.asked_to_stop, now);
        self.turn = match verdict.keeps_failing() {
            true => StartTurn::Wanted,
            false => StartTurn::Free,
        };
        match (self.asked_to_stop, self.start_again) {
            (true, _) => self.ended_as_asked(now),
            (false, true) => self.ended_before_a_start(exit, how, now),
            (false, false) => self.ended_by_itself(exit, how, verdict, now),
        }
    }

    fn ended_as_asked(&mut self, now: MonotonicTime) {
        if self.took_calls() {
            let why = self.why.map_or("stopped", TransitionReason::as_str);
            self.tell_disconnected(ServerExit::Clean, why.to_owned(), None);
        }
        let why = self.why.unwrap_or(TransitionReason::OperatorRequest);
        if self.start_again {
            // Published together with the life that follows at once.
            self.advance(LifecycleEvent::RestartRequested(why), now);
        } else {
            self.step(
                LifecycleEvent::Drained,
                Some(format!("stopped ({why})")),
                now,
            );
        }
        self.stopped(now);
    }

    /// It has ended by itself, and somebody asked meanwhile that it be started once it has.
    fn ended_before_a_start(&mut self, exit: ServerExit, how: String, now: MonotonicTime) {
        if self.took_calls() {
            self.tell_disconnected(exit.clone(), how.clone(), None);
        }
        self.advance_to_end(&exit, how, now);
        self.start(true, now);
    }

    fn ended_by_itself(
        &mut self,
        exit: ServerExit,
        how: String,
        verdict: RestartVerdict,
        now: MonotonicTime,
    ) {
        if self.took_calls() || matches!(verdict, RestartVerdict::Park { .. }) {
            self.tell_disconnected(exit.clone(), how.clone(), Some(verdict.clone()));
        }
        match verdict {
            RestartVerdict::Restart { after, .. } => {
                self.advance_to_end(&exit, how.clone(), now);
                self.advance(LifecycleEvent::TryAgain, now);
                self.publish(Some(how), now);
                let at = now + after;
                self.retry = Some(PlannedRetry { ended: now, at });
                self.effects.push(SupervisionEffect::RetryAt(at));
            }
            RestartVerdict::Stay => {
                self.advance_to_end(&exit, how.clone(), now);
                self.publish(Some(how), now);
                self.effects.push(SupervisionEffect::Withdraw);
            }
            // An error, however it ended the last time (MGP-151).
            RestartVerdict::Park { reason, next_try } => {
                self.advance(LifecycleEvent::Failed(how), now);
                self.publish(Some(reason), now);
                self.effects.push(SupervisionEffect::Withdraw);
                let retry = next_try.map(SupervisionEffect::RetryAt);
                self.effects.extend(retry);
            }
        }
    }

    /// The step, or the two, that this end makes.
    pub(super) fn advance_to_end(&mut self, exit: &ServerExit, how: String, now: MonotonicTime) {
        match exit {
            ServerExit::Clean => {
                let why = TransitionReason::ServerRequest;
                self.advance(LifecycleEvent::StopRequested(why), now);
                self.advance(LifecycleEvent::Drained, now);
            }
            ServerExit::Failed(_) | ServerExit::SessionEnded(_) | ServerExit::Rejected(_) => {
                self.advance(LifecycleEvent::Failed(how), now);
            }
        }
    }
}
