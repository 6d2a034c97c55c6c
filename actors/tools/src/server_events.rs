//! Passes events of servers on to the catalog and to the subscriptions.

use crate::catalog::CatalogHandle;
use crate::subscriptions::SubscriptionsHandle;
use mgp_runtime::event_sink::EventSink;
use mgp_servers::server::ServerEvent;

/// Takes the events of all servers.
#[must_use]
pub fn taken_by(
    catalog: CatalogHandle,
    subscriptions: SubscriptionsHandle,
) -> EventSink<ServerEvent> {
    EventSink::new(move |event| match event {
        ServerEvent::Offered {
            offer,
            peer,
            fetched,
            seen,
        } => catalog.offer(*offer, peer, fetched, seen),
        ServerEvent::Withdrawn(server) => catalog.withdraw(&server),
        ServerEvent::Connected(server) => subscriptions.server_back(&server),
        ServerEvent::Disconnected(server) => subscriptions.server_lost(&server),
        ServerEvent::Removed(server) => subscriptions.server_removed(&server),
        ServerEvent::Updated {
            server,
            uri,
            params,
        } => subscriptions.updated(&server, &uri, &params),
    })
}
