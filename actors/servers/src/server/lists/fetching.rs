//! Fetches lists again that a connected server reported as changed, one fetch per list at a time.

use std::sync::Arc;

use mgp_engine::servers::spec::ServerSpec;

use super::{FetchedLists, PinCheck, RawLists};
use crate::link::{Link, List};
use crate::server::{ServerActor, ServerMsg, ServerState};
use mgp_runtime::task;

impl ServerActor {
    pub(in crate::server) fn fetch_list(&self, state: &mut ServerState, list: List) {
        // Agents see the lists of the server itself, not of its instances.
        if self.handle.agent().is_some() {
            return self.handle.refetch_server_list(list);
        }
        let Some(link) = state.link() else {
            if !state.changed.contains(&list) {
                state.changed.push(list);
            }
            return;
        };
        // One more fetch afterwards covers all changes reported meanwhile.
        if let Some((_, again)) = state.fetching.iter_mut().find(|(l, _)| *l == list) {
            *again = true;
            return;
        }
        if self.delay_fetch(state, list) {
            return;
        }
        self.start_fetch(state, &link, list);
    }

    /// Fetches a list over this connection, without rate limiting.
    pub(super) fn start_fetch(&self, state: &mut ServerState, link: &Arc<Link>, list: List) {
        let link = link.clone();
        state.fetching.push((list, false));
        let (me, before) = (state.mailbox.clone(), state.offer.clone());
        let watch = self.pin_check(&state.spec);
        task::spawn_detached("lists.fetch", async move {
            let fetching = RawLists::fetch_one(&link, list, before, &watch);
            let _ = me.send(match task::catch_panic("lists.fetch", fetching).await {
                Ok(lists) => ServerMsg::Fetched(list, link.number, Box::new(lists)),
                Err(broken) => ServerMsg::LinkBroke(link.number, broken.to_string()),
            });
        });
    }

    pub(in crate::server) fn handle_fetched(
        &self,
        state: &mut ServerState,
        list: List,
        number: u64,
        lists: FetchedLists,
    ) {
        let link = state.link();
        let Some(link) = link.filter(|l| l.number == number) else {
            return;
        };
        let again = state.fetching.iter().any(|(l, again)| *l == list && *again);
        state.fetching.retain(|(l, _)| *l != list);
        drop(self.apply_lists(state, lists, &link));
        self.publish(state);
        if again {
            self.fetch_list(state, list);
        }
    }

    /// The settings for comparing its lists with their pins.
    pub(in crate::server) fn pin_check(&self, spec: &ServerSpec) -> PinCheck {
        PinCheck {
            pins: self.pins.clone(),
            rules: spec.pin.clone(),
        }
    }
}
