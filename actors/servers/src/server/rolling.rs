//! A second life beside the current one, which takes its place without a gap.

use std::sync::Arc;

use mgp_engine::servers::spec::ServerSpec;
use mgp_engine::servers::supervision::{StopOrder, SupervisionInput, SupervisionRules};

use super::life::LifeHandle;
use super::lists::Fresh;
use super::{ServerActor, ServerState};
use crate::link::Link;

/// The lives beside the current one.
#[derive(Debug, Default)]
pub(super) struct Rolling {
    beside: Option<LifeHandle>,
    leaving: Option<LifeHandle>,
}

impl ServerActor {
    /// Whether the change to this entry is made without a gap. Permissions are asked for by whole lives
    /// alone.
    pub(super) fn rolls(state: &ServerState, spec: &ServerSpec) -> bool {
        let rules = SupervisionRules::from(spec);
        let permissions = spec.permissions == state.spec.permissions;
        permissions && state.supervision.rolls_to(&rules)
    }

    pub(super) fn start_beside(&self, state: &mut ServerState, life: u64) {
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
        former.iter().for_each(|life| life.stop(order));
        state.rolling.leaving = former;
        self.log()
            .note("the second life has taken over; the first one finishes its calls");
    }

    pub(super) fn promote(state: &mut ServerState) {
        state.life = state.rolling.beside.take();
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
