//! The members of the cluster and the issuers, derived from the logs alone: nodes that know the same operations get
//! the same result, in whatever order the operations arrived.
//!
//! *Possible* issuers may revoke, deny and cut: all that a possible issuer ever admitted, anywhere in a log. This set
//! only grows, so no revoke, denial or cut is undone by cutting off its issuer, or by a fork of the log that admitted
//! it. *Certain* issuers may also grant: those admitted by a certain issuer in the certain part of its log, below
//! every cut.

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::NodeId;

use crate::node_key::PublicKey;
use crate::policy::grants::{
    Authority, ClusterId, Grants, LogPosition, LogTip, LoggedMemberChange, MemberChange,
    MemberRole, OperationId,
};

/// A node that was admitted at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMember {
    /// The public key.
    pub key: PublicKey,
    /// The name in the cluster.
    pub name: String,
    /// The certain role; None if the admission is not certain.
    pub role: Option<MemberRole>,
    /// The sequence number from which its grants do not count, if it was cut off.
    pub cut_at: Option<u64>,
    /// The sequence number from which its grants do not count, if it was demoted from admin. It stays a member, and its
    /// revokes stay in force.
    pub(crate) demoted_at: Option<u64>,
    /// The highest role it can have under this key, if it was demoted.
    pub role_max: Option<MemberRole>,
    /// How it left the cluster.
    pub removal: Option<MemberRemoval>,
    /// True for a possible issuer.
    pub(crate) can_revoke: bool,
}

/// How a node left the cluster, by the earliest operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberRemoval {
    /// Milliseconds since 1970 by the issuer's clock; only for display.
    pub at_ms: u64,
    /// The reason.
    pub reason: RemovalReason,
}

/// Why a node is not in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemovalReason {
    /// It left.
    Left,
    /// An admin cut it off.
    CutOff,
    /// It has a new key, and is this node now.
    Rekeyed(NodeId),
}

impl ClusterMember {
    /// True if it is certainly admitted and not cut off.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.role.is_some() && self.cut_at.is_none()
    }
}

/// The members of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMembers {
    nodes: BTreeMap<NodeId, ClusterMember>,
    recovery: Option<NodeId>,
    founder: Option<NodeId>,
}

/// Numbers all nodes that the logs name.
#[derive(Default)]
struct NodeIndexes {
    index_of: BTreeMap<NodeId, usize>,
    nodes: Vec<NodeId>,
}

impl NodeIndexes {
    fn index(&mut self, node: NodeId) -> usize {
        *self.index_of.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        })
    }
}

/// An operation that changes the members.
struct MemberOperation<'a> {
    position: LogPosition,
    id: OperationId,
    change: &'a LoggedMemberChange,
    issuer: usize,
    /// The node it admits, or the new key of a node.
    admits: Option<usize>,
    /// The node it is about otherwise.
    subject: Option<usize>,
    /// True in the certain part of the log.
    is_certain: bool,
}

impl<'a> MemberOperation<'a> {
    fn collect(grants: &'a Grants, indexes: &mut NodeIndexes) -> Vec<Self> {
        // Operations are ordered by log.
        let mut log: Option<(NodeId, usize, u64)> = None;
        let to_operation =
            |(position, id, change): (LogPosition, OperationId, &'a LoggedMemberChange)| {
                let issuer = position.issuer;
                let (_, by, end) = match log {
                    Some(current @ (node, ..)) if node == issuer => current,
                    Some(_) | None => (issuer, indexes.index(issuer), grants.tip(issuer).next),
                };
                log = Some((issuer, by, end));
                let subject = match &change.change {
                    MemberChange::Cut { node, .. }
                    | MemberChange::Rename { node, .. }
                    | MemberChange::Rekey { node, .. } => Some(*node),
                    MemberChange::Found { .. }
                    | MemberChange::Admit { .. }
                    | MemberChange::Rest {}
                    | MemberChange::Recover { .. } => None,
                };
                Self {
                    position,
                    id,
                    change,
                    issuer: by,
                    admits: change.admitted_node.map(|node| indexes.index(node)),
                    subject: subject.map(|node| indexes.index(node)),
                    is_certain: position.sequence < end,
                }
            };
        grants.member_changes().map(to_operation).collect()
    }

    /// The node it removes, and how.
    fn removal(&self) -> Option<(usize, MemberRemoval)> {
        let (at_ms, subject) = (self.change.issued_at_ms, self.subject?);
        let reason = match &self.change.change {
            MemberChange::Rekey { .. } => RemovalReason::Rekeyed(self.change.admitted_node?),
            MemberChange::Cut {
                stays_as: Some(_), ..
            } => return None,
            MemberChange::Cut { node, .. } => {
                let is_own =
                    self.issuer == subject || NodeId::parse(&self.change.author) == Some(*node);
                if is_own {
                    RemovalReason::Left
                } else {
                    RemovalReason::CutOff
                }
            }
            MemberChange::Found { .. }
            | MemberChange::Admit { .. }
            | MemberChange::Rename { .. }
            | MemberChange::Rest {}
            | MemberChange::Recover { .. } => return None,
        };
        Some((subject, MemberRemoval { at_ms, reason }))
    }
}

/// The limits of a demoted node.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Demotion {
    /// The sequence number from which its grants do not count.
    end: u64,
    /// The highest role.
    role: MemberRole,
}

impl Demotion {
    /// The stricter of both limits.
    fn merge(self, other: Self) -> Self {
        Self {
            end: self.end.min(other.end),
            role: self.role.min(other.role),
        }
    }
}

/// Derives the members. Vectors are indexed by node number.
struct MembershipBuilder<'a> {
    grants: &'a Grants,
    operations: Vec<MemberOperation<'a>>,
    nodes: Vec<NodeId>,
    recovery: usize,
    possible: Vec<bool>,
    ends: Vec<Option<u64>>,
    demotions: Vec<Option<Demotion>>,
    roles: Vec<Option<MemberRole>>,
}

impl ClusterMembers {
    /// No members, before the founding operation is known.
    #[must_use]
    pub(crate) fn empty() -> Self {
        let nodes = BTreeMap::new();
        Self {
            nodes,
            recovery: None,
            founder: None,
        }
    }

    /// Derives the members from the logs.
    #[must_use]
    pub fn from_grants(grants: &Grants, cluster: ClusterId) -> Self {
        let mut indexes = NodeIndexes::default();
        let operations = MemberOperation::collect(grants, &mut indexes);
        let founding = operations
            .iter()
            .find(|operation| operation.id.0 == cluster.0);
        let Some((founder, MemberChange::Found { recovery, .. })) =
            founding.map(|operation| (operation.position.issuer, &operation.change.change))
        else {
            return Self::empty();
        };
        let recovery = recovery.node_id();
        let (founder_index, recovery_index) = (indexes.index(founder), indexes.index(recovery));
        let count = indexes.nodes.len();
        let mut builder = MembershipBuilder {
            grants,
            operations,
            nodes: indexes.nodes,
            recovery: recovery_index,
            possible: vec![false; count],
            ends: vec![None; count],
            demotions: vec![None; count],
            roles: vec![None; count],
        };
        builder.possible[founder_index] = true;
        builder.possible[recovery_index] = true;
        builder.roles[founder_index] = Some(MemberRole::Admin);
        builder.find_possible_issuers();
        builder.find_certain_ends();
        builder.apply_rekeys();
        builder.find_roles();
        Self {
            nodes: builder.build_members(),
            recovery: Some(recovery),
            founder: Some(founder),
        }
    }

    /// The member, also one that was cut off.
    #[must_use]
    pub fn get(&self, node: NodeId) -> Option<&ClusterMember> {
        self.nodes.get(&node)
    }

    /// All nodes that were ever admitted, including those that were cut off.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &ClusterMember)> {
        self.nodes.iter().map(|(node, member)| (*node, member))
    }

    /// True for an active member.
    #[must_use]
    pub fn is_member(&self, node: NodeId) -> bool {
        self.get(node).is_some_and(ClusterMember::is_active)
    }

    /// True for an active admin.
    #[must_use]
    pub fn is_admin(&self, node: NodeId) -> bool {
        let member = self.get(node);
        member.is_some_and(|member| member.is_active() && member.role == Some(MemberRole::Admin))
    }

    /// True for a possible issuer, whose operations are stored.
    #[must_use]
    pub fn can_possibly_issue(&self, issuer: NodeId) -> bool {
        self.recovery == Some(issuer)
            || self.founder == Some(issuer)
            || self.get(issuer).is_some_and(|member| member.can_revoke)
    }

    /// True for the recovery key, which is kept offline.
    #[must_use]
    pub fn is_recovery(&self, issuer: NodeId) -> bool {
        self.recovery == Some(issuer)
    }

    /// The nodes that could still revoke, without the recovery key, which no running node has.
    pub fn possible_revokers(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        let can_revoke = |member: &ClusterMember| {
            member.can_revoke && member.cut_at.is_none() && member.demoted_at.is_none()
        };
        self.iter()
            .filter(move |(_, member)| can_revoke(member))
            .map(|(node, _)| node)
    }

    /// The authority by which this node evaluates grants.
    #[must_use]
    pub(crate) fn authority(&self, here: NodeId) -> Authority {
        let mut authority = Authority::without_issuers(here);
        for (node, member) in self.iter().filter(|(_, member)| member.can_revoke) {
            let cut = member.cut_at.unwrap_or(u64::MAX);
            let end = match (member.demoted_at, member.role) {
                (Some(end), Some(_)) => end.min(cut),
                (None, Some(MemberRole::Admin)) => cut,
                (None, Some(MemberRole::Member | MemberRole::Leaf)) | (_, None) => 0,
            };
            authority = authority.with_issuer_until(node, end);
        }
        match self.recovery {
            Some(recovery) => authority.with_issuer(recovery),
            None => authority,
        }
    }
}

impl MembershipBuilder<'_> {
    /// Repeats until nothing is added.
    fn find_possible_issuers(&mut self) {
        loop {
            let mut changed = false;
            for operation in &self.operations {
                let admits = match &operation.change.change {
                    MemberChange::Admit { role, .. } => *role == MemberRole::Admin,
                    MemberChange::Recover { .. } => operation.issuer == self.recovery,
                    MemberChange::Rekey { .. } => {
                        operation.subject.is_some_and(|node| self.possible[node])
                    }
                    MemberChange::Found { .. }
                    | MemberChange::Cut { .. }
                    | MemberChange::Rename { .. }
                    | MemberChange::Rest {} => false,
                };
                if let Some(node) = operation
                    .admits
                    .filter(|_| admits && self.possible[operation.issuer])
                {
                    changed |= !std::mem::replace(&mut self.possible[node], true);
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// Cuts of all possible issuers count.
    fn find_certain_ends(&mut self) {
        for operation in self
            .operations
            .iter()
            .filter(|operation| self.possible[operation.issuer])
        {
            let (node, at, stays_as) = match &operation.change.change {
                MemberChange::Cut { node, at, stays_as } => (node, at, *stays_as),
                MemberChange::Rekey { node, at, .. } => (node, at, None),
                MemberChange::Found { .. }
                | MemberChange::Admit { .. }
                | MemberChange::Rename { .. }
                | MemberChange::Rest {}
                | MemberChange::Recover { .. } => continue,
            };
            let Some(subject) = operation.subject else {
                continue;
            };
            if subject == self.recovery {
                continue;
            }
            let end = match operation.issuer == subject {
                // An operation cannot contain its own hash, and counts itself.
                true => operation.position.sequence + 1,
                false => self.certain_end(*node, *at),
            };
            // A demoted node is no admin, whatever the operation says.
            if let Some(role) = stays_as.map(|role| role.min(MemberRole::Member)) {
                let demotion = Demotion { end, role };
                let known = self.demotions[subject].get_or_insert(demotion);
                *known = known.merge(demotion);
                continue;
            }
            let known = self.ends[subject].get_or_insert(end);
            *known = end.min(*known);
        }
    }

    /// A demotion also limits the node's next key. Repeats until nothing is added.
    fn apply_rekeys(&mut self) {
        loop {
            let mut changed = false;
            for operation in self
                .operations
                .iter()
                .filter(|operation| self.possible[operation.issuer])
            {
                let (MemberChange::Rekey { .. }, Some(before), Some(next)) = (
                    &operation.change.change,
                    operation.subject,
                    operation.admits,
                ) else {
                    continue;
                };
                let Some(demotion) = self.demotions[before] else {
                    continue;
                };
                let carried = Demotion { end: 0, ..demotion };
                let known = self.demotions[next];
                let both = known.map_or(carried, |known| known.merge(carried));
                self.demotions[next] = Some(both);
                changed |= known != Some(both);
            }
            if !changed {
                return;
            }
        }
    }

    /// The end that a cut sets: 0 if the certain part here differs from the log that the cut names.
    fn certain_end(&self, node: NodeId, at: LogTip) -> u64 {
        match self.grants.tip_at(node, at.next) {
            Some(here) if here != at => 0,
            Some(_) | None => at.next,
        }
    }

    fn can_grant(&self, operation: &MemberOperation<'_>) -> bool {
        let is_admin = operation.issuer == self.recovery
            || self.roles[operation.issuer] == Some(MemberRole::Admin);
        let (end, demotion) = (
            self.ends[operation.issuer],
            self.demotions[operation.issuer],
        );
        let ends = end.into_iter().chain(demotion.map(|it| it.end));
        is_admin
            && operation.is_certain
            && ends
                .into_iter()
                .all(|end| operation.position.sequence < end)
    }

    /// Repeats until nothing is added.
    fn find_roles(&mut self) {
        loop {
            let mut found: Vec<(usize, MemberRole)> = Vec::new();
            for operation in self
                .operations
                .iter()
                .filter(|operation| self.can_grant(operation))
            {
                let role = match &operation.change.change {
                    MemberChange::Admit { role, .. } => Some(*role),
                    MemberChange::Recover { .. } if operation.issuer == self.recovery => {
                        Some(MemberRole::Admin)
                    }
                    MemberChange::Rekey { .. } => {
                        operation.subject.and_then(|node| self.roles[node])
                    }
                    MemberChange::Found { .. }
                    | MemberChange::Cut { .. }
                    | MemberChange::Rename { .. }
                    | MemberChange::Rest {}
                    | MemberChange::Recover { .. } => None,
                };
                found.extend(operation.admits.zip(role));
            }
            found.retain(|(node, role)| self.roles[*node].is_none_or(|known| known < *role));
            if found.is_empty() {
                return;
            }
            for (node, role) in found {
                self.roles[node] = self.roles[node].max(Some(role));
            }
        }
    }

    fn build_members(&self) -> BTreeMap<NodeId, ClusterMember> {
        let mut members = BTreeMap::new();
        let (removals, names) = (self.removals(), MemberNames::collect(self));
        for operation in self
            .operations
            .iter()
            .filter(|operation| self.possible[operation.issuer])
        {
            let (Some(node), Some(key)) =
                (operation.admits, operation.change.change.admitted_key())
            else {
                continue;
            };
            let known = self.roles[node].is_some() || self.possible[node];
            if node == self.recovery || !known {
                continue;
            }
            let member = || ClusterMember {
                key: *key,
                name: names.name(node, self),
                role: self.role(node),
                role_max: self.demotions[node].map(|it| it.role),
                demoted_at: self.demotions[node]
                    .filter(|_| self.roles[node] == Some(MemberRole::Admin))
                    .map(|it| it.end),
                cut_at: self.ends[node],
                removal: removals[node],
                can_revoke: self.possible[node],
            };
            members.entry(self.nodes[node]).or_insert_with(member);
        }
        members
    }

    /// The role, limited by demotions.
    fn role(&self, node: usize) -> Option<MemberRole> {
        let most = self.demotions[node].map(|demotion| demotion.role);
        let role = self.roles[node]?;
        Some(most.map_or(role, |most| role.min(most)))
    }

    /// How the nodes that were cut off left.
    fn removals(&self) -> Vec<Option<MemberRemoval>> {
        let mut removals: Vec<Option<MemberRemoval>> = vec![None; self.nodes.len()];
        let possible = self
            .operations
            .iter()
            .filter(|operation| self.possible[operation.issuer]);
        let all = possible.filter_map(MemberOperation::removal);
        for (node, removal) in all.filter(|(node, _)| self.ends[*node].is_some()) {
            let first = removals[node].get_or_insert(removal);
            *first = removal.min(*first);
        }
        removals
    }
}

/// The names of nodes, by node number.
struct MemberNames<'a> {
    /// The last name with certain authority. Concurrent names are ordered arbitrarily, but alike everywhere.
    assigned: Vec<Option<(u64, NodeId, &'a str)>>,
    /// The node under its previous key.
    predecessors: Vec<Option<usize>>,
}

impl<'a> MemberNames<'a> {
    fn collect(builder: &MembershipBuilder<'a>) -> Self {
        let count = builder.nodes.len();
        let mut names = Self {
            assigned: vec![None; count],
            predecessors: vec![None; count],
        };
        for operation in builder
            .operations
            .iter()
            .filter(|operation| builder.can_grant(operation))
        {
            let (node, name) = match &operation.change.change {
                MemberChange::Found { name, .. }
                | MemberChange::Admit { name, .. }
                | MemberChange::Recover { name, .. } => (operation.admits, name),
                MemberChange::Rename { name, .. } => (operation.subject, name),
                MemberChange::Rekey { .. } => {
                    if let Some(next) = operation.admits {
                        names.predecessors[next] = names.predecessors[next].or(operation.subject);
                    }
                    continue;
                }
                MemberChange::Cut { .. } | MemberChange::Rest {} => continue,
            };
            let name = (
                operation.position.sequence,
                operation.position.issuer,
                name.as_str(),
            );
            if let Some(node) = node {
                names.assigned[node] = names.assigned[node].max(Some(name));
            }
        }
        names
    }

    /// The name, or the one under the previous key.
    fn name(&self, node: usize, builder: &MembershipBuilder<'_>) -> String {
        let mut seen = BTreeSet::from([node]);
        let mut current = node;
        loop {
            if let Some((_, _, name)) = self.assigned[current] {
                return name.to_owned();
            }
            match self.predecessors[current] {
                // Rekeys may form a cycle.
                Some(before) if seen.insert(before) => current = before,
                Some(_) | None => return builder.nodes[node].short_id(),
            }
        }
    }
}
