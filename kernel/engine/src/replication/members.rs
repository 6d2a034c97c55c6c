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
    Authority, ClusterId, Grants, LogPosition, LogTip, MemberChange, MemberRole, OperationId,
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
    pub cut: Option<u64>,
    /// How it came to be out.
    pub out: Option<MemberOut>,
    /// True when it perhaps may issue, and so take away.
    pub may_take: bool,
}

/// How a node came to be out of the cluster: what was first written of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberOut {
    /// When, in milliseconds since 1970, by the clock of who wrote it; only shown.
    pub at_ms: u64,
    /// In which way.
    pub how: OutHow,
}

/// In which way a node came to be out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutHow {
    /// It said itself that it leaves.
    Left,
    /// An admin cut it off.
    Cut,
    /// It goes on as that node, under another key.
    Rekeyed(NodeId),
}

impl ClusterMember {
    /// True when it takes part: certainly admitted, and not cut off.
    #[must_use]
    pub fn is_in(&self) -> bool {
        self.role.is_some() && self.cut.is_none()
    }
}

/// The members of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMembers {
    nodes: BTreeMap<NodeId, ClusterMember>,
    recovery: Option<NodeId>,
    founder: Option<NodeId>,
}

/// An operation about members.
struct Told<'a> {
    place: LogPosition,
    id: OperationId,
    change: &'a MemberChange,
    author: &'a str,
    at_ms: u64,
}

impl Told<'_> {
    /// Which node it takes out, and in which way.
    fn takes_out(&self) -> Option<(NodeId, MemberOut)> {
        let (node, how) = match self.change {
            MemberChange::Rekey { node, key, .. } => (*node, OutHow::Rekeyed(key.node())),
            MemberChange::Cut { node, .. } => {
                let by_itself = self.place.issuer == *node || self.author == node.to_string();
                (*node, if by_itself { OutHow::Left } else { OutHow::Cut })
            }
            MemberChange::Found { .. }
            | MemberChange::Admit { .. }
            | MemberChange::Rename { .. }
            | MemberChange::Rest {}
            | MemberChange::Recover { .. } => return None,
        };
        let at_ms = self.at_ms;
        Some((node, MemberOut { at_ms, how }))
    }
}

/// Where the making of the members stands.
struct Making<'a> {
    grants: &'a Grants,
    told: Vec<Told<'a>>,
    recovery: NodeId,
    possible: BTreeSet<NodeId>,
    ends: BTreeMap<NodeId, u64>,
    roles: BTreeMap<NodeId, MemberRole>,
}

impl ClusterMembers {
    /// Nobody, before the founding operation is known.
    #[must_use]
    pub fn nobody() -> Self {
        let nodes = BTreeMap::new();
        Self {
            nodes,
            recovery: None,
            founder: None,
        }
    }

    /// Those that the logs add up to.
    #[must_use]
    pub fn of(grants: &Grants, cluster: ClusterId) -> Self {
        let told = grants.member_changes();
        let told: Vec<Told<'_>> = told
            .map(|(place, id, told)| Told {
                place,
                id,
                change: &told.change,
                author: &told.author,
                at_ms: told.told_at_ms,
            })
            .collect();
        let founding = told.iter().find(|told| told.id.0 == cluster.0);
        let Some((founder, MemberChange::Found { recovery, .. })) =
            founding.map(|told| (told.place.issuer, told.change))
        else {
            return Self::nobody();
        };
        let recovery = recovery.node();
        let mut making = Making {
            grants,
            told,
            recovery,
            possible: BTreeSet::from([founder, recovery]),
            ends: BTreeMap::new(),
            roles: BTreeMap::from([(founder, MemberRole::Admin)]),
        };
        making.find_possible();
        making.find_ends();
        making.find_roles();
        Self {
            nodes: making.nodes(),
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
    pub fn all(&self) -> impl Iterator<Item = (NodeId, &ClusterMember)> {
        self.nodes.iter().map(|(node, member)| (*node, member))
    }

    /// True when the node takes part.
    #[must_use]
    pub fn is_in(&self, node: NodeId) -> bool {
        self.get(node).is_some_and(ClusterMember::is_in)
    }

    /// True when the node takes part and may issue.
    #[must_use]
    pub fn is_admin(&self, node: NodeId) -> bool {
        let member = self.get(node);
        member.is_some_and(|member| member.is_in() && member.role == Some(MemberRole::Admin))
    }

    /// True when the operations of this issuer are kept: it perhaps may issue.
    #[must_use]
    pub fn is_heard(&self, issuer: NodeId) -> bool {
        self.recovery == Some(issuer)
            || self.founder == Some(issuer)
            || self.get(issuer).is_some_and(|member| member.may_take)
    }

    /// True for the key that lies in a drawer.
    #[must_use]
    pub fn is_recovery(&self, issuer: NodeId) -> bool {
        self.recovery == Some(issuer)
    }

    /// Those who could still take something away, without the recovery key, which is nowhere at work.
    pub fn who_could_revoke(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        let may = |member: &ClusterMember| member.may_take && member.cut.is_none();
        self.all()
            .filter(move |(_, member)| may(member))
            .map(|(node, _)| node)
    }

    /// The same as what grants are judged by at this node.
    #[must_use]
    pub fn authority(&self, here: NodeId) -> Authority {
        let mut authority = Authority::nobody(here);
        for (node, member) in self.all().filter(|(_, member)| member.may_take) {
            let end = match member.role {
                Some(MemberRole::Admin) => member.cut.unwrap_or(u64::MAX),
                Some(MemberRole::Member | MemberRole::Leaf) | None => 0,
            };
            authority = authority.with_until(node, end);
        }
        match self.recovery {
            Some(recovery) => authority.with(recovery),
            None => authority,
        }
    }
}

impl Making<'_> {
    /// Repeats until nothing is added.
    fn find_possible(&mut self) {
        loop {
            let before = self.possible.len();
            for told in &self.told {
                let by = told.place.issuer;
                if !self.possible.contains(&by) {
                    continue;
                }
                match told.change {
                    MemberChange::Admit {
                        key,
                        role: MemberRole::Admin,
                        ..
                    } => {
                        self.possible.insert(key.node());
                    }
                    MemberChange::Recover { key, .. } if by == self.recovery => {
                        self.possible.insert(key.node());
                    }
                    MemberChange::Rekey { node, key, .. } if self.possible.contains(node) => {
                        self.possible.insert(key.node());
                    }
                    MemberChange::Found { .. }
                    | MemberChange::Admit { .. }
                    | MemberChange::Cut { .. }
                    | MemberChange::Rename { .. }
                    | MemberChange::Rest {}
                    | MemberChange::Rekey { .. }
                    | MemberChange::Recover { .. } => {}
                }
            }
            if self.possible.len() == before {
                return;
            }
        }
    }

    /// Cuts take away, so that those of everyone who perhaps may issue count.
    fn find_ends(&mut self) {
        for told in &self.told {
            let (MemberChange::Cut { node, at } | MemberChange::Rekey { node, at, .. }) =
                told.change
            else {
                continue;
            };
            let by = told.place.issuer;
            if !self.possible.contains(&by) || *node == self.recovery {
                continue;
            }
            let end = match by == *node {
                // It cannot name its own hash; what it says in it counts.
                true => told.place.sequence + 1,
                false => self.end(*node, *at),
            };
            let known = self.ends.entry(*node).or_insert(end);
            *known = end.min(*known);
        }
    }

    /// How each node that was cut off came to be out.
    fn outs(&self) -> BTreeMap<NodeId, MemberOut> {
        let possible = |told: &&Told<'_>| self.possible.contains(&told.place.issuer);
        let out = self.told.iter().filter(possible);
        let out = out.filter_map(Told::takes_out);
        let mut outs = BTreeMap::new();
        for (node, out) in out.filter(|(node, _)| self.ends.contains_key(node)) {
            let first = outs.entry(node).or_insert(out);
            *first = out.min(*first);
        }
        outs
    }

    /// Nothing counts of a log that is certain here and another one than the cut names.
    fn end(&self, node: NodeId, at: LogTip) -> u64 {
        match self.grants.tip_at(node, at.next) {
            Some(here) if here != at => 0,
            Some(_) | None => at.next,
        }
    }

    fn gives(&self, place: LogPosition) -> bool {
        let by = place.issuer;
        let certain = place.sequence < self.grants.tip(by).next;
        let end = self.ends.get(&by).copied().unwrap_or(u64::MAX);
        let may = by == self.recovery || self.roles.get(&by) == Some(&MemberRole::Admin);
        may && certain && place.sequence < end
    }

    /// Repeats until nothing is added.
    fn find_roles(&mut self) {
        loop {
            let mut found: Vec<(NodeId, MemberRole)> = Vec::new();
            for told in self.told.iter().filter(|told| self.gives(told.place)) {
                match told.change {
                    MemberChange::Admit { key, role, .. } => found.push((key.node(), *role)),
                    MemberChange::Recover { key, .. } if told.place.issuer == self.recovery => {
                        found.push((key.node(), MemberRole::Admin));
                    }
                    MemberChange::Rekey { node, key, .. } => {
                        found.extend(self.roles.get(node).map(|role| (key.node(), *role)));
                    }
                    MemberChange::Found { .. }
                    | MemberChange::Cut { .. }
                    | MemberChange::Rename { .. }
                    | MemberChange::Rest {}
                    | MemberChange::Recover { .. } => {}
                }
            }
            found.retain(|(node, role)| self.roles.get(node).is_none_or(|known| known < role));
            if found.is_empty() {
                return;
            }
            for (node, role) in found {
                let known = self.roles.entry(node).or_insert(role);
                *known = role.max(*known);
            }
        }
    }

    fn nodes(&self) -> BTreeMap<NodeId, ClusterMember> {
        let mut nodes = BTreeMap::new();
        let (names, outs) = (self.names(), self.outs());
        let heard = |told: &&Told<'_>| self.possible.contains(&told.place.issuer);
        for told in self.told.iter().filter(heard) {
            let (MemberChange::Found { key, .. }
            | MemberChange::Admit { key, .. }
            | MemberChange::Rekey { key, .. }
            | MemberChange::Recover { key, .. }) = told.change
            else {
                continue;
            };
            let node = key.node();
            let known = self.roles.contains_key(&node) || self.possible.contains(&node);
            if node == self.recovery || !known {
                continue;
            }
            nodes.entry(node).or_insert_with(|| ClusterMember {
                key: *key,
                name: names.of(node),
                role: self.roles.get(&node).copied(),
                cut: self.ends.get(&node).copied(),
                out: outs.get(&node).copied(),
                may_take: self.possible.contains(&node),
            });
        }
        nodes
    }

    /// What certainly was said of names. All is looked at once: who is in is made anew with each admission.
    fn names(&self) -> MemberNames<'_> {
        let mut names = MemberNames::default();
        for told in self.told.iter().filter(|told| self.gives(told.place)) {
            if let Some((before, out)) = told.takes_out()
                && let OutHow::Rekeyed(node) = out.how
            {
                names.before.entry(node).or_insert(before);
            }
            let (node, name) = match told.change {
                MemberChange::Found { key, name, .. }
                | MemberChange::Admit { key, name, .. }
                | MemberChange::Recover { key, name } => (key.node(), name),
                MemberChange::Rename { node, name } => (*node, name),
                MemberChange::Cut { .. } | MemberChange::Rest {} | MemberChange::Rekey { .. } => {
                    continue;
                }
            };
            let given = (told.place.sequence, told.place.issuer, name.as_str());
            let last = names.given.entry(node).or_insert(given);
            *last = given.max(*last);
        }
        names
    }
}

/// What nodes were called, and which keys they had before.
#[derive(Default)]
struct MemberNames<'a> {
    /// The last name that was given to each; which of two is the last decides nothing.
    given: BTreeMap<NodeId, (u64, NodeId, &'a str)>,
    /// Who each was before.
    before: BTreeMap<NodeId, NodeId>,
}

impl MemberNames<'_> {
    /// Its name, or the one it had under the key before.
    fn of(&self, node: NodeId) -> String {
        let mut seen = BTreeSet::from([node]);
        let mut at = node;
        loop {
            if let Some((_, _, name)) = self.given.get(&at) {
                return (*name).to_owned();
            }
            match self.before.get(&at) {
                // Keys may be said to follow each other in a circle.
                Some(before) if seen.insert(*before) => at = *before,
                Some(_) | None => return node.short(),
            }
        }
    }
}
