//! The lists of the last run of a server that starts on demand: stored when they change, and published at the kernel's
//! start, so that the server need not run to be listed.

use std::sync::Arc;

use mgp_engine::policy::requirements::RequirementInputs;
use mgp_engine::policy::risk;
use mgp_engine::servers::supervision::SupervisionInput;
use mgp_engine::tools::catalog::{ListKind, ServerOffer};
use mgp_policy::LastLists;
use mgp_protocol::dialect::Version;
use mgp_protocol::mcp::ServerCapabilities;
use mgp_protocol::mgp::negotiation::PLAIN;
use serde_json::value::RawValue;

use crate::link::Peer;
use crate::server::{ServerActor, ServerMsg, ServerState};
use mgp_runtime::task;
use mgp_runtime::time::monotonic_now;

/// What a server offered in its last run.
#[derive(Debug)]
pub struct LastOffer {
    offer: ServerOffer,
    peer: Peer,
}

impl ServerActor {
    /// Starts the server with the kernel. One that starts on demand is started only if the lists of its last run are
    /// not known.
    pub(in crate::server) fn start_with_kernel(&self, state: &mut ServerState) {
        if !state.spec.start.is_on_demand() || self.handle.agent().is_some() {
            return self.start_in_order(state);
        }
        let (watch, mailbox) = (self.pin_check(&state.spec), state.mailbox.clone());
        let id = self.handle.id.clone();
        let command = state.spec.transport.render_command();
        let inputs = RequirementInputs {
            trust: risk::effective_trust(state.spec.mgp.trust_level, None),
            rules: state.spec.tools.clone(),
        };
        let offer = ServerOffer::new(id.clone())
            .with_requirements(Arc::new(inputs))
            .with_replica_spec(state.spec.replica_spec());
        task::spawn_detached("lists.read_last", async move {
            let reading = task::run_blocking("lists.read_last", move || {
                let last = restore(watch.pins.last_lists(&id, &command)?, offer)?;
                // Changes that wait for the operator stay blocked.
                let compared = watch.compare(&last.offer, last.peer.instructions.as_deref());
                compared.is_ok().then_some(last)
            });
            let last = reading.await.ok().flatten().map(Box::new);
            let _ = mailbox.send_to_self(ServerMsg::LastListsRead(last));
        });
    }

    pub(in crate::server) fn publish_last_lists(
        &self,
        state: &mut ServerState,
        last: Option<Box<LastOffer>>,
    ) {
        let is_untouched = state.generation.is_none() && state.supervision.generation() == 0;
        match last {
            _ if !is_untouched => {}
            None => self.start_in_order(state),
            Some(last) => {
                let LastOffer { offer, peer } = *last;
                state.offer = offer;
                state.last_peer = Some(Box::new(peer));
                state.fetched = [monotonic_now(); 4];
                let (presented, _) = state.offer.clone().with_overrides();
                self.handle.set_offer(&state.offer, presented);
                self.permissions
                    .add_tool_needs(&self.handle.id, &state.offer.permissions());
                let (published, mailbox) = (self.publish_offer(state), state.mailbox.clone());
                task::spawn_detached("lists.last", async move {
                    let _ = published.await;
                    let _ = mailbox.send_to_self(ServerMsg::LastListsPublished);
                });
            }
        }
    }

    pub(in crate::server) fn handle_last_lists_published(&self, state: &mut ServerState) {
        self.handle.set_connected();
        self.apply_input(state, SupervisionInput::OfferRestored);
    }

    /// Stores the lists of a server that starts on demand.
    pub(in crate::server) fn save_last_lists(&self, state: &mut ServerState) {
        let Some(peer) = state.last_peer.as_deref() else {
            return;
        };
        if !state.spec.start.is_on_demand() || self.handle.agent().is_some() {
            return;
        }
        let command = state.spec.transport.render_command();
        let (peer, offer) = (peer.clone(), state.offer.clone());
        let (pins, id) = (self.pins.clone(), self.handle.id.clone());
        let before = state.list_writing.take();
        state.list_writing = Some(task::spawn_supervised("lists.save", async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            let saved = task::run_blocking("lists.save", move || {
                let lists = to_last_lists(&command, &peer, &offer)?;
                if let Err(error) = pins.save_last_lists(&id, &lists) {
                    tracing::error!(server = %id, %error, "cannot store the lists; it starts with the next kernel");
                }
                Some(())
            });
            let _ = saved.await;
        }));
    }
}

/// `None` for what the server did not write as JSON.
fn to_last_lists(command: &[String], peer: &Peer, offer: &ServerOffer) -> Option<LastLists> {
    let raw = |text: &str| RawValue::from_string(text.to_owned()).ok();
    let all = |kind| {
        let definitions = offer.definitions(kind).into_iter();
        definitions.filter_map(|text| raw(&text)).collect()
    };
    let version = peer.version.as_str();
    let mut lists = LastLists::new(command, version, raw(&peer.raw_capabilities)?);
    lists.info = peer.info.as_deref().and_then(raw);
    lists.instructions = peer.instructions.as_deref().map(Into::into);
    lists.supports_tasks = offer.supports_tasks();
    lists.tools = all(ListKind::Tools);
    lists.prompts = all(ListKind::Prompts);
    lists.resources = all(ListKind::Resources);
    lists.templates = all(ListKind::Templates);
    Some(lists)
}

fn restore(lists: LastLists, offer: ServerOffer) -> Option<LastOffer> {
    let peer = Peer {
        version: Version::parse(&lists.version)?,
        capabilities: ServerCapabilities::parse(Some(&lists.capabilities)),
        raw_capabilities: lists.capabilities.get().into(),
        info: lists.info.map(|info| info.get().into()),
        instructions: lists.instructions.map(Into::into),
        mgp: PLAIN,
        mcpl: None,
    };
    let kinds = [
        (ListKind::Tools, lists.tools),
        (ListKind::Prompts, lists.prompts),
        (ListKind::Resources, lists.resources),
        (ListKind::Templates, lists.templates),
    ];
    let offer = kinds.into_iter().fold(offer, |offer, (kind, list)| {
        let definitions: Vec<Arc<str>> = list.iter().map(|item| item.get().into()).collect();
        offer.with_list(kind, &definitions)
    });
    Some(LastOffer {
        offer: offer.with_task_support(lists.supports_tasks),
        peer,
    })
}
