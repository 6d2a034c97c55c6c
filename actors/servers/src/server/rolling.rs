//! A second life beside the current one, which takes its place without a gap.

use std::sync::Arc;

use mgp_engine::servers::spec::ServerSpec;
use mgp_engine::servers::supervision::{StopOrder, SupervisionInput, SupervisionRules};

use super::event::RenewalHold;
use super::life::LifeHandle;
use super::lists::Fresh;
use super::{ServerActor, ServerState};
use crate::link::Link;

/// The lives beside the current one.
#[derive(Debug, Default)]
pub(super) struct Rolling {
    beside: Option<LifeHandle>,
    leaving: Option<LifeHandle>,
    /// The entry of the current life, while the one beside is started under another.
    before: Option<ServerSpec>,
    /// An entry whose life failed. It is started only on request: a crash of the life that stayed starts what
    /// ran before.
    refused: Option<ServerSpec>,
    hold: RenewalHold,
}

impl Rolling {
    /// For who makes subscriptions again at the life that has just taken over.
    pub(super) fn take_hold(&mut self) -> RenewalHold {
        std::mem::take(&mut self.hold)
    }

    /// A whole new life is started, under the newest entry.
    pub(super) fn forget_before(&mut self) {
        self.before = None;
    }

    /// There is a newer entry.
    pub(super) fn forget_refused(&mut self) {
        self.refused = None;
    }
}

impl ServerActor {
    /// Whether the change to this entry is made without a gap. Permissions are asked for by whole lives
    /// alone.
    pub(super) fn rolls(state: &ServerState, spec: &ServerSpec) -> bool {
        let rules = SupervisionRules::from(spec);
        let permissions = spec.permissions == state.spec.permissions;
        permissions && state.supervision.rolls_to(&rules)
    }

    /// Takes a changed entry up without a gap.
    pub(super) fn roll_to(&self, state: &mut ServerState, spec: ServerSpec) {
        let rules = SupervisionRules::from(&spec);
        state.rolling.before = Some(std::mem::replace(&mut state.spec, spec));
        self.order(state, SupervisionInput::Reconfigured(rules));
    }

    /// The operator wants it replaced, by its newest entry.
    pub(super) fn roll(&self, state: &mut ServerState) {
        match state.rolling.refused.take() {
            Some(newest) => self.reconfigure(state, newest),
            None => self.order(state, SupervisionInput::Roll),
        }
    }

    /// The operator wants it restarted, under its newest entry.
    pub(super) fn restart(&self, state: &mut ServerState) {
        match state.rolling.refused.take() {
            Some(newest) => self.replace(state, newest),
            None => self.order(state, SupervisionInput::Restart),
        }
    }

    /// The operator wants it started: where it does not run, under its newest entry.
    pub(super) fn start(&self, state: &mut ServerState) {
        if state.life.is_none()
            && let Some(newest) = state.rolling.refused.take()
        {
            self.replace(state, newest);
        }
        self.restore_offer(state);
        self.order(state, SupervisionInput::Start { by_operator: true });
    }

    /// The life beside failed: the current one goes on under the entry it was started with.
    pub(super) fn roll_failed(&self, state: &mut ServerState, why: &str) {
        if let Some(before) = state.rolling.before.take() {
            let failed = std::mem::replace(&mut state.spec, before);
            state.rolling.refused = Some(failed);
        }
        self.tell_not_replaced(why);
    }

    pub(super) fn start_beside(&self, state: &mut ServerState, life: u64) {
        self.handle.life_begins();
        let (spec, offer) = (state.spec.clone(), state.offer.clone());
        let current = state.life.as_ref();
        let beside = LifeHandle::begin(self, life, spec, offer, state.me.clone(), current);
        self.log().note("a second life is started, to take over");
        state.rolling.beside = Some(beside);
    }

    /// The life beside is connected and has its lists.
    pub(super) fn connected_beside(
        &self,
        state: &mut ServerState,
        life: u64,
        link: &Arc<Link>,
        lists: Fresh,
    ) {
        if let Some(beside) = &mut state.rolling.beside {
            beside.link = Some(link.clone());
        }
        self.decide(state, SupervisionInput::Connected(life));
        drop(self.offer(state, lists, link));
    }

    /// Calls get the new connection before the former one takes none any more, so that none is lost.
    pub(super) fn take_over(&self, state: &mut ServerState, order: StopOrder) {
        let former = std::mem::replace(&mut state.life, state.rolling.beside.take());
        state.fetching.clear();
        state
            .link()
            .into_iter()
            .for_each(|link| self.handle.fill(link));
        let (hold, renewals) = RenewalHold::new();
        (state.rolling.hold, state.rolling.before) = (hold, None);
        if let Some(former) = &former {
            let link = former.link.iter();
            link.for_each(|link| self.handle.set_leaving(link));
            former.leave(order, renewals);
        }
        state.rolling.leaving = former;
        self.log()
            .note("the second life has taken over; the first one finishes its calls");
    }

    pub(super) fn promote(state: &mut ServerState) {
        state.life = state.rolling.beside.take();
        state.rolling.before = None;
    }

    pub(super) fn end_beside(&self, state: &mut ServerState, why: String) {
        self.log()
            .note(&format!("the second life is given up: {why}"));
        let beside = state.rolling.beside.take();
        beside.iter().for_each(|life| life.fail(why.clone()));
        state.rolling.leaving = beside;
    }

    pub(super) fn let_go_of_beside(&self, state: &mut ServerState) {
        state.rolling.beside = None;
        self.log()
            .note("the second life failed; the first one goes on");
    }

    pub(super) fn hurry_leaving(state: &ServerState) {
        state.rolling.leaving.iter().for_each(LifeHandle::hurry);
    }

    pub(super) fn let_go_of_leaving(state: &mut ServerState) {
        state.rolling.leaving = None;
    }
}
