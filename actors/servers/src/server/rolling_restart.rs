//! A second life beside the current one, which takes its place without a gap.

use std::sync::Arc;

use mgp_engine::servers::spec::ServerSpec;
use mgp_engine::servers::supervision::{StopOrder, SupervisionConfig, SupervisionInput};

use super::event::ResubscriptionGuard;
use super::generation::GenerationHandle;
use super::lists::FetchedLists;
use super::{ServerActor, ServerState};
use crate::link::Link;

/// The lives beside the current one.
#[derive(Debug, Default)]
pub(super) struct RollingRestart {
    successor: Option<GenerationHandle>,
    draining: Option<GenerationHandle>,
    /// The entry of the current life, while the one beside is started under another.
    previous_spec: Option<ServerSpec>,
    /// An entry whose life failed. It is started only on request: a crash of the life that stayed starts what
    /// ran before.
    failed_spec: Option<ServerSpec>,
    resubscription_guard: ResubscriptionGuard,
}

impl RollingRestart {
    /// For who makes subscriptions again at the life that has just taken over.
    pub(super) fn take_resubscription_guard(&mut self) -> ResubscriptionGuard {
        std::mem::take(&mut self.resubscription_guard)
    }

    /// A whole new life is started, under the newest entry.
    pub(super) fn clear_previous(&mut self) {
        self.previous_spec = None;
    }

    /// There is a newer entry.
    pub(super) fn clear_failed(&mut self) {
        self.failed_spec = None;
    }
}

impl ServerActor {
    /// Whether the change to this entry is made without a gap. Permissions are asked for by whole lives
    /// alone.
    pub(super) fn can_roll_to(state: &ServerState, spec: &ServerSpec) -> bool {
        let rules = SupervisionConfig::from(spec);
        let permissions = spec.permissions == state.spec.permissions;
        permissions && state.supervision.can_roll_to(&rules)
    }

    /// Takes a changed entry up without a gap.
    pub(super) fn roll_to(&self, state: &mut ServerState, spec: ServerSpec) {
        let rules = SupervisionConfig::from(&spec);
        state.rolling_restart.previous_spec = Some(std::mem::replace(&mut state.spec, spec));
        self.apply_order(state, SupervisionInput::Reconfigured(rules));
    }

    /// The operator wants it replaced, by its newest entry.
    pub(super) fn roll(&self, state: &mut ServerState) {
        match state.rolling_restart.failed_spec.take() {
            Some(newest) => self.reconfigure(state, newest),
            None => self.apply_order(state, SupervisionInput::Roll),
        }
    }

    /// The operator wants it restarted, under its newest entry.
    pub(super) fn restart(&self, state: &mut ServerState) {
        match state.rolling_restart.failed_spec.take() {
            Some(newest) => self.replace(state, newest),
            None => self.apply_order(state, SupervisionInput::Restart),
        }
    }

    /// The operator wants it started: where it does not run, under its newest entry.
    pub(super) fn start(&self, state: &mut ServerState) {
        if state.generation.is_none()
            && let Some(newest) = state.rolling_restart.failed_spec.take()
        {
            self.replace(state, newest);
        }
        self.restore_offer(state);
        self.apply_order(state, SupervisionInput::Start { by_operator: true });
    }

    /// The life beside failed: the current one goes on under the entry it was started with.
    pub(super) fn roll_failed(&self, state: &mut ServerState, why: &str) {
        if let Some(before) = state.rolling_restart.previous_spec.take() {
            let failed = std::mem::replace(&mut state.spec, before);
            state.rolling_restart.failed_spec = Some(failed);
        }
        self.audit_replacement_failure(why);
    }

    pub(super) fn start_successor(&self, state: &mut ServerState, life: u64) {
        self.handle.count_generation();
        let (spec, offer) = (state.spec.clone(), state.offer.clone());
        let current = state.generation.as_ref();
        let beside =
            GenerationHandle::start(self, life, spec, offer, state.mailbox.clone(), current);
        self.log()
            .push_note("a second life is started, to take over");
        state.rolling_restart.successor = Some(beside);
    }

    /// The life beside is connected and has its lists.
    pub(super) fn handle_successor_connected(
        &self,
        state: &mut ServerState,
        life: u64,
        link: &Arc<Link>,
        lists: FetchedLists,
    ) {
        if let Some(beside) = &mut state.rolling_restart.successor {
            beside.link = Some(link.clone());
        }
        self.apply_input(state, SupervisionInput::Connected(life));
        drop(self.apply_lists(state, lists, link));
    }

    /// Calls get the new connection before the former one takes none any more, so that none is lost.
    pub(super) fn take_over(&self, state: &mut ServerState, order: StopOrder) {
        let former = std::mem::replace(
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
        if let Some(former) = &former {
            let link = former.link.iter();
            link.for_each(|link| self.handle.set_draining_link(link));
            former.drain_replaced(order, renewals);
        }
        state.rolling_restart.draining = former;
        self.log()
            .push_note("the second life has taken over; the first one finishes its calls");
    }

    pub(super) fn promote(state: &mut ServerState) {
        state.generation = state.rolling_restart.successor.take();
        state.rolling_restart.previous_spec = None;
    }

    pub(super) fn stop_successor(&self, state: &mut ServerState, why: String) {
        self.log()
            .push_note(&format!("the second life is given up: {why}"));
        let beside = state.rolling_restart.successor.take();
        beside.iter().for_each(|life| life.fail(why.clone()));
        state.rolling_restart.draining = beside;
    }

    pub(super) fn release_successor(&self, state: &mut ServerState) {
        state.rolling_restart.successor = None;
        self.log()
            .push_note("the second life failed; the first one goes on");
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
