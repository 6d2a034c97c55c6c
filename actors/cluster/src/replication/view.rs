//! What is published of the cluster, for whoever links, shows or decides.

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
    pub here: NodeId,
    /// Its cluster; None when it is in none.
    pub cluster: Option<ClusterId>,
    /// What this node certainly may do there.
    pub role: Option<MemberRole>,
    /// All that were ever let in, this node included.
    pub members: Arc<BTreeMap<NodeId, ClusterMemberView>>,
    /// The nodes to link to, with their keys: what is not in it has no link.
    pub speaks_with: Arc<BTreeMap<NodeId, PublicKey>>,
    /// True when this node may sign: other nodes have confirmed its log since its start.
    pub is_confirmed: bool,
    /// How many revocations wait to be signed.
    pub owes: usize,
    /// Somebody who was not heard within the lease: agents of other nodes may do nothing here meanwhile.
    pub unheard: Option<NodeId>,
    /// Somebody who will not have been heard within the lease then, if it stays as silent as it is.
    pub overdue: Option<(MonotonicTime, NodeId)>,
    /// How long the lease is.
    pub lease: Duration,
    /// Nodes that signed two logs.
    pub forked: Vec<NodeId>,
    /// What the logs lack of what they held, and what to do: agents of other nodes may do nothing here meanwhile.
    pub shortened: Option<Arc<str>>,
    /// Why nothing new is on disk.
    pub trouble: Option<Arc<str>>,
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
    pub standing: MemberStanding,
    /// When it came to be out, in milliseconds since 1970, by the clock of who wrote it.
    pub out_ms: Option<u64>,
}

/// How a node stands in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStanding {
    /// It takes part.
    In,
    /// It said that it writes nothing until it is heard again.
    Resting,
    /// Its admission is in doubt: what says it is missing in part, or is of a log that is forked or cut off.
    Doubtful,
    /// It said that it leaves.
    Left,
    /// It was cut off.
    Cut,
    /// It goes on under another key.
    Rekeyed,
    /// It signed two logs, or somebody with its key did.
    Forked,
    /// Two living nodes have its key.
    Twice,
}

impl MemberStanding {
    /// True when it has no part in the cluster any more, under this key.
    #[must_use]
    pub fn is_out(self) -> bool {
        match self {
            Self::Left | Self::Cut | Self::Rekeyed => true,
            Self::In | Self::Resting | Self::Doubtful | Self::Forked | Self::Twice => false,
        }
    }
}

impl ClusterView {
    /// Of a node that is in no cluster.
    #[must_use]
    pub fn alone(here: NodeId, lease: Duration) -> Self {
        Self {
            here,
            cluster: None,
            role: None,
            members: Arc::default(),
            speaks_with: Arc::default(),
            is_confirmed: false,
            owes: 0,
            unheard: None,
            overdue: None,
            lease,
            forked: Vec::new(),
            shortened: None,
            trouble: None,
            replaced: CancellationToken::new(),
        }
    }

    /// The member of that name, if just one has it and takes part.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<NodeId> {
        let taking_part = |member: &ClusterMemberView| !member.standing.is_out();
        let called = |member: &ClusterMemberView| member.name == name && taking_part(member);
        let mut named = self.members.iter().filter(|(_, member)| called(member));
        let (node, _) = named.next()?;
        named.next().is_none().then_some(*node)
    }

    /// True when both say the same.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        self.here == other.here
            && self.cluster == other.cluster
            && self.role == other.role
            && self.members == other.members
            && self.speaks_with == other.speaks_with
            && self.is_confirmed == other.is_confirmed
            && self.owes == other.owes
            && self.unheard == other.unheard
            && self.overdue == other.overdue
            && self.lease == other.lease
            && self.forked == other.forked
            && self.shortened == other.shortened
            && self.trouble == other.trouble
    }
}
