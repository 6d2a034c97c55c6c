//! Publishes a server's offer to agents.

use std::sync::Arc;

use mgp_engine::policy::pins::{INSTRUCTIONS_NAME, prompt_name};
use mgp_engine::servers::supervision::SupervisionInput;
use mgp_json::set_members;
use tokio::sync::oneshot;

use super::FetchedLists;
use crate::link::{Link, Peer};
use crate::server::{ServerActor, ServerEvent, ServerMsg, ServerState};
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{Reply, task};

/// The most remarks on visible tools: enough to see the server's mistakes.
const REMARKS_MAX: usize = 20;

impl ServerActor {
    /// Handles the first lists of a generation; the server counts as connected once agents see them.
    pub(in crate::server) fn handle_connected(
        &self,
        state: &mut ServerState,
        generation: u64,
        link: &Arc<Link>,
        lists: FetchedLists,
    ) {
        if state.supervision.is_replacement(generation) {
            return self.handle_successor_connected(state, generation, link, lists);
        }
        if !state.supervision.is_current_generation(generation) {
            return;
        }
        if let Some(current) = &mut state.generation {
            current.link = Some(link.clone());
        }
        state.fetching.clear();
        if self.handle.agent().is_some() {
            return self.apply_input(state, SupervisionInput::Connected(generation));
        }
        let (published, mailbox) = (self.apply_lists(state, lists, link), state.mailbox.clone());
        task::spawn_detached("lists.first", async move {
            let _ = published.await;
            let _ = mailbox.send(ServerMsg::Published(generation));
        });
    }

    pub(in crate::server) fn apply_lists(
        &self,
        state: &mut ServerState,
        mut lists: FetchedLists,
        link: &Link,
    ) -> oneshot::Receiver<()> {
        let mut notes = std::mem::take(&mut lists.remarks);
        state.record_fetched(std::mem::take(&mut lists.fetched));
        let offer = lists.apply_to(state.offer.clone());
        state.offer = offer.with_task_support(link.should_bridge_tasks());
        let (presented, refused) = state.offer.clone().with_overrides();
        self.handle.set_offer(&state.offer, presented);
        for kind in lists.kinds() {
            state.fetched[*kind as usize] = monotonic_now();
        }
        notes.extend(state.describe_omissions());
        let repaired = state.offer.repairs().take(REMARKS_MAX);
        notes.extend(repaired.map(|slip| format!("repaired: {slip}")));
        notes.extend(state.offer.unrecognized_security().take(REMARKS_MAX));
        notes.extend(refused);
        let new = notes.iter().filter(|note| !state.remarks.contains(note));
        new.for_each(|note| self.log().push_note(note));
        state.remarks = notes;
        self.permissions
            .add_tool_needs(&self.handle.id, &state.offer.permissions());
        state.last_peer = link.peer().cloned().map(Box::new);
        self.save_last_lists(state);
        self.publish_offer(state)
    }

    /// Publishes the offer, without changed tools that wait for the operator.
    pub(super) fn publish_offer(&self, state: &ServerState) -> oneshot::Receiver<()> {
        let blocked = self.pins.blocked(&self.handle.id);
        let visible = state.offer.clone().without_tools(&blocked);
        let is_hidden =
            |prompt: &str| !blocked.is_empty() && blocked.contains(&prompt_name(prompt));
        let (visible, _) = visible.without_prompts(is_hidden).with_overrides();
        let (reply, seen) = Reply::new();
        if let Some(peer) = state.last_peer.as_deref() {
            let peer = if visible.tools().is_empty() || peer.capabilities.tools {
                peer.clone()
            } else {
                with_declared_tools(peer)
            };
            let peer = Peer {
                instructions: peer
                    .instructions
                    .filter(|_| !blocked.contains(INSTRUCTIONS_NAME)),
                ..peer
            };
            self.events.send(ServerEvent::Offered {
                offer: Box::new(visible),
                peer: Box::new(peer),
                fetched: state.fetched,
                published: reply,
            });
        }
        seen
    }

    pub(in crate::server) fn handle_pins_decided(&self, state: &mut ServerState) {
        if state.link().is_some() || self.handle.status().starts_on_call {
            drop(self.publish_offer(state));
        }
    }
}

/// Adds the tools capability to the declaration of a server that lists tools without declaring them.
fn with_declared_tools(peer: &Peer) -> Peer {
    let mut peer = Peer {
        raw_capabilities: set_members(peer.raw_capabilities.trim(), &[("tools", "{}")]).into(),
        ..peer.clone()
    };
    peer.capabilities.tools = true;
    peer
}
