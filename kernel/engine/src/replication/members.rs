//! Who is in the cluster and who may issue, made of the logs alone: the same at every node that knows the same
//! operations, in whatever order they came.
//!
//! Who *perhaps* may issue takes away: whoever was ever admitted by somebody who perhaps may, anywhere in a log.
//! This set only grows, so no revocation, denial or cut is ever undone, not by cutting off who made it, and not
//! by a fork of the log that admitted its maker. Who *certainly* may gives: whoever was admitted at a certain
//! place below every cut by somebody who certainly may.

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::NodeId;

use crate::node_key::PublicKey;
use crate::policy::grants::{
    Authority, ClusterId, Grants, LogPosition, LogTip, LoggedMemberChange, MemberChange,
    MemberRole, OperationId,
};

/// What is known of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMember {
    /// Its key.
    pub key: PublicKey,
    /// What people call it.
    pub name: String,
    /// What it certainly may do; None where its admission is in doubt.
    pub role: Option<MemberRole>,
    /// How much of its log may give, when it was cut off.
    pub cut_at: Option<u64>,
    /// How much of its log may give, when it was an admin and was demoted. It takes part still, and what it took away
    /// stays so.
    pub(crate) demoted_at: Option<u64>,
    /// The most that it may do under its key, once it was demoted.
    pub role_max: Option<MemberRole>,
    /// How it came to be out.
    pub removal: Option<MemberRemoval>,
    /// True when it perhaps may issue, and so take away.
    pub(crate) can_revoke: bool,
}

/// How a node came to be out of the cluster: what was first written of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberRemoval {
    /// When, in milliseconds since 1970, by the clock of who wrote it; only shown.
    pub at_ms: u64,
    /// In which way.
    pub reason: RemovalReason,
}

/// In which way a node came to be out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemovalReason {
    /// It said itself that it leaves.
    Left,
    /// An admin cut it off.
    CutOff,
    /// It goes on as that node, under another key.
    Rekeyed(NodeId),
}

impl ClusterMember {
    /// True when it takes part: certainly admitted, and not cut off.
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

/// Everyone that is named anywhere, by a number.
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

/// An operation about members.
struct MemberOperation<'a> {
    place: LogPosition,
    id: OperationId,
    change: &'a LoggedMemberChange,
    issuer: usize,
    /// Whom it lets in, or says to go on under this key.
    admits: Option<usize>,
    /// Whom it names besides.
    subject: Option<usize>,
    /// It lies in the certain part of its log.
    certain: bool,
}

impl<'a> MemberOperation<'a> {
    fn collect(grants: &'a Grants, numbers: &mut NodeIndexes) -> Vec<Self> {
        // They come log by log.
        let mut log: Option<(NodeId, usize, u64)> = None;
        let numbered = |(place, id, told): (LogPosition, OperationId, &'a LoggedMemberChange)| {
            let issuer = place.issuer;
            let (_, by, end) = match log {
                Some(same @ (of, ..)) if of == issuer => same,
                Some(_) | None => (issuer, numbers.index(issuer), grants.tip(issuer).next),
            };
            log = Some((issuer, by, end));
            let about = match &told.change {
                MemberChange::Cut { node, .. }
                | MemberChange::Rename { node, .. }
                | MemberChange::Rekey { node, .. } => Some(*node),
                MemberChange::Found { .. }
                | MemberChange::Admit { .. }
                | MemberChange::Rest {}
                | MemberChange::Recover { .. } => None,
            };
            Self {
                place,
                id,
                change: told,
                issuer: by,
                admits: told.admitted_node.map(|node| numbers.index(node)),
                subject: about.map(|node| numbers.index(node)),
                certain: place.sequence < end,
            }
        };
        grants.member_changes().map(numbered).collect()
    }

    /// Which node it takes out, and in which way.
    fn removal(&self) -> Option<(usize, MemberRemoval)> {
        let (at_ms, about) = (self.change.issued_at_ms, self.subject?);
        let how = match &self.change.change {
            MemberChange::Rekey { .. } => RemovalReason::Rekeyed(self.change.admitted_node?),
            MemberChange::Cut {
                stays_as: Some(_), ..
            } => return None,
            MemberChange::Cut { node, .. } => {
                let by_itself =
                    self.issuer == about || NodeId::parse(&self.change.author) == Some(*node);
                if by_itself {
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
        Some((about, MemberRemoval { at_ms, reason: how }))
    }
}

/// What is left of a node that was demoted.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Demotion {
    /// How much of its log may give.
    end: u64,
    /// The most that it may do.
    role: MemberRole,
}

impl Demotion {
    /// Of two, each takes away.
    fn merge(self, other: Self) -> Self {
        Self {
            end: self.end.min(other.end),
            role: self.role.min(other.role),
        }
    }
}

/// Where the making of the members stands: what is known of each node, by its number.
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
    /// Nobody, before the founding operation is known.
    #[must_use]
    pub(crate) fn empty() -> Self {
        let nodes = BTreeMap::new();
        Self {
            nodes,
            recovery: None,
            founder: None,
        }
    }

    /// Those that the logs add up to.
    #[must_use]
    pub fn from_grants(grants: &Grants, cluster: ClusterId) -> Self {
        let mut numbers = NodeIndexes::default();
        let told = MemberOperation::collect(grants, &mut numbers);
        let founding = told.iter().find(|told| told.id.0 == cluster.0);
        let Some((founder, MemberChange::Found { recovery, .. })) =
            founding.map(|told| (told.place.issuer, &told.change.change))
        else {
            return Self::empty();
        };
        let recovery = recovery.node_id();
        let (first, last) = (numbers.index(founder), numbers.index(recovery));
        let count = numbers.nodes.len();
        let mut making = MembershipBuilder {
            grants,
            operations: told,
            nodes: numbers.nodes,
            recovery: last,
            possible: vec![false; count],
            ends: vec![None; count],
            demotions: vec![None; count],
            roles: vec![None; count],
        };
        making.possible[first] = true;
        making.possible[last] = true;
        making.roles[first] = Some(MemberRole::Admin);
        making.find_possible_issuers();
        making.find_certain_ends();
        making.apply_rekeys();
        making.find_roles();
        Self {
            nodes: making.build_members(),
            recovery: Some(recovery),
            founder: Some(founder),
        }
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, node: NodeId) -> Option<&ClusterMember> {
        self.nodes.get(&node)
    }

    /// All that were ever admitted, those that were cut off included.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &ClusterMember)> {
        self.nodes.iter().map(|(node, member)| (*node, member))
    }

    /// True when the node takes part.
    #[must_use]
    pub fn is_member(&self, node: NodeId) -> bool {
        self.get(node).is_some_and(ClusterMember::is_active)
    }

    /// True when the node takes part and may issue.
    #[must_use]
    pub fn is_admin(&self, node: NodeId) -> bool {
        let member = self.get(node);
        member.is_some_and(|member| member.is_active() && member.role == Some(MemberRole::Admin))
    }

    /// True when the operations of this issuer are kept: it perhaps may issue.
    #[must_use]
    pub fn can_possibly_issue(&self, issuer: NodeId) -> bool {
        self.recovery == Some(issuer)
            || self.founder == Some(issuer)
            || self.get(issuer).is_some_and(|member| member.can_revoke)
    }

    /// True for the key that lies in a drawer.
    #[must_use]
    pub fn is_recovery(&self, issuer: NodeId) -> bool {
        self.recovery == Some(issuer)
    }

    /// Those who could still take something away, without the recovery key, which is nowhere at work.
    pub fn possible_revokers(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        let may = |member: &ClusterMember| {
            member.can_revoke && member.cut_at.is_none() && member.demoted_at.is_none()
        };
        self.iter()
            .filter(move |(_, member)| may(member))
            .map(|(node, _)| node)
    }

    /// The same as what grants are judged by at this node.
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
            let mut more = false;
            for told in &self.operations {
                let admits = match &told.change.change {
                    MemberChange::Admit { role, .. } => *role == MemberRole::Admin,
                    MemberChange::Recover { .. } => told.issuer == self.recovery,
                    MemberChange::Rekey { .. } => told.subject.is_some_and(|of| self.possible[of]),
                    MemberChange::Found { .. }
                    | MemberChange::Cut { .. }
                    | MemberChange::Rename { .. }
                    | MemberChange::Rest {} => false,
                };
                if let Some(node) = told.admits.filter(|_| admits && self.possible[told.issuer]) {
                    more |= !std::mem::replace(&mut self.possible[node], true);
                }
            }
            if !more {
                return;
            }
        }
    }

    /// Cuts take away, so that those of everyone who perhaps may issue count.
    fn find_certain_ends(&mut self) {
        for told in self
            .operations
            .iter()
            .filter(|told| self.possible[told.issuer])
        {
            let (node, at, stays_as) = match &told.change.change {
                MemberChange::Cut { node, at, stays_as } => (node, at, *stays_as),
                MemberChange::Rekey { node, at, .. } => (node, at, None),
                MemberChange::Found { .. }
                | MemberChange::Admit { .. }
                | MemberChange::Rename { .. }
                | MemberChange::Rest {}
                | MemberChange::Recover { .. } => continue,
            };
            let Some(about) = told.subject else {
                continue;
            };
            if about == self.recovery {
                continue;
            }
            let end = match told.issuer == about {
                // It cannot name its own hash; what it says in it counts.
                true => told.place.sequence + 1,
                false => self.certain_end(*node, *at),
            };
            // No admin is left of it, whatever was written.
            if let Some(role) = stays_as.map(|role| role.min(MemberRole::Member)) {
                let demotion = Demotion { end, role };
                let known = self.demotions[about].get_or_insert(demotion);
                *known = known.merge(demotion);
                continue;
            }
            let known = self.ends[about].get_or_insert(end);
            *known = end.min(*known);
        }
    }

    /// Who goes on under another key is no more under that one. Repeats until nothing is added.
    fn apply_rekeys(&mut self) {
        loop {
            let mut more = false;
            for told in self
                .operations
                .iter()
                .filter(|told| self.possible[told.issuer])
            {
                let (MemberChange::Rekey { .. }, Some(before), Some(next)) =
                    (&told.change.change, told.subject, told.admits)
                else {
                    continue;
                };
                let Some(demotion) = self.demotions[before] else {
                    continue;
                };
                let carried = Demotion { end: 0, ..demotion };
                let known = self.demotions[next];
                let both = known.map_or(carried, |known| known.merge(carried));
                self.demotions[next] = Some(both);
                more |= known != Some(both);
            }
            if !more {
                return;
            }
        }
    }

    /// Nothing counts of a log that is certain here and another one than the cut names.
    fn certain_end(&self, node: NodeId, at: LogTip) -> u64 {
        match self.grants.tip_at(node, at.next) {
            Some(here) if here != at => 0,
            Some(_) | None => at.next,
        }
    }

    fn can_grant(&self, told: &MemberOperation<'_>) -> bool {
        let may =
            told.issuer == self.recovery || self.roles[told.issuer] == Some(MemberRole::Admin);
        let (end, demotion) = (self.ends[told.issuer], self.demotions[told.issuer]);
        let ends = end.into_iter().chain(demotion.map(|it| it.end));
        may && told.certain && ends.into_iter().all(|end| told.place.sequence < end)
    }

    /// Repeats until nothing is added.
    fn find_roles(&mut self) {
        loop {
            let mut found: Vec<(usize, MemberRole)> = Vec::new();
            for told in self.operations.iter().filter(|told| self.can_grant(told)) {
                let role = match &told.change.change {
                    MemberChange::Admit { role, .. } => Some(*role),
                    MemberChange::Recover { .. } if told.issuer == self.recovery => {
                        Some(MemberRole::Admin)
                    }
                    MemberChange::Rekey { .. } => told.subject.and_then(|of| self.roles[of]),
                    MemberChange::Found { .. }
                    | MemberChange::Cut { .. }
                    | MemberChange::Rename { .. }
                    | MemberChange::Rest {}
                    | MemberChange::Recover { .. } => None,
                };
                found.extend(told.admits.zip(role));
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
        let (outs, names) = (self.removals(), MemberNames::collect(self));
        for told in self
            .operations
            .iter()
            .filter(|told| self.possible[told.issuer])
        {
            let (Some(node), Some(key)) = (told.admits, told.change.change.admitted_key()) else {
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
                removal: outs[node],
                can_revoke: self.possible[node],
            };
            members.entry(self.nodes[node]).or_insert_with(member);
        }
        members
    }

    /// What it may do, after all that lowers it.
    fn role(&self, node: usize) -> Option<MemberRole> {
        let most = self.demotions[node].map(|demotion| demotion.role);
        let role = self.roles[node]?;
        Some(most.map_or(role, |most| role.min(most)))
    }

    /// How the nodes that were cut off came to be out.
    fn removals(&self) -> Vec<Option<MemberRemoval>> {
        let mut outs: Vec<Option<MemberRemoval>> = vec![None; self.nodes.len()];
        let possible = self
            .operations
            .iter()
            .filter(|told| self.possible[told.issuer]);
        let told = possible.filter_map(MemberOperation::removal);
        for (node, out) in told.filter(|(node, _)| self.ends[*node].is_some()) {
            let first = outs[node].get_or_insert(out);
            *first = out.min(*first);
        }
        outs
    }
}

/// What the nodes are called, by their numbers.
struct MemberNames<'a> {
    /// The last name that was certainly given; which of two is the last decides nothing.
    assigned: Vec<Option<(u64, NodeId, &'a str)>>,
    /// The node that each was under the key before.
    predecessors: Vec<Option<usize>>,
}

impl<'a> MemberNames<'a> {
    fn collect(making: &MembershipBuilder<'a>) -> Self {
        let count = making.nodes.len();
        let mut names = Self {
            assigned: vec![None; count],
            predecessors: vec![None; count],
        };
        for told in making
            .operations
            .iter()
            .filter(|told| making.can_grant(told))
        {
            let (node, name) = match &told.change.change {
                MemberChange::Found { name, .. }
                | MemberChange::Admit { name, .. }
                | MemberChange::Recover { name, .. } => (told.admits, name),
                MemberChange::Rename { name, .. } => (told.subject, name),
                MemberChange::Rekey { .. } => {
                    if let Some(next) = told.admits {
                        names.predecessors[next] = names.predecessors[next].or(told.subject);
                    }
                    continue;
                }
                MemberChange::Cut { .. } | MemberChange::Rest {} => continue,
            };
            let name = (told.place.sequence, told.place.issuer, name.as_str());
            if let Some(node) = node {
                names.assigned[node] = names.assigned[node].max(Some(name));
            }
        }
        names
    }

    /// Its name, or the one it had under the key before.
    fn name(&self, node: usize, making: &MembershipBuilder<'_>) -> String {
        let mut seen = BTreeSet::from([node]);
        let mut at = node;
        loop {
            if let Some((_, _, name)) = self.assigned[at] {
                return name.to_owned();
            }
            match self.predecessors[at] {
                // Keys may be said to follow each other in a circle.
                Some(before) if seen.insert(before) => at = before,
                Some(_) | None => return making.nodes[node].short_id(),
            }
        }
    }
}
