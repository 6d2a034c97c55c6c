//! Connects the events of the cluster's actors.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mgp_cluster::links::{InboundNodeCall, LinksEvent, MessagePermit};
use mgp_cluster::replication::ReplicationEvent;
use mgp_cluster::{ToolIndexEvent, replication};
use mgp_engine::cluster::shares::Shares;
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::sync::SyncOpening;
use mgp_protocol::ids::NodeId;
use mgp_runtime::task;
use mgp_transports::quic::{StreamFailure, SyncStream};
use tokio::time::Instant;

use super::Cluster;

/// Limit for a node to declare the purpose of a stream.
const STREAM_OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long calls wait for contact with an admin after a start: links come up sooner if possible.
const ADMIN_CONTACT_TIMEOUT: Duration = Duration::from_secs(3);

impl Cluster {
    /// Handles events of links.
    pub(super) fn on_links_event(self: &Arc<Self>, event: LinksEvent) {
        match event {
            LinksEvent::Up(link) => {
                let address = link.link.address();
                let is_new = |at| self.addresses.record_proven(link.link.peer(), at);
                if address.is_some_and(is_new) {
                    let cluster = self.clone();
                    task::spawn_detached("cluster.addresses", async move {
                        cluster.addresses.save().await;
                    });
                }
                self.replication.link_up(link.link.peer());
                self.tool_index.link_up(link);
            }
            LinksEvent::Down { node, why } => {
                let name = self.node_label(node);
                // The transport reports other reasons once each, so that repeated links do not flood the log.
                if why.0 == StreamFailure::LinkClosed(LinkClose::Revoked) {
                    tracing::info!(node = %name, %why, "a node was cut off")
                } else {
                    tracing::debug!(node = %name, %why, "a link ended")
                }
                self.replication.link_down(node);
                self.tool_index.link_down(node);
            }
            // A node's tools are available while it is linked: reports of others change nothing.
            LinksEvent::Present(_) | LinksEvent::Missing(_) => {}
            LinksEvent::Clock(node, clock) => self.replication.record_clock(node, clock),
            LinksEvent::Control(node, message, turn) => {
                self.on_control_message(node, message, turn)
            }
            LinksEvent::Sync(node, stream) => {
                let (replication, index) = (self.replication.clone(), self.tool_index.clone());
                task::spawn_detached("cluster.sync", async move {
                    dispatch_stream(replication, index, node, stream).await;
                });
            }
            LinksEvent::Call(call) => self.accept_call(*call),
            LinksEvent::Pairing(link) => self.pairing.add_node(link),
        }
    }

    /// After a start no admin that could revoke a grant has been heard, and agents of other nodes may do nothing.
    /// Their calls wait a moment instead of being rejected.
    fn accept_call(self: &Arc<Self>, call: InboundNodeCall) {
        let Some(calls) = self.inbound_calls.get().cloned() else {
            // The kernel is starting: the caller's stream ends, and nothing was executed.
            return;
        };
        let until = self.started_at + ADMIN_CONTACT_TIMEOUT;
        if Instant::now() >= until {
            return calls.send(call);
        }
        let (replication, access) = (self.replication.clone(), self.access.clone());
        task::spawn_detached("cluster.confirming", async move {
            let confirmed = async {
                loop {
                    let view = replication.view();
                    if view.silent_node.is_none() {
                        // The rules of the logs were sent before the view was published: they are in force once
                        // this is answered.
                        let _in_force = access.flush().await;
                        return;
                    }
                    view.replaced.cancelled().await;
                }
            };
            let _late = tokio::time::timeout_at(until, confirmed).await;
            calls.send(call);
        });
    }

    fn on_control_message(self: &Arc<Self>, node: NodeId, message: Control, turn: MessagePermit) {
        match message {
            Control::Logs(held) => self.replication.receive_heads(node, held, turn),
            Control::Index(digest) => self.tool_index.receive_digest(node, digest, turn),
            Control::IndexReport(report) => self.tool_index.receive_report(node, report, turn),
            Control::Leaving(leaving) => self.on_peer_leaving(node, leaving),
            Control::Reach(reach) => {
                let view = self.replication.view();
                let is_member = |node| view.members.contains_key(&node);
                self.reports.record(node, reach, is_member);
            }
            // Links handle these; messages of later versions are ignored.
            Control::Hello(_)
            | Control::Ping(_)
            | Control::Pong(_)
            | Control::Renewal(_)
            | Control::Addresses(_)
            | Control::Unknown(_) => {}
        }
    }

    /// Sends a message to a node, if it is linked; without a link it is sent when the next one starts.
    pub(super) fn send_control(self: &Arc<Self>, (node, message): (NodeId, Control)) {
        let _ = self.links.send(node, message);
    }

    /// Handles events of replication.
    pub(super) fn on_replication_event(self: &Arc<Self>, event: ReplicationEvent) {
        match event {
            ReplicationEvent::Send(node, message) => self.send_control((node, message)),
            ReplicationEvent::Transfer(node, entries, turn) => {
                // Without a link the permit is released at once; entries follow with the next link.
                let Some(link) = self.links.link(node) else {
                    return;
                };
                task::spawn_detached("cluster.bring", async move {
                    if let Err(why) = replication::send_entries(&link, entries, turn).await {
                        tracing::debug!(node = %node.short_id(), %why, "replication of entries failed");
                    }
                });
            }
            // Others follow the view.
            ReplicationEvent::Changed(_) => {}
        }
    }

    /// Handles events of the tool index.
    pub(super) fn on_tool_index_event(self: &Arc<Self>, event: ToolIndexEvent) {
        match event {
            // Others follow the published names and tools.
            ToolIndexEvent::Changed | ToolIndexEvent::Renamed => {}
            // The index limits its warnings: a peer may report as often as it likes.
            ToolIndexEvent::Reported(node, report) => {
                let (node, refused) = (self.node_label(node), report.refused);
                tracing::debug!(%node, refused, "a node rejected a part of the shares");
            }
            ToolIndexEvent::Refused(node, report) => {
                let (node, refused) = (self.node_label(node), report.refused);
                tracing::debug!(%node, refused, "a part of a node's shares was rejected");
            }
        }
    }

    /// A node was discovered on the local network.
    pub(super) fn on_node_discovered(self: &Arc<Self>, (node, address): (NodeId, SocketAddr)) {
        self.links.add_hint(node, address);
    }

    /// The shares of this node have changed.
    pub(super) fn on_shares_changed(self: &Arc<Self>, shares: Arc<Shares>) {
        self.tool_index
            .set_shares(if self.exports_withdrawn.load(Ordering::Acquire) {
                Arc::default()
            } else {
                shares
            });
        self.export_wakeup.notify_one();
    }
}

/// Dispatches a stream by its declared purpose.
async fn dispatch_stream(
    replication: replication::ReplicationHandle,
    index: mgp_cluster::ToolIndexHandle,
    node: NodeId,
    mut stream: Box<SyncStream>,
) {
    let opening = tokio::time::timeout(STREAM_OPEN_TIMEOUT, stream.next()).await;
    let Ok(Ok(Some(opening))) = opening else {
        return;
    };
    match SyncOpening::decode(&opening) {
        Ok(SyncOpening::Index) => index.serve(node, stream),
        Ok(SyncOpening::Logs) => {
            if let Err(why) = replication::receive_entries(&replication, node, *stream).await {
                tracing::debug!(node = %node.short_id(), %why, "replication of entries failed");
            }
        }
        // Of a later version, or invalid: the stream ends.
        Ok(SyncOpening::Unknown) | Err(_) => {}
    }
}
