//! Forwards events of servers to the catalog, and to subscribers of resources and events.

use crate::catalog::CatalogHandle;
use crate::events::EventsHandle;
use crate::subscriptions::SubscriptionsHandle;
use mgp_engine::tools::events::channels::{EventScope, KernelChannel, KernelEvent};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::Lifecycle;
use mgp_protocol::mgp::events::Severity;
use mgp_runtime::EventSink;
use mgp_servers::ServerEvent;

/// A sink for the events of all servers.
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
        ServerEvent::Connected(server, guard) => {
            subscriptions.server_up(&server, guard.clone());
            events.server_up(&server, guard);
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
        // MCPL has its own sink.
        ServerEvent::McplReceived { .. } | ServerEvent::McplConnected { .. } => {}
        ServerEvent::StateChanged(change) => {
            events.publish_kernel_event(KernelChannel::ServerState, || lifecycle_event(&change));
        }
        ServerEvent::ResourceUpdated {
            server,
            uri,
            params,
        } => subscriptions.publish_update(&server, &uri, &params),
    })
}

/// The event of a server's change of state.
fn lifecycle_event(change: &Lifecycle) -> KernelEvent {
    let severity = match change.new_state.as_str() {
        // The second instance, which was to take over, has failed.
        state if state == change.previous_state => Severity::Warning,
        "error" => Severity::Error,
        "restarting" => Severity::Warning,
        _ => Severity::Info,
    };
    KernelEvent {
        channel: KernelChannel::ServerState,
        severity,
        scope: EventScope::for_server(ServerId::new(change.server_id.as_str())),
        timestamp: change.timestamp.clone(),
        data: serde_json::to_value(change).unwrap_or_default(),
        for_agents: None,
    }
}
