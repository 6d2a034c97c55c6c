//! What a change in one part tells the others.

use std::sync::{Arc, OnceLock};

use mgp_mcpl::agents::McplAgents;
use mgp_protocol::ids::ServerId;
use mgp_runtime::event_sink::EventSink;
use mgp_servers::server::{ServerMsg, ServerTable};
use mgp_tools::events::EventsHandle;
use mgp_tools::subscriptions::SubscriptionsHandle;

/// Subscriptions end where access does.
pub(super) fn access_change_sink(
    subscriptions: &SubscriptionsHandle,
    events: &EventsHandle,
    hosts: &Arc<OnceLock<Arc<McplAgents>>>,
) -> EventSink<()> {
    let (subscriptions, events) = (subscriptions.clone(), events.clone());
    let hosts = hosts.clone();
    EventSink::new(move |()| {
        subscriptions.access_changed();
        events.access_changed();
        if let Some(hosts) = hosts.get() {
            hosts.refresh_all();
        }
    })
}

/// Whoever follows the list of what waits is told.
pub(super) fn pending_change_sink(subscriptions: &SubscriptionsHandle) -> EventSink<()> {
    let subscriptions = subscriptions.clone();
    EventSink::new(move |()| subscriptions.pending_changed())
}

/// A server whose tools the operator decided about shows them, or does not any more.
pub(super) fn pin_decision_sink(servers: &Arc<ServerTable>) -> EventSink<ServerId> {
    let servers = servers.clone();
    EventSink::new(move |server| {
        if let Some(handle) = servers.load().get(&server) {
            let _ = handle.send(ServerMsg::PinsDecided);
        }
    })
}
