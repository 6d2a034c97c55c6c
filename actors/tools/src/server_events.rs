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
pub fn forward_to(
    catalog: CatalogHandle,
    subscriptions: SubscriptionsHandle,
    events: EventsHandle,
) -> EventSink<ServerEvent> {
    EventSink::new(move |event| match event {
        ServerEvent::Offered {
            offer,
            peer,
            fetched,
            published: seen,
        } => catalog.offer(*offer, peer, fetched, seen),
        ServerEvent::Restored(offer) => catalog.restore(*offer),
        ServerEvent::Withdrawn(server) => catalog.withdraw(&server),
        ServerEvent::Connected(server, hold) => {
            subscriptions.server_up(&server, hold.clone());
            events.server_up(&server, hold);
        }
        ServerEvent::Disconnected(server) => {
            subscriptions.server_down(&server);
            events.server_down(&server);
        }
        ServerEvent::Removed(server) => {
            subscriptions.server_removed(&server);
            events.server_removed(&server);
        }
        ServerEvent::Reported { server, event } => events.publish_server_event(server, event),
        // Taken above.
        ServerEvent::McplReceived { .. } | ServerEvent::McplConnected { .. } => {}
        ServerEvent::StateChanged(step) => {
            events.publish_kernel_event(KernelChannel::ServerState, || lifecycle_event(&step));
        }
        ServerEvent::ResourceUpdated {
            server,
            uri,
            params,
        } => subscriptions.publish_update(&server, &uri, &params),
    })
}

/// A server went from one state to another.
fn lifecycle_event(step: &Lifecycle) -> KernelEvent {
    let severity = match step.new_state.as_str() {
        // The second instance that was to take over has failed.
        state if state == step.previous_state => Severity::Warning,
        "error" => Severity::Error,
        "restarting" => Severity::Warning,
        _ => Severity::Info,
    };
    KernelEvent {
        channel: KernelChannel::ServerState,
        severity,
        scope: EventScope::for_server(ServerId::new(step.server_id.as_str())),
        timestamp: step.timestamp.clone(),
        data: serde_json::to_value(step).unwrap_or_default(),
        for_agents: None,
    }
}
