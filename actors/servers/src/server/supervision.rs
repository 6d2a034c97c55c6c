//! Carries out the engine's decisions about one server, and announces them (MGP §11.4).

use mgp_engine::clock::MonotonicTime;
use mgp_engine::servers::lifecycle::Transition;
use mgp_engine::servers::supervision::{SupervisionEffect, SupervisionInput};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::mgp;

use super::generation::GenerationHandle;
use super::lists::pace::ListPaces;
use super::{ServerActor, ServerEvent, ServerMsg, ServerState};
use crate::log_levels;
use mgp_runtime::task;
use mgp_runtime::time::{monotonic_now, unix_ms};

impl ServerActor {
    /// Passes an input to the engine and carries out its effects.
    pub(super) fn apply_input(&self, state: &mut ServerState, event: SupervisionInput) {
        for effect in state.supervision.handle(event, monotonic_now()) {
            self.perform(state, effect);
        }
    }

    fn perform(&self, state: &mut ServerState, effect: SupervisionEffect) {
        match effect {
            SupervisionEffect::StartGeneration(generation) => {
                self.start_generation(state, generation)
            }
            SupervisionEffect::StartReplacement(generation) => {
                self.start_successor(state, generation)
            }
            SupervisionEffect::FailReplacement(why) => self.stop_successor(state, why),
            SupervisionEffect::ReleaseReplacement => self.release_successor(state),
            SupervisionEffect::RollFailed(why) => self.roll_failed(state, &why),
            SupervisionEffect::SwitchToReplacement(order) => self.take_over(state, order),
            SupervisionEffect::PromoteReplacement => Self::promote(state),
            SupervisionEffect::HurryRetiring => Self::hurry_draining(state),
            SupervisionEffect::ReleaseRetiring => Self::release_draining(state),
            SupervisionEffect::StopGeneration(order) => {
                state.generation.iter().for_each(|c| c.stop(order))
            }
            SupervisionEffect::FailGeneration(why) => {
                state.generation.iter().for_each(|c| c.fail(why.clone()))
            }
            SupervisionEffect::ReleaseGeneration => self.release_generation(state),
            SupervisionEffect::EndInstances(order) => self.stop_instances(state, order),
            SupervisionEffect::AcceptCalls => state
                .link()
                .into_iter()
                .for_each(|l| self.handle.set_link(l)),
            SupervisionEffect::SuspendCalls => self.handle.clear_link(),
            SupervisionEffect::Announce(step) => self.announce(&step),
            SupervisionEffect::Ignore(step) => {
                tracing::debug!(server = %self.handle.id, illegal = %step, "lifecycle")
            }
            SupervisionEffect::Publish(status) => self.handle.publish(self.status(state, status)),
            SupervisionEffect::NotifyConnected => self.report_connected(state),
            SupervisionEffect::NotifyDisconnected(exit, how, verdict) => {
                self.audit_disconnected(&exit, &how, verdict.as_ref())
            }
            SupervisionEffect::WithdrawOffer => self.withdraw(),
            SupervisionEffect::AnswerStopRequests => {
                state.stopping.drain(..).for_each(|reply| reply.send(()))
            }
            SupervisionEffect::RetryAt(at) => self.schedule_retry(state, at),
            SupervisionEffect::MeasureUsageAt(at) => Self::schedule_usage_check(state, at),
            SupervisionEffect::RequestPermit => self.request_restart_time(state),
            SupervisionEffect::ReportImplausible(implausible) => {
                self.log().push_note(&implausible.to_string())
            }
        }
    }

    /// Starts a generation; it reports with `Connected` and `Ended`.
    fn start_generation(&self, state: &mut ServerState, generation: u64) {
        state.retry_timer = None;
        state.rolling_restart.clear_previous();
        state.changed.clear();
        state.last_output = None;
        self.handle.count_generation();
        self.handle.reset_use();
        let (spec, offer) = (state.spec.clone(), state.offer.clone());
        let generation =
            GenerationHandle::start(self, generation, spec, offer, state.mailbox.clone(), None);
        state.generation = Some(generation);
    }

    fn release_generation(&self, state: &mut ServerState) {
        let generation = state.generation.take();
        let link = generation.as_ref().and_then(|one| one.link.as_ref());
        if state.spec.start.is_on_demand() && link.is_some_and(|link| link.has_subscriptions()) {
            // Its subscribers still follow it, like a call that waits.
            let _ = state.mailbox.send_to_self(ServerMsg::CallWaiting);
        }
        state.last_output =
            generation.and_then(|generation| generation.start.explain_exit(self.log()));
        state.missing.clear();
        state.paces = ListPaces::default();
        self.handle.clear_link();
        let key = self.handle.key().clone();
        self.events.send(ServerEvent::Disconnected(key));
    }

    fn schedule_retry(&self, state: &mut ServerState, at: MonotonicTime) {
        let mut status = self.handle.status();
        status.next_start = Some(at);
        self.handle.publish(status);
        let (mailbox, generation) = (state.mailbox.clone(), state.supervision.generation());
        state.retry_timer = Some(task::spawn_supervised("server.next_start", async move {
            tokio::time::sleep(at.duration_since(monotonic_now())).await;
            let _ = mailbox.send(ServerMsg::RetryDue(generation));
        }));
    }

    fn schedule_usage_check(state: &mut ServerState, at: MonotonicTime) {
        let (mailbox, generation) = (state.mailbox.clone(), state.supervision.generation());
        state.usage_timer = Some(task::spawn_supervised("server.usage", async move {
            tokio::time::sleep(at.duration_since(monotonic_now())).await;
            let _ = mailbox.send_to_self(ServerMsg::UsageCheckDue(generation));
        }));
    }

    fn request_restart_time(&self, state: &mut ServerState) {
        let restart_at = self.connector.spawner.next_restart_time(monotonic_now());
        self.apply_input(state, SupervisionInput::PermitGranted(restart_at));
    }

    /// Reports the connection; called once agents can see its tools.
    fn report_connected(&self, state: &mut ServerState) {
        let Some(link) = state.link() else { return };
        self.handle.set_connected();
        if let Some(generation) = &state.generation {
            self.handle.record_start(generation.start.elapsed());
        }
        if self.handle.agent().is_none() && self.handle.can_audit() {
            crate::audit_forwarding::forward(&self.audit, &self.permissions, &link);
        }
        self.audit_connected(&link);
        if let Some(level) = state.spec.mgp.unsealed_from {
            self.audit_unsealed(level);
        }
        let key = self.handle.key().clone();
        let hold = state.rolling_restart.take_resubscription_guard();
        self.events.send(ServerEvent::Connected(key, hold));
        for list in std::mem::take(&mut state.changed) {
            self.fetch_list(state, list);
        }
        let directory = self.directory.clone();
        let tell = async move { log_levels::sync_level(&directory, &link).await };
        task::spawn_detached("server.log_level", tell);
    }

    /// Announces a change of state.
    pub(super) fn announce(&self, step: &Transition) {
        tracing::info!(server = %self.handle.id, from = %step.from, to = %step.to,
            reason = %step.reason, "lifecycle");
        self.notify_agents(step);
    }

    /// Notifies agents that negotiated `lifecycle` of each change.
    fn notify_agents(&self, step: &Transition) {
        // Instances start and stop with calls, so they are not announced.
        if self.handle.agent().is_some() {
            return;
        }
        let step = mgp::Lifecycle {
            server_id: self.handle.id.to_string(),
            previous_state: step.from.to_string(),
            new_state: step.to.to_string(),
            reason: step.reason.to_string(),
            timestamp: render_rfc3339_ms(unix_ms()),
        };
        self.directory.notify_lifecycle(&self.handle.id, &step);
        self.events.send(ServerEvent::StateChanged(step));
    }
}
