//! Carries out what the engine decides about one server, and announces it (MGP §11.4).

use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::lifecycle::Transition;
use mgp_engine::servers::supervision::{SupervisionEffect, SupervisionInput};
use mgp_engine::timestamps::rfc3339_ms;
use mgp_protocol::mgp;

use super::life::LifeHandle;
use super::lists::pace::ListPaces;
use super::{ServerActor, ServerEvent, ServerMsg, ServerState};
use crate::levels;
use mgp_runtime::task;
use mgp_runtime::time::{moment, unix_ms};

impl ServerActor {
    /// Passes an input to the engine and carries out its effects.
    pub(super) fn decide(&self, state: &mut ServerState, event: SupervisionInput) {
        for effect in state.supervision.handle(event, moment()) {
            self.perform(state, effect);
        }
    }

    fn perform(&self, state: &mut ServerState, effect: SupervisionEffect) {
        match effect {
            SupervisionEffect::StartLife(life) => self.start_life(state, life),
            SupervisionEffect::StartBeside(life) => self.start_beside(state, life),
            SupervisionEffect::EndBeside(why) => self.end_beside(state, why),
            SupervisionEffect::LetGoOfBeside => self.let_go_of_beside(state),
            SupervisionEffect::RollFailed(why) => self.roll_failed(state, &why),
            SupervisionEffect::TakeOver(order) => self.take_over(state, order),
            SupervisionEffect::Promote => Self::promote(state),
            SupervisionEffect::HurryLeaving => Self::hurry_leaving(state),
            SupervisionEffect::LetGoOfLeaving => Self::let_go_of_leaving(state),
            SupervisionEffect::StopLife(order) => state.life.iter().for_each(|c| c.stop(order)),
            SupervisionEffect::FailLife(why) => state.life.iter().for_each(|c| c.fail(why.clone())),
            SupervisionEffect::LetGo => self.let_go(state),
            SupervisionEffect::EndInstances(order) => self.end_instances(state, order),
            SupervisionEffect::OpenToCalls => {
                state.link().into_iter().for_each(|l| self.handle.fill(l))
            }
            SupervisionEffect::CloseToCalls => self.handle.vacate(),
            SupervisionEffect::Announce(step) => self.announce(&step),
            SupervisionEffect::Ignore(step) => {
                tracing::debug!(server = %self.handle.id, illegal = %step, "lifecycle")
            }
            SupervisionEffect::Publish(standing) => {
                self.handle.publish(Self::status(state, standing))
            }
            SupervisionEffect::TellConnected => self.tell_connected(state),
            SupervisionEffect::TellDisconnected(exit, how, verdict) => {
                self.tell_disconnected(&exit, &how, verdict.as_ref())
            }
            SupervisionEffect::Withdraw => self.withdraw(),
            SupervisionEffect::AnswerStops => {
                state.stopping.drain(..).for_each(|reply| reply.send(()))
            }
            SupervisionEffect::RetryAt(at) => self.retry_at(state, at),
            SupervisionEffect::TakeTurn => self.take_turn(state),
            SupervisionEffect::Note(implausible) => self.log().note(&implausible.to_string()),
        }
    }

    /// Starts a life; it reports as `Connected` and `Ended`.
    fn start_life(&self, state: &mut ServerState, life: u64) {
        state.next_try = None;
        state.rolling.forget_before();
        state.changed.clear();
        state.last_words = None;
        self.handle.life_begins();
        let (spec, offer) = (state.spec.clone(), state.offer.clone());
        let life = LifeHandle::begin(self, life, spec, offer, state.me.clone(), None);
        state.life = Some(life);
    }

    fn let_go(&self, state: &mut ServerState) {
        let life = state.life.take();
        state.last_words = life.and_then(|life| life.start.last_words(self.log()));
        state.missing.clear();
        state.paces = ListPaces::default();
        self.handle.vacate();
        let key = self.handle.key().clone();
        self.events.send(ServerEvent::Disconnected(key));
    }

    fn retry_at(&self, state: &mut ServerState, at: MonotonicTime) {
        let mut status = self.handle.status();
        status.next_try = Some(at);
        self.handle.publish(status);
        let (me, life) = (state.me.clone(), state.supervision.life());
        state.next_try = Some(task::supervised("server.next_start", async move {
            tokio::time::sleep(at.since(moment())).await;
            let _ = me.tell(ServerMsg::RetryDue(life));
        }));
    }

    fn take_turn(&self, state: &mut ServerState) {
        let turn = self.connector.starts.turn(moment());
        self.decide(state, SupervisionInput::Turn(turn));
    }

    /// Called only when agents can see its tools.
    fn tell_connected(&self, state: &mut ServerState) {
        let Some(link) = state.link() else { return };
        self.handle.set_connected();
        if self.handle.agent().is_none() && self.handle.may_audit() {
            crate::audit_forwarding::forward(&self.audit, &self.permissions, &link);
        }
        self.audit_connected(&link);
        let key = self.handle.key().clone();
        let hold = state.rolling.take_hold();
        self.events.send(ServerEvent::Connected(key, hold));
        for list in std::mem::take(&mut state.changed) {
            self.fetch(state, list);
        }
        let directory = self.directory.clone();
        let tell = async move { levels::tell(&directory, &link).await };
        task::detached("server.log_level", tell);
    }

    /// Announces a change of state.
    pub(super) fn announce(&self, step: &Transition) {
        tracing::info!(server = %self.handle.id, from = %step.from, to = %step.to,
            reason = %step.reason, "lifecycle");
        self.tell_agents(step);
    }

    /// Agents that negotiated `lifecycle` are told of every change.
    fn tell_agents(&self, step: &Transition) {
        // Instances come and go with calls, so nobody is told.
        if self.handle.agent().is_some() {
            return;
        }
        let step = mgp::Lifecycle {
            server_id: self.handle.id.to_string(),
            previous_state: step.from.to_string(),
            new_state: step.to.to_string(),
            reason: step.reason.to_string(),
            timestamp: rfc3339_ms(unix_ms()),
        };
        self.directory.stepped(&self.handle.id, &step);
        self.events.send(ServerEvent::Stepped(step));
    }
}
