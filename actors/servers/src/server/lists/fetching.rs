//! Fetches lists again that a connected server announced as changed, one at a time.

use std::sync::Arc;

use mgp_engine::servers::spec::ServerSpec;

use super::{Fresh, Lists, Watch};
use crate::link::{Link, List};
use crate::server::{ServerActor, ServerMsg, ServerState};
use mgp_runtime::task;

impl ServerActor {
    pub(in crate::server) fn fetch(&self, state: &mut ServerState, list: List) {
        // Agents see the lists of the server itself, not of its instances.
        if self.handle.agent().is_some() {
            return self.handle.refresh_all(list);
        }
        let Some(link) = state.link() else {
            if !state.changed.contains(&list) {
                state.changed.push(list);
            }
            return;
        };
        // One more fetch afterwards covers all changes announced meanwhile.
        if let Some((_, again)) = state.fetching.iter_mut().find(|(l, _)| *l == list) {
            *again = true;
            return;
        }
        if self.waits_for_pace(state, list) {
            return;
        }
        self.fetch_now(state, &link, list);
    }

    /// Fetches a list over this connection; its turn is taken.
    pub(super) fn fetch_now(&self, state: &mut ServerState, link: &Arc<Link>, list: List) {
        let link = link.clone();
        state.fetching.push((list, false));
        let (me, before) = (state.me.clone(), state.offer.clone());
        let watch = self.watch(&state.spec);
        task::detached("lists.fetch", async move {
            let fetching = Lists::fetch_one(&link, list, before, &watch);
            let _ = me.tell(match task::caught("lists.fetch", fetching).await {
                Ok(lists) => ServerMsg::Fetched(list, link.number, Box::new(lists)),
                Err(broken) => ServerMsg::LinkBroke(link.number, broken.to_string()),
            });
        });
    }

    pub(in crate::server) fn fetched(
        &self,
        state: &mut ServerState,
        list: List,
        number: u64,
        lists: Fresh,
    ) {
        let link = state.link();
        let Some(link) = link.filter(|l| l.number == number) else {
            return;
        };
        let again = state.fetching.iter().any(|(l, again)| *l == list && *again);
        state.fetching.retain(|(l, _)| *l != list);
        drop(self.offer(state, lists, &link));
        self.publish(state);
        if again {
            self.fetch(state, list);
        }
    }

    /// The settings for comparing its lists with their pins.
    pub(in crate::server) fn watch(&self, spec: &ServerSpec) -> Watch {
        Watch {
            pins: self.pins.clone(),
            rules: spec.pin.clone(),
        }
    }
}
