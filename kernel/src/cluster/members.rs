//! Follows who is in the cluster: who may have links, who is known by name, whether this node listens.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use mgp_cluster::lan::LanPresence;
use mgp_cluster::links::{OpenFailed, PinnedPeer};
use mgp_cluster::replication::{ClusterMemberView, ClusterView, MemberStanding};
use mgp_engine::cluster::node_names::settle_names;
use mgp_engine::node_key::PublicKey;
use mgp_engine::policy::grants::MemberRole;
use mgp_protocol::federation::ends::LinkClose;
use mgp_protocol::federation::hello::{NodeName, ToldRole};
use mgp_protocol::ids::NodeId;
use mgp_store::audit::by_kernel;

use super::Cluster;

/// How soon opening the socket is tried again that failed: another program may have its port for a moment.
const AGAIN: Duration = Duration::from_secs(5);

impl Cluster {
    /// Does what follows of each view, whatever the one before was.
    pub(super) async fn follow_members(&self) {
        loop {
            let view = self.replication.view();
            self.links.set_greeting(self.name(), said(view.role));
            self.pin().await;
            self.tool_index.set_leaves(leaves(&view));
            self.tool_index.set_members(named(&view));
            self.forget_shares(&view).await;
            if self
                .addresses
                .keep(|node| view.speaks_with.contains_key(&node))
            {
                self.addresses.write().await;
            }
            let listens = self.listens_for(&view).await;
            self.lan.present(self.links.address().map(|at| LanPresence {
                port: at.port(),
                cluster: view.cluster.map(|cluster| cluster.0),
            }));
            let again = async {
                match listens {
                    true => std::future::pending().await,
                    false => tokio::time::sleep(AGAIN).await,
                }
            };
            tokio::select! {
                () = view.replaced.cancelled() => {}
                () = again => {}
            }
        }
    }

    /// Exactly those may have links from when this resolves with which this node speaks.
    pub(crate) async fn pin(&self) {
        let pins = pins(&self.replication.view());
        if let Err(error) = self.links.pin(pins, self.config.peers.clone()).await {
            tracing::error!(%error, "links do not follow who is in the cluster");
        }
        for (node, at) in self.addresses.all() {
            self.links.found_at(node, at);
        }
    }

    /// False when it should listen, and could not.
    async fn listens_for(&self, view: &ClusterView) -> bool {
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

    /// Opens the socket where it is closed.
    ///
    /// # Errors
    /// [`OpenFailed`].
    pub async fn listen(&self) -> Result<SocketAddr, OpenFailed> {
        let _one = self.socket.lock().await;
        match self.links.address() {
            Some(address) => Ok(address),
            None => self.links.open(self.config.listen).await,
        }
    }

    /// Closes it where nobody needs it: this node is in no cluster, and is not on its way into one.
    pub async fn listen_no_more(&self) {
        let _one = self.socket.lock().await;
        if self.replication.view().cluster.is_none() {
            let _ = self.links.close(LinkClose::Done).await;
        }
    }

    /// What was shared with a node that was cut off is shared with nobody.
    async fn forget_shares(&self, view: &ClusterView) {
        for node in self.shares.now().named() {
            let member = view.members.get(&node);
            let is_cut = member.is_some_and(|member| member.standing.is_out());
            if is_cut && let Err(error) = self.shares.forget(node, by_kernel()).await {
                tracing::warn!(node = %self.name_of(node), %error, "shares outlast it");
            }
        }
    }
}

/// Who may have links.
fn pins(view: &ClusterView) -> BTreeMap<NodeId, PinnedPeer> {
    let pin = |(node, key): (&NodeId, &PublicKey)| {
        let member = view.members.get(node);
        let pinned = PinnedPeer {
            key: *key,
            name: member.map_or_else(|| node.short(), |member| member.name.clone()),
            role: said(member.and_then(|member| member.role)),
            lives_twice: member.is_some_and(|member| member.standing == MemberStanding::Twice),
        };
        (*node, pinned)
    };
    view.speaks_with.iter().map(pin).collect()
}

/// The other nodes that were not cut off, as they are called.
fn named(view: &ClusterView) -> BTreeMap<NodeId, NodeName> {
    let mut named = all_named(view);
    named.remove(&view.here);
    named
}

/// What all nodes that were not cut off are called, this one included.
pub(super) fn all_named(view: &ClusterView) -> BTreeMap<NodeId, NodeName> {
    let members = view.members.iter();
    let known = members.filter(|(_, member)| !member.standing.is_out());
    let given = known.map(|(node, member)| (*node, name(member)));
    settle_names(&given.collect())
}

/// The nodes that share nothing: leaves, and those whose role is in doubt.
fn leaves(view: &ClusterView) -> BTreeSet<NodeId> {
    let shares = |member: &ClusterMemberView| said(member.role) != ToldRole::Leaf;
    let leaves = view.members.iter().filter(|(_, member)| !shares(member));
    leaves.map(|(node, _)| *node).collect()
}

/// Its name; of another build's rules for names, what these rules make of it.
fn name(member: &ClusterMemberView) -> NodeName {
    NodeName::parse(&member.name).unwrap_or_else(|_| NodeName::of_machine(&member.name))
}

/// A role, as a hello tells it. Who is not certain of its own takes itself for the least.
fn said(role: Option<MemberRole>) -> ToldRole {
    match role {
        Some(MemberRole::Admin) => ToldRole::Admin,
        Some(MemberRole::Member) => ToldRole::Member,
        Some(MemberRole::Leaf) | None => ToldRole::Leaf,
    }
}
