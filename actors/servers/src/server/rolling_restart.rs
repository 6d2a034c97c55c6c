//! Rolling restarts: a successor generation takes over from the current one without a gap.

use std::sync::Arc;

use mgp_engine::servers::spec::ServerSpec;
use mgp_engine::servers::supervision::{StopOrder, SupervisionConfig, SupervisionInput};

use super::event::ResubscriptionGuard;
use super::generation::GenerationHandle;
use super::lists::FetchedLists;
use super::{ServerActor, ServerState};
use crate::link::Link;

/// The generations besides the current one.
#[derive(Debug, Default)]
pub(super) struct RollingRestart {
    successor: Option<GenerationHandle>,
    draining: Option<GenerationHandle>,
    /// The entry of the current generation, while a successor starts under another entry.
    previous_spec: Option<ServerSpec>,
    /// An entry whose generation failed. It is used again only on request; a crash of the current generation
    /// restarts the previous entry.
    failed_spec: Option<ServerSpec>,
    resubscription_guard: ResubscriptionGuard,
}

impl RollingRestart {
    /// Takes the guard for restoring subscriptions at the new generation.
    pub(super) fn take_resubscription_guard(&mut self) -> ResubscriptionGuard {
        std::mem::take(&mut self.resubscription_guard)
    }

    /// Forgets the previous entry, because a full start uses the newest one.
    pub(super) fn clear_previous(&mut self) {
        self.previous_spec = None;
    }

    /// Forgets the failed entry, because there is a newer one.
    pub(super) fn clear_failed(&mut self) {
        self.failed_spec = None;
    }
}

impl ServerActor {
    /// True if the change to this entry can be a rolling restart. Changed permissions need a full restart.
    pub(super) fn can_roll_to(state: &ServerState, spec: &ServerSpec) -> bool {
        let rules = SupervisionConfig::from(spec);
        let permissions = spec.permissions == state.spec.permissions;
        permissions && state.supervision.can_roll_to(&rules)
    }

    /// Applies a changed entry with a rolling restart.
    pub(super) fn roll_to(&self, state: &mut ServerState, spec: ServerSpec) {
        let rules = SupervisionConfig::from(&spec);
        state.rolling_restart.previous_spec = Some(std::mem::replace(&mut state.spec, spec));
        self.apply_order(state, SupervisionInput::Reconfigured(rules));
    }

    /// Starts a rolling restart for the operator, with the newest entry.
    pub(super) fn roll(&self, state: &mut ServerState) {
        match state.rolling_restart.failed_spec.take() {
            Some(newest) => self.reconfigure(state, newest),
            None => self.apply_order(state, SupervisionInput::Roll),
        }
    }

    /// Restarts the server for the operator, with the newest entry.
    pub(super) fn restart(&self, state: &mut ServerState) {
        match state.rolling_restart.failed_spec.take() {
            Some(newest) => self.replace(state, newest),
            None => self.apply_order(state, SupervisionInput::Restart),
        }
    }

    /// Starts the server for the operator; if it does not run, with the newest entry.
    pub(super) fn start(&self, state: &mut ServerState) {
        if state.generation.is_none()
            && let Some(newest) = state.rolling_restart.failed_spec.take()
        {
            self.replace(state, newest);
        }
        self.restore_offer(state);
        self.apply_order(state, SupervisionInput::Start { by_operator: true });
    }

    /// Handles a failed successor: the current generation continues under its own entry.
    pub(super) fn roll_failed(&self, state: &mut ServerState, why: &str) {
        if let Some(before) = state.rolling_restart.previous_spec.take() {
            let failed = std::mem::replace(&mut state.spec, before);
            state.rolling_restart.failed_spec = Some(failed);
        }
        self.audit_replacement_failure(why);
    }

    pub(super) fn start_successor(&self, state: &mut ServerState, generation: u64) {
        self.handle.count_generation();
        let (spec, offer) = (state.spec.clone(), state.offer.clone());
        let current = state.generation.as_ref();
        let successor = GenerationHandle::start(
            self,
            generation,
            spec,
            offer,
            state.mailbox.clone(),
            current,
        );
        self.log().push_note("a successor is started, to take over");
        state.rolling_restart.successor = Some(successor);
    }

    /// Handles a successor that is connected and has its lists.
    pub(super) fn handle_successor_connected(
        &self,
        state: &mut ServerState,
        generation: u64,
        link: &Arc<Link>,
        lists: FetchedLists,
    ) {
        if let Some(successor) = &mut state.rolling_restart.successor {
            successor.link = Some(link.clone());
        }
        self.apply_input(state, SupervisionInput::Connected(generation));
        drop(self.apply_lists(state, lists, link));
    }

    /// Makes the successor current. Calls get the new connection before the previous one stops accepting them,
    /// so that none is lost.
    pub(super) fn take_over(&self, state: &mut ServerState, order: StopOrder) {
        let previous = std::mem::replace(
            &mut state.generation,
            state.rolling_restart.successor.take(),
        );
        state.fetching.clear();
        state
            .link()
            .into_iter()
            .for_each(|link| self.handle.set_link(link));
        let (hold, renewals) = ResubscriptionGuard::new();
        (
            state.rolling_restart.resubscription_guard,
            state.rolling_restart.previous_spec,
        ) = (hold, None);
        if let Some(previous) = &previous {
            let link = previous.link.iter();
            link.for_each(|link| self.handle.set_draining_link(link));
            previous.drain_replaced(order, renewals);
        }
        state.rolling_restart.draining = previous;
        self.log()
            .push_note("the successor has taken over; the previous process finishes its calls");
    }

    pub(super) fn promote(state: &mut ServerState) {
        state.generation = state.rolling_restart.successor.take();
        state.rolling_restart.previous_spec = None;
    }

    pub(super) fn stop_successor(&self, state: &mut ServerState, why: String) {
        self.log()
            .push_note(&format!("the successor was stopped: {why}"));
        let successor = state.rolling_restart.successor.take();
        successor
            .iter()
            .for_each(|generation| generation.fail(why.clone()));
        state.rolling_restart.draining = successor;
    }

    pub(super) fn release_successor(&self, state: &mut ServerState) {
        state.rolling_restart.successor = None;
        self.log()
            .push_note("the successor failed; the current process continues");
    }

    pub(super) fn hurry_draining(state: &ServerState) {
        state
            .rolling_restart
            .draining
            .iter()
            .for_each(GenerationHandle::hurry);
    }

    pub(super) fn release_draining(state: &mut ServerState) {
        state.rolling_restart.draining = None;
    }
}
