//! Exits: without an order, on request, or after an exceeded limit.

use super::{PlannedRetry, StartPermit, StopOrder, Supervision, SupervisionEffect};
use crate::clock::MonotonicTime;
use crate::servers::lifecycle::{LifecycleEvent, LifecycleState, TransitionReason};
use crate::servers::restart::{RestartVerdict, ServerExit};

impl Supervision {
    /// Drains the server and counts it as failed (MGP-140). A starting server has nothing to drain; one that
    /// already drains continues.
    pub(super) fn handle_over_limit(&mut self, generation: u64, why: String, now: MonotonicTime) {
        if self.is_replacement(generation) {
            return self.fail_replacement(&why, now);
        }
        if !self.is_current_generation(generation) {
            return;
        }
        match self.lifecycle.state() {
            LifecycleState::Connected => {
                let order = StopOrder::from(TransitionReason::ResourceLimit);
                self.defer_roll();
                self.limit_exceeded = Some(why.clone());
                self.effects.push(SupervisionEffect::EndInstances(order));
                self.effects.push(SupervisionEffect::StopGeneration(order));
                self.effects.push(SupervisionEffect::SuspendCalls);
                self.apply_event(LifecycleEvent::StopRequested(order.reason), Some(why), now);
            }
            LifecycleState::Connecting | LifecycleState::Restarting => {
                self.effects.push(SupervisionEffect::FailGeneration(why));
            }
            LifecycleState::Registered
            | LifecycleState::Draining
            | LifecycleState::Disconnected
            | LifecycleState::Error => {}
        }
    }

    pub(super) fn handle_exit(
        &mut self,
        generation: u64,
        exit: ServerExit,
        how: String,
        now: MonotonicTime,
    ) {
        if self.handle_other_exit(generation, &how, now)
            || !self.is_running
            || self.current != generation
        {
            return;
        }
        self.is_running = false;
        self.effects.push(SupervisionEffect::ReleaseGeneration);
        let (exit, how) = match self.limit_exceeded.take() {
            Some(why) if !self.stop_requested => (ServerExit::Failed(why.clone()), why),
            Some(_) | None => (exit, how),
        };
        let exit = match exit {
            // A session that was never in use is a failed start.
            ServerExit::SessionEnded(why) if !self.was_accepting_calls() => ServerExit::Failed(why),
            exit @ (ServerExit::Clean
            | ServerExit::Failed(_)
            | ServerExit::SessionEnded(_)
            | ServerExit::Rejected(_)) => exit,
        };
        if !self.stop_requested && self.try_promote(&exit, &how, now) {
            return;
        }
        let has_failed = matches!(exit, ServerExit::Failed(_));
        if matches!(exit, ServerExit::Failed(_) | ServerExit::Rejected(_)) {
            self.failed_generation = generation;
        }
        self.unreachable = self.config.is_remote && has_failed && !self.stop_requested;
        let verdict = self.restarts.handle_exit(&exit, self.stop_requested, now);
        self.permit = if verdict.is_failing_repeatedly() {
            StartPermit::Needed
        } else {
            StartPermit::NotNeeded
        };
        match (self.stop_requested, self.start_after_stop) {
            (true, _) => self.finish_ordered_exit(now),
            (false, true) => self.start_after_exit(exit, how, now),
            (false, false) => self.finish_unordered_exit(exit, how, verdict, now),
        }
    }

    fn finish_ordered_exit(&mut self, now: MonotonicTime) {
        if self.was_accepting_calls() {
            let why = self.stop_reason.map_or("stopped", TransitionReason::as_str);
            self.notify_disconnected(ServerExit::Clean, why.to_owned(), None);
        }
        let why = self
            .stop_reason
            .unwrap_or(TransitionReason::OperatorRequest);
        if self.start_after_stop {
            // Published with the start that follows at once.
            self.try_advance(LifecycleEvent::RestartRequested(why), now);
        } else {
            let how = self.describe_stop(why);
            self.apply_event(LifecycleEvent::Drained, Some(how), now);
        }
        self.handle_stopped(now);
    }

    /// An unordered exit after which a start was requested.
    fn start_after_exit(&mut self, exit: ServerExit, how: String, now: MonotonicTime) {
        if self.was_accepting_calls() {
            self.notify_disconnected(exit.clone(), how.clone(), None);
        }
        self.advance_to_end(&exit, how, now);
        self.start(true, now);
    }

    fn finish_unordered_exit(
        &mut self,
        exit: ServerExit,
        how: String,
        verdict: RestartVerdict,
        now: MonotonicTime,
    ) {
        let verdict = self.defer_restart(&exit, verdict, now);
        if self.was_accepting_calls() || matches!(verdict, RestartVerdict::Park { .. }) {
            self.notify_disconnected(exit.clone(), how.clone(), Some(verdict.clone()));
        }
        match verdict {
            RestartVerdict::Restart { after, .. } => {
                self.advance_to_end(&exit, how.clone(), now);
                self.try_advance(LifecycleEvent::Retry, now);
                self.publish(Some(how), now);
                let due_at = now + after;
                self.retry = Some(PlannedRetry {
                    ended_at: now,
                    due_at,
                });
                self.effects.push(SupervisionEffect::RetryAt(due_at));
            }
            RestartVerdict::StayStopped => {
                self.advance_to_end(&exit, how.clone(), now);
                self.publish(Some(how), now);
                self.withdraw_offer();
            }
            // An error even after a clean exit (MGP-151).
            RestartVerdict::Park { reason, next_try } => {
                self.is_parked = true;
                self.try_advance(LifecycleEvent::Failed(how), now);
                self.publish(Some(reason), now);
                self.effects.push(SupervisionEffect::WithdrawOffer);
                let retry = next_try.map(SupervisionEffect::RetryAt);
                self.effects.extend(retry);
            }
        }
    }

    /// Applies the transitions of an exit.
    pub(super) fn advance_to_end(&mut self, exit: &ServerExit, how: String, now: MonotonicTime) {
        match exit {
            ServerExit::Clean => {
                let why = TransitionReason::ServerRequest;
                self.try_advance(LifecycleEvent::StopRequested(why), now);
                self.try_advance(LifecycleEvent::Drained, now);
            }
            ServerExit::Failed(_) | ServerExit::SessionEnded(_) | ServerExit::Rejected(_) => {
                self.try_advance(LifecycleEvent::Failed(how), now);
            }
        }
    }
}
