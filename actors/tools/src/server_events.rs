//! Passes events of servers on: to the catalog, and to those who follow resources and events.

use crate::catalog::CatalogHandle;
use crate::events::EventsHandle;
use crate::subscriptions::SubscriptionsHandle;
use mgp_engine::tools::events::channels::{EventScope, KernelChannel, KernelEvent};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::Lifecycle;
use mgp_protocol::mgp::events::Severity;
use mgp_runtime::event_sink::EventSink;
use mgp_servers::server::ServerEvent;

/// Takes the events of all servers.
#[must_use]
pub fn taken_by(
    catalog: CatalogHandle,
    subscriptions: SubscriptionsHandle,
    events: EventsHandle,
) -> EventSink<ServerEvent> {
    EventSink::new(move |event| match event {
        ServerEvent::Offered {
            offer,
            peer,
            fetched,
            seen,
        } => catalog.offer(*offer, peer, fetched, seen),
        ServerEvent::Restored(offer) => catalog.restore(*offer),
        ServerEvent::Withdrawn(server) => catalog.withdraw(&server),
        ServerEvent::Connected(server, hold) => {
            subscriptions.server_back(&server, hold.clone());
            events.server_back(&server, hold);
        }
        ServerEvent::Disconnected(server) => {
            subscriptions.server_lost(&server);
            events.server_lost(&server);
        }
        ServerEvent::Removed(server) => {
            subscriptions.server_removed(&server);
            events.server_removed(&server);
        }
        ServerEvent::Told { server, event } => events.told(server, event),
        // Taken above.
        ServerEvent::Mcpl { .. } | ServerEvent::McplMet { .. } => {}
        ServerEvent::Stepped(step) => {
            events.happened(KernelChannel::ServerState, || stepped(&step));
        }
        ServerEvent::Updated {
            server,
            uri,
            params,
        } => subscriptions.updated(&server, &uri, &params),
    })
}

/// A server went from one state to another.
fn stepped(step: &Lifecycle) -> KernelEvent {
    let severity = match step.new_state.as_str() {
        // A second life that was to take over has failed.
        state if state == step.previous_state => Severity::Warning,
        "error" => Severity::Error,
        "restarting" => Severity::Warning,
        _ => Severity::Info,
    };
    KernelEvent {
        channel: KernelChannel::ServerState,
        severity,
        scope: EventScope::of_server(ServerId::new(step.server_id.as_str())),
        timestamp: step.timestamp.clone(),
        data: serde_json::to_value(step).unwrap_or_default(),
        for_agents: None,
    }
}
