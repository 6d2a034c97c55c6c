//! The published view of the cluster, for links, displays and decisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::node_key::PublicKey;
use mgp_engine::policy::grants::{ClusterId, MemberRole};
use mgp_protocol::ids::NodeId;
use tokio_util::sync::CancellationToken;

/// The cluster as this node knows it.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// This node.
    pub node: NodeId,
    /// Its cluster; None when it is in none.
    pub cluster: Option<ClusterId>,
    /// What this node certainly may do there.
    pub role: Option<MemberRole>,
    /// All nodes ever admitted, this node included.
    pub members: Arc<BTreeMap<NodeId, ClusterMemberView>>,
    /// The nodes to link to, with their keys: what is not in it has no link.
    pub link_peers: Arc<BTreeMap<NodeId, PublicKey>>,
    /// True when this node may sign: other nodes have confirmed its log since its start.
    pub is_confirmed: bool,
    /// How many revocations wait to be signed.
    pub owed_revokes: usize,
    /// Somebody who was not heard within the lease: agents of other nodes may do nothing here meanwhile.
    pub silent_node: Option<NodeId>,
    /// Somebody who will not have been heard within the lease then, if it stays as silent as it is.
    pub next_silent: Option<(MonotonicTime, NodeId)>,
    /// How long the lease is.
    pub lease: Duration,
    /// Nodes that signed two logs.
    pub forked: Vec<NodeId>,
    /// What the logs lack of what they held, and what to do: agents of other nodes may do nothing here meanwhile.
    pub loss: Option<Arc<str>>,
    /// Why nothing new is on disk.
    pub failure: Option<Arc<str>>,
    /// Cancelled when a newer view is published.
    pub replaced: CancellationToken,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMemberView {
    /// What people call it.
    pub name: String,
    /// Its key.
    pub key: PublicKey,
    /// What it certainly may do.
    pub role: Option<MemberRole>,
    /// Who let it in; itself for the founder.
    pub admitted_by: Option<NodeId>,
    /// How it stands.
    pub status: MemberStatus,
    /// When it came to be out, in milliseconds since 1970, by the clock of who wrote it.
    pub removed_ms: Option<u64>,
}

/// How a node stands in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStatus {
    /// It takes part.
    Active,
    /// It said that it writes nothing until it is heard again.
    Retired,
    /// Its admission is in doubt: what says it is missing in part, or is of a log that is forked or cut off.
    Doubtful,
    /// It said that it leaves.
    Left,
    /// It was cut off.
    CutOff,
    /// It continues under another key.
    Rekeyed,
    /// It signed two logs, or somebody with its key did.
    Forked,
    /// Two living nodes have its key.
    DuplicateKey,
}

impl MemberStatus {
    /// True when it has no part in the cluster any more, under this key.
    #[must_use]
    pub fn is_out(self) -> bool {
        match self {
            Self::Left | Self::CutOff | Self::Rekeyed => true,
            Self::Active | Self::Retired | Self::Doubtful | Self::Forked | Self::DuplicateKey => {
                false
            }
        }
    }
}

impl ClusterView {
    /// Of a node that is in no cluster.
    #[must_use]
    pub fn standalone(node: NodeId, lease: Duration) -> Self {
        Self {
            node,
            cluster: None,
            role: None,
            members: Arc::default(),
            link_peers: Arc::default(),
            is_confirmed: false,
            owed_revokes: 0,
            silent_node: None,
            next_silent: None,
            lease,
            forked: Vec::new(),
            loss: None,
            failure: None,
            replaced: CancellationToken::new(),
        }
    }

    /// The member of that name, if just one has it and takes part.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn find_member(&self, name: &str) -> Option<NodeId> {
        let taking_part = |member: &ClusterMemberView| !member.status.is_out();
        let called = |member: &ClusterMemberView| member.name == name && taking_part(member);
        let mut named = self.members.iter().filter(|(_, member)| called(member));
        let (node, _) = named.next()?;
        named.next().is_none().then_some(*node)
    }

    /// True when both say the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.node == other.node
            && self.cluster == other.cluster
            && self.role == other.role
            && self.members == other.members
            && self.link_peers == other.link_peers
            && self.is_confirmed == other.is_confirmed
            && self.owed_revokes == other.owed_revokes
            && self.silent_node == other.silent_node
            && self.next_silent == other.next_silent
            && self.lease == other.lease
            && self.forked == other.forked
            && self.loss == other.loss
            && self.failure == other.failure
    }
}
