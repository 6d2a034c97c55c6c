//! Forwards changes of one component to the others.

use std::sync::{Arc, OnceLock};

use mgp_mcpl::McplAgents;
use mgp_protocol::ids::ServerId;
use mgp_runtime::EventSink;
use mgp_servers::{ServerMsg, ServerTable};
use mgp_tools::{EventsHandle, SubscriptionsHandle};
use tokio::sync::watch;

/// Subscriptions end when access ends.
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

/// Notifies the subscribers of the list of pending entries.
pub(super) fn pending_change_sink(
    subscriptions: &SubscriptionsHandle,
    changes: &watch::Sender<()>,
) -> EventSink<()> {
    let (subscriptions, changes) = (subscriptions.clone(), changes.clone());
    EventSink::new(move |()| {
        subscriptions.pending_changed();
        changes.send_replace(());
    })
}

/// After a decision about its pins a server lists its tools again.
pub(super) fn pin_decision_sink(servers: &Arc<ServerTable>) -> EventSink<ServerId> {
    let servers = servers.clone();
    EventSink::new(move |server| {
        if let Some(handle) = servers.load().get(&server) {
            let _ = handle.send(ServerMsg::PinsDecided);
        }
    })
}
