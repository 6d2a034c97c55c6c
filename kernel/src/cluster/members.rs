//! Follows the members of the cluster: permitted links, names, and whether this node listens.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use mgp_cluster::LanAnnouncement;
use mgp_cluster::links::{OpenError, PinnedPeer};
use mgp_cluster::replication::{ClusterMemberView, ClusterView, MemberStatus};
use mgp_engine::node_key::PublicKey;
use mgp_engine::node_names::disambiguate_names;
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::hello::{NodeName, ReportedRole};
use mgp_protocol::ids::NodeId;
use mgp_store::audit::kernel_actor;

use super::Cluster;

/// Delay before another attempt to open the socket: another program may have its port for a moment.
const LISTEN_RETRY_INTERVAL: Duration = Duration::from_secs(5);

impl Cluster {
    /// Applies each view, whatever the previous one was.
    pub(super) async fn follow_members(&self) {
        loop {
            let view = self.replication.view();
            self.links
                .set_hello(self.name(), to_reported_role(view.role));
            self.update_pinned_peers().await;
            self.tool_index.set_leaves(non_sharing_nodes(&view));
            self.tool_index.set_members(peer_names(&view));
            self.drop_revoked_shares(&view).await;
            if self
                .addresses
                .retain(|node| view.link_peers.contains_key(&node))
            {
                self.addresses.save().await;
            }
            let listens = self.update_listening(&view).await;
            self.lan
                .set_announcement(self.links.address().map(|at| LanAnnouncement {
                    port: at.port(),
                    cluster: view.cluster.map(|cluster| cluster.0),
                }));
            let again = async {
                if listens {
                    std::future::pending().await
                } else {
                    tokio::time::sleep(LISTEN_RETRY_INTERVAL).await
                }
            };
            tokio::select! {
                () = view.replaced.cancelled() => {}
                () = again => {}
            }
        }
    }

    /// Resolves when exactly the pinned peers may have links.
    pub(crate) async fn update_pinned_peers(&self) {
        let pins = pinned_peers(&self.replication.view());
        if let Err(error) = self.links.pin(pins, self.config.peers.clone()).await {
            tracing::error!(%error, "the links could not be updated to the members of the cluster");
        }
        for (node, at) in self.addresses.all() {
            self.links.add_hint(node, at);
        }
    }

    /// False if it should listen and failed to.
    async fn update_listening(&self, view: &ClusterView) -> bool {
        if view.cluster.is_none() {
            return true;
        }
        match self.listen().await {
            Ok(_) => true,
            Err(error) => {
                let listen = self.config.listen;
                tracing::error!(%listen, %error, "no other node can reach this one");
                false
            }
        }
    }

    /// Opens the socket if it is closed.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(crate) async fn listen(&self) -> Result<SocketAddr, OpenError> {
        let _one = self.socket_lock.lock().await;
        match self.links.address() {
            Some(address) => Ok(address),
            None => self.links.open(self.config.listen).await,
        }
    }

    /// Closes it if it is not needed: this node is in no cluster and does not join one.
    pub(crate) async fn stop_listening(&self) {
        let _one = self.socket_lock.lock().await;
        if self.replication.view().cluster.is_none() {
            let _ = self.links.close(LinkClose::Done).await;
        }
    }

    /// Removes shares with a node that was cut off.
    async fn drop_revoked_shares(&self, view: &ClusterView) {
        for node in self.shares.current().named_nodes() {
            let member = view.members.get(&node);
            let is_cut = member.is_some_and(|member| member.status.is_out());
            if is_cut && let Err(error) = self.shares.remove_node(node, kernel_actor()).await {
                tracing::warn!(node = %self.node_label(node), %error, "the shares of a removed node could not be removed");
            }
        }
    }
}

/// The nodes that may have links.
fn pinned_peers(view: &ClusterView) -> BTreeMap<NodeId, PinnedPeer> {
    let pin = |(node, key): (&NodeId, &PublicKey)| {
        let member = view.members.get(node);
        let pinned = PinnedPeer {
            key: *key,
            name: member.map_or_else(|| node.short_id(), |member| member.name.clone()),
            role: to_reported_role(member.and_then(|member| member.role)),
            has_duplicate_key: member
                .is_some_and(|member| member.status == MemberStatus::DuplicateKey),
        };
        (*node, pinned)
    };
    view.link_peers.iter().map(pin).collect()
}

/// The names of the other nodes that were not cut off.
fn peer_names(view: &ClusterView) -> BTreeMap<NodeId, NodeName> {
    let mut named = all_node_names(view);
    named.remove(&view.node);
    named
}

/// The names of all nodes that were not cut off, including this one.
pub(super) fn all_node_names(view: &ClusterView) -> BTreeMap<NodeId, NodeName> {
    let members = view.members.iter();
    let known = members.filter(|(_, member)| !member.status.is_out());
    let given = known.map(|(node, member)| (*node, node_name(member)));
    disambiguate_names(&given.collect())
}

/// The nodes that share nothing: leaves, and those whose role is in doubt.
fn non_sharing_nodes(view: &ClusterView) -> BTreeSet<NodeId> {
    let shares = |member: &ClusterMemberView| to_reported_role(member.role) != ReportedRole::Leaf;
    let leaves = view.members.iter().filter(|(_, member)| !shares(member));
    leaves.map(|(node, _)| *node).collect()
}

/// Its name, normalized if another version's rules for names differ.
fn node_name(member: &ClusterMemberView) -> NodeName {
    NodeName::parse(&member.name).unwrap_or_else(|_| NodeName::from_hostname(&member.name))
}

/// The role as sent in a hello. A node without a certain role reports the least.
fn to_reported_role(role: Option<MemberRole>) -> ReportedRole {
    match role {
        Some(MemberRole::Admin) => ReportedRole::Admin,
        Some(MemberRole::Member) => ReportedRole::Member,
        Some(MemberRole::Leaf) | None => ReportedRole::Leaf,
    }
}
