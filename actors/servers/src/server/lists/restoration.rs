//! Restores the pinned tools of a server until its first connection, because many clients list tools only once.

use std::sync::Arc;

use mgp_engine::policy::requirements::RequirementInputs;
use mgp_engine::policy::risk;
use mgp_engine::servers::spec::ServerTransport;
use mgp_engine::tools::catalog::{ListKind, ServerOffer};

use crate::server::{ServerActor, ServerEvent, ServerMsg, ServerState};
use mgp_runtime::task;

impl ServerActor {
    /// Loads the stored list of a server that has not been connected yet, and sends it as
    /// [`ServerMsg::OfferRestored`].
    pub(in crate::server) fn restore_offer(&self, state: &ServerState) {
        let is_of_node = matches!(state.spec.transport, ServerTransport::Node(_));
        if self.handle.agent().is_some() || is_of_node || self.handle.has_offered() {
            return;
        }
        let (watch, me) = (self.pin_check(&state.spec), state.mailbox.clone());
        let (id, mark) = (self.handle.id.clone(), state.spec.replica_spec());
        let terms = RequirementInputs {
            trust: risk::effective_trust(state.spec.mgp.trust_level, None),
            rules: state.spec.tools.clone(),
        };
        task::spawn_detached("lists.restore", async move {
            let reading = task::run_blocking("pins.last_list", move || {
                let definitions = watch.pins.last_list(&id, &watch.rules);
                let offer = ServerOffer::new(id)
                    .with_requirements(Arc::new(terms))
                    .with_replica_spec(mark);
                let (offer, _) = offer
                    .with_list(ListKind::Tools, &definitions)
                    .with_overrides();
                offer
            });
            if let Ok(offer) = reading.await
                && !offer.tools().is_empty()
            {
                let _ = me.send(ServerMsg::OfferRestored(Box::new(offer)));
            }
        });
    }

    /// Publishes the restored list, unless the server has listed its tools meanwhile or is no longer expected.
    pub(in crate::server) fn publish_restored(&self, offer: Box<ServerOffer>) {
        if !self.handle.has_offered() && self.handle.should_wait() {
            self.events.send(ServerEvent::Restored(offer));
        }
    }

    /// Withdraws the restored list: the server was replaced by another, or waits for a person.
    pub(in crate::server) fn withdraw_restored(&self) {
        if !self.handle.has_offered() {
            self.withdraw();
        }
    }
}
