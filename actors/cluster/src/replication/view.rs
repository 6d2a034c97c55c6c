//! The published view of the cluster, for links, displays and decisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::node_key::PublicKey;
use mgp_engine::policy::grants::{ClusterId, MemberRole};
use mgp_protocol::ids::NodeId;
use tokio_util::sync::CancellationToken;

/// The state of the cluster as known to this node.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// This node.
    pub node: NodeId,
    /// Its cluster; None when it is in none.
    pub cluster: Option<ClusterId>,
    /// The role of this node that is certain.
    pub role: Option<MemberRole>,
    /// All nodes ever admitted, this node included.
    pub members: Arc<BTreeMap<NodeId, ClusterMemberView>>,
    /// The nodes to link to, with their keys; other nodes get no link.
    pub link_peers: Arc<BTreeMap<NodeId, PublicKey>>,
    /// True when this node may sign: other nodes have confirmed its log since its start.
    pub is_confirmed: bool,
    /// The number of revocations that wait to be signed.
    pub owed_revokes: usize,
    /// A node without a message within the lease: agents of other nodes have no rights here meanwhile.
    pub silent_node: Option<NodeId>,
    /// The next node whose lease will expire, and when, if it stays silent.
    pub next_silent: Option<(MonotonicTime, NodeId)>,
    /// The length of the lease.
    pub lease: Duration,
    /// Nodes that signed two logs.
    pub forked: Vec<NodeId>,
    /// What the logs have lost, and what to do: agents of other nodes have no rights here meanwhile.
    pub loss: Option<Arc<str>>,
    /// The current disk failure, if any.
    pub failure: Option<Arc<str>>,
    /// Cancelled when a newer view is published.
    pub replaced: CancellationToken,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMemberView {
    /// Its name.
    pub name: String,
    /// Its key.
    pub key: PublicKey,
    /// Its role that is certain.
    pub role: Option<MemberRole>,
    /// The node that admitted it; itself for the founder.
    pub admitted_by: Option<NodeId>,
    /// Its status.
    pub status: MemberStatus,
    /// When its membership ended, in milliseconds since 1970, by the clock of the writer.
    pub removed_ms: Option<u64>,
}

/// The status of a node in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStatus {
    /// A member.
    Active,
    /// It was shut down gracefully, and writes nothing until its next message.
    Retired,
    /// Its admission is in doubt: the entry that admits it is missing in part, or is of a log that is
    /// forked or cut off.
    Doubtful,
    /// It has left.
    Left,
    /// It was cut off.
    CutOff,
    /// It continues under another key.
    Rekeyed,
    /// It signed two logs, or somebody with its key did.
    Forked,
    /// Two live nodes have its key.
    DuplicateKey,
}

impl MemberStatus {
    /// True if it is no longer a member under this key.
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
    /// The view of a node that is in no cluster.
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

    /// The member of that name, if exactly one active member has it.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn find_member(&self, name: &str) -> Option<NodeId> {
        let taking_part = |member: &ClusterMemberView| !member.status.is_out();
        let called = |member: &ClusterMemberView| member.name == name && taking_part(member);
        let mut named = self.members.iter().filter(|(_, member)| called(member));
        let (node, _) = named.next()?;
        named.next().is_none().then_some(*node)
    }

    /// True if both views are equal.
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
