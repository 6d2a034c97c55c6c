//! Shows the offer of a server to agents.

use std::sync::Arc;

use mgp_engine::servers::supervision::SupervisionInput;
use mgp_protocol::splice::{members, quoted};
use tokio::sync::oneshot;

use super::Fresh;
use crate::link::{Link, Peer};
use crate::server::{ServerActor, ServerEvent, ServerMsg, ServerState};
use mgp_runtime::mailbox::Reply;
use mgp_runtime::task;
use mgp_runtime::time::moment;

/// Remarks on odd tools that are shown: enough to see what the server does wrong.
const ODD_MAX: usize = 20;

impl ServerActor {
    /// A life has its first lists; the server counts as connected once agents see them.
    pub(in crate::server) fn connected(
        &self,
        state: &mut ServerState,
        life: u64,
        link: &Arc<Link>,
        lists: Fresh,
    ) {
        if state.supervision.is_beside(life) {
            return self.connected_beside(state, life, link, lists);
        }
        if !state.supervision.counts(life) {
            return;
        }
        if let Some(current) = &mut state.life {
            current.link = Some(link.clone());
        }
        state.fetching.clear();
        if self.handle.agent().is_some() {
            return self.decide(state, SupervisionInput::Connected(life));
        }
        let (shown, me) = (self.offer(state, lists, link), state.me.clone());
        task::detached("lists.first", async move {
            let _ = shown.await;
            let _ = me.tell(ServerMsg::Shown(life));
        });
    }

    pub(in crate::server) fn offer(
        &self,
        state: &mut ServerState,
        mut lists: Fresh,
        link: &Link,
    ) -> oneshot::Receiver<()> {
        let mut notes = std::mem::take(&mut lists.notes);
        state.learn_missing(std::mem::take(&mut lists.asked));
        let offer = lists.over(state.offer.clone());
        state.offer = offer.making_tasks(link.bridges_tasks());
        let (presented, refused) = state.offer.clone().presented();
        self.handle.offers(&state.offer, presented);
        for kind in lists.kinds() {
            state.fetched[*kind as usize] = moment();
        }
        notes.extend(state.left_out());
        let repaired = state.offer.repaired().take(ODD_MAX);
        notes.extend(repaired.map(|slip| format!("repaired: {slip}")));
        notes.extend(state.offer.odd().take(ODD_MAX));
        notes.extend(refused);
        let new = notes.iter().filter(|note| !state.notes.contains(note));
        new.for_each(|note| self.log().note(note));
        state.notes = notes;
        self.permissions
            .tools_need(&self.handle.id, &state.offer.permissions());
        self.show(state, link)
    }

    /// Publishes the offer, without changed tools that wait for the operator.
    fn show(&self, state: &ServerState, link: &Link) -> oneshot::Receiver<()> {
        let blocked = self.pins.blocked(&self.handle.id);
        let (shown, _) = state.offer.clone().without(&blocked).presented();
        let (reply, seen) = Reply::new();
        if let Some(peer) = link.peer() {
            let peer = match shown.tools().is_empty() || peer.capabilities.tools {
                true => peer.clone(),
                false => declare_tools(peer),
            };
            self.events.send(ServerEvent::Offered {
                offer: Box::new(shown),
                peer: Box::new(peer),
                fetched: state.fetched,
                seen: reply,
            });
        }
        seen
    }

    pub(in crate::server) fn pinned(&self, state: &mut ServerState) {
        if let Some(link) = state.link() {
            drop(self.show(state, &link));
        }
    }
}

/// What a server declared that lists tools without saying so.
fn declare_tools(peer: &Peer) -> Peer {
    let said = members(&peer.raw_capabilities).unwrap_or_default();
    let said = said.iter().filter(|(name, _)| name != "tools");
    let said = said.map(|(name, value)| format!(",{}:{}", quoted(name), value.get()));
    let mut peer = Peer {
        raw_capabilities: format!("{{\"tools\":{{}}{}}}", said.collect::<String>()).into(),
        ..peer.clone()
    };
    peer.capabilities.tools = true;
    peer
}
