//! A simple model of the rules, without regard to performance.

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::access::Permission;

use super::super::super::test_logs::{
    LogWriter, RECOVERY, admit_change, cut_change, for_tool, grant_change, key, node,
    revoke_change, subject,
};
use super::StepChange;
use crate::policy::grants::{
    ClusterId, Grant, GrantChange, GrantId, GrantResource, LogChange, LogTip, MemberChange,
    MemberRole, Operation, OperationId, Revoke, SignedOperation,
};

/// The change of a step; a cut names the current or an earlier end of the log.
pub(super) fn change(step: &StepChange, writers: &BTreeMap<u8, LogWriter>) -> LogChange {
    let tip = |n: &u8| writers.get(n).map_or(LogTip::EMPTY, |writer| writer.tip);
    match step {
        StepChange::Admit(n, role) => admit_change(*n, *role),
        StepChange::Cut(n, true) => cut_change(*n, LogTip::EMPTY),
        StepChange::Cut(n, false) => cut_change(*n, tip(n)),
        StepChange::Rekey(n, to) => LogChange::Members(MemberChange::Rekey {
            node: node(*n),
            at: tip(n),
            key: key(*to),
        }),
        StepChange::Recover(n) => LogChange::Members(MemberChange::Recover {
            key: key(*n),
            name: "again".into(),
        }),
        StepChange::Allow(id, replaces) => make_grant(*id, Permission::Allow, *replaces),
        StepChange::Deny(id, replaces) => make_grant(*id, Permission::Deny, *replaces),
        StepChange::Revoke(id) => revoke_change(*id),
        StepChange::UpTo(n, until) => LogChange::Grants(GrantChange::Revoke(Revoke::UpTo {
            subject: subject(),
            until: [(node(*n), *until)].into(),
        })),
        StepChange::Unknown => LogChange::Unknown("mute".into()),
    }
}

/// A third of the grants are of a tool, a third of another one.
fn make_grant(id: u8, permission: Permission, replaces: u8) -> LogChange {
    let replaces = (id != replaces && replaces.is_multiple_of(2)).then_some(replaces);
    let change = grant_change(id, permission, replaces.as_slice());
    match id % 3 {
        0 => change,
        1 => for_tool(change, "read"),
        _ => for_tool(change, "write"),
    }
}

/// The state that a set of operations results in.
pub(super) struct Model {
    all: Vec<(OperationId, Operation)>,
    founder: Option<NodeId>,
    possible: BTreeSet<NodeId>,
    ends: BTreeMap<NodeId, u64>,
    roles: BTreeMap<NodeId, MemberRole>,
}

impl Model {
    pub(super) fn of(entries: &[SignedOperation], cluster: ClusterId) -> Self {
        let written = entries.iter().map(SignedOperation::encoded);
        let mut all: Vec<_> = written
            .map(|written| (written.id(), written.operation().clone()))
            .collect();
        all.sort_by_key(|(id, _)| *id);
        all.dedup_by_key(|(id, _)| *id);
        let founding = all.iter().find(|(id, _)| id.0 == cluster.0);
        let mut model = Self {
            founder: founding.map(|(_, operation)| operation.place.issuer),
            all,
            possible: BTreeSet::new(),
            ends: BTreeMap::new(),
            roles: BTreeMap::new(),
        };
        if let Some(founder) = model.founder {
            model.possible = BTreeSet::from([founder, node(RECOVERY)]);
            model.roles.insert(founder, MemberRole::Admin);
            for _ in 0..entries.len() {
                model.widen();
            }
            model
                .all
                .retain(|(_, it)| model.possible.contains(&it.place.issuer));
            model.cut();
            for _ in 0..entries.len() {
                model.admit();
            }
        }
        model
    }

    fn widen(&mut self) {
        for (_, operation) in &self.all {
            let by = operation.place.issuer;
            let made = match operation.change.members() {
                Some(MemberChange::Admit {
                    key,
                    role: MemberRole::Admin,
                    ..
                }) => Some(key.node_id()),
                Some(MemberChange::Recover { key, .. }) if by == node(RECOVERY) => {
                    Some(key.node_id())
                }
                Some(MemberChange::Rekey { node, key, .. }) if self.possible.contains(node) => {
                    Some(key.node_id())
                }
                _ => None,
            };
            if self.possible.contains(&by) {
                self.possible.extend(made);
            }
        }
    }

    /// The ids claimed for a position: of its operations, and by their successors.
    fn claimed(&self, issuer: NodeId, sequence: u64) -> BTreeSet<OperationId> {
        let of_issuer = self.all.iter().filter(|(_, it)| it.place.issuer == issuer);
        let claims = of_issuer.filter_map(|(id, it)| match it.place.sequence {
            at if at == sequence => Some(*id),
            at if at == sequence + 1 => Some(it.previous),
            _ => None,
        });
        claims.collect()
    }

    fn at(&self, issuer: NodeId, sequence: u64) -> Option<OperationId> {
        let mut found = self
            .all
            .iter()
            .filter(|(_, it)| it.place.issuer == issuer && it.place.sequence == sequence);
        found.next().map(|(id, _)| *id)
    }

    fn certain(&self, issuer: NodeId) -> u64 {
        let is_certain = |sequence: &u64| {
            self.at(issuer, *sequence).is_some() && self.claimed(issuer, *sequence).len() == 1
        };
        (0..).take_while(is_certain).count() as u64
    }

    fn is_forked(&self, issuer: NodeId) -> bool {
        (0..100).any(|sequence| self.claimed(issuer, sequence).len() > 1)
    }

    fn cut(&mut self) {
        let mut ends: BTreeMap<NodeId, u64> = BTreeMap::new();
        for (_, operation) in &self.all {
            let (cut, at) = match operation.change.members() {
                Some(MemberChange::Cut { node, at, .. } | MemberChange::Rekey { node, at, .. }) => {
                    (*node, *at)
                }
                _ => continue,
            };
            if cut == node(RECOVERY) {
                continue;
            }
            let another = at.next.checked_sub(1).is_some_and(|last| {
                self.certain(cut) >= at.next && self.at(cut, last) != Some(at.id)
            });
            let end = match operation.place.issuer == cut {
                true => operation.place.sequence + 1,
                false if another => 0,
                false => at.next,
            };
            let known = ends.entry(cut).or_insert(end);
            *known = end.min(*known);
        }
        self.ends = ends;
    }

    fn gives(&self, operation: &Operation) -> bool {
        let by = operation.place.issuer;
        let end = self.ends.get(&by).copied().unwrap_or(u64::MAX);
        let admin = by == node(RECOVERY) || self.roles.get(&by) == Some(&MemberRole::Admin);
        admin && operation.place.sequence < end.min(self.certain(by))
    }

    fn admit(&mut self) {
        let mut made = Vec::new();
        for (_, operation) in self.all.iter().filter(|(_, it)| self.gives(it)) {
            match operation.change.members() {
                Some(MemberChange::Admit { key, role, .. }) => made.push((key.node_id(), *role)),
                Some(MemberChange::Recover { key, .. })
                    if operation.place.issuer == node(RECOVERY) =>
                {
                    made.push((key.node_id(), MemberRole::Admin));
                }
                Some(MemberChange::Rekey { node, key, .. }) => {
                    made.extend(self.roles.get(node).map(|role| (key.node_id(), *role)));
                }
                _ => {}
            }
        }
        for (node, role) in made {
            let known = self.roles.get(&node).copied();
            self.roles
                .insert(node, known.map_or(role, |known| known.max(role)));
        }
    }

    pub(super) fn is_in(&self, node: NodeId) -> bool {
        self.roles.contains_key(&node) && !self.ends.contains_key(&node)
    }

    pub(super) fn is_admin(&self, node: NodeId) -> bool {
        self.is_in(node) && self.roles.get(&node) == Some(&MemberRole::Admin)
    }

    fn allows(&self, operation: &Operation) -> bool {
        let by = operation.place.issuer;
        let understood = !self
            .all
            .iter()
            .any(|(_, it)| it.place.issuer == by && matches!(it.change, LogChange::Unknown(_)));
        self.gives(operation) && !self.is_forked(by) && understood
    }

    fn revokes(&self, by: &Operation, of: &Operation, grant: &Grant) -> bool {
        let named = match by.change.grants() {
            Some(GrantChange::Grant(new)) => new.replaces.contains(&grant.id),
            Some(GrantChange::Revoke(Revoke::Ids(ids))) => ids.contains(&grant.id),
            Some(GrantChange::Revoke(Revoke::UpTo { subject, until })) => {
                let last = until.get(&of.place.issuer);
                *subject == grant.subject && last.is_some_and(|last| of.place.sequence <= *last)
            }
            None => false,
        };
        named && (grant.permission == Permission::Allow || self.allows(by))
    }

    /// Whether the issuer of an operation had seen another one.
    fn knew(&self, by: &Operation, other: &Operation) -> bool {
        let (place, log) = (other.place, other.place.issuer);
        let forked = (0..50).find(|sequence| self.claimed(log, *sequence).len() > 1);
        let known = if log == by.place.issuer {
            by.place.sequence
        } else {
            by.context.logs.get(&log).copied().unwrap_or(0)
        };
        place.sequence < known && forked.is_none_or(|fork| place.sequence < fork)
    }

    /// Whether a concurrent revoke overlaps the grant.
    fn beats(&self, (id, by): (OperationId, &Operation), of: &Operation, grant: &Grant) -> bool {
        let about = |other: &Grant| {
            let whole = |grant: &Grant| matches!(grant.resource, GrantResource::Server(_));
            let same = other.resource == grant.resource;
            other.permission == Permission::Allow && (same || whole(other) || whole(grant))
        };
        let named = |ids: &[GrantId]| {
            let mut all = self.all.iter();
            all.any(|(_, it)| match it.change.grants() {
                Some(GrantChange::Grant(other)) => ids.contains(&other.id) && about(other),
                _ => false,
            })
        };
        let withdraws = match by.change.grants() {
            Some(GrantChange::Revoke(Revoke::UpTo { .. })) => true,
            Some(GrantChange::Revoke(Revoke::Ids(ids))) => named(ids),
            Some(GrantChange::Grant(new)) if new.permission == Permission::Deny => {
                named(&new.replaces)
            }
            _ => false,
        };
        let knew = || self.knew(of, by) || of.context.branches.contains(&id) || self.knew(by, of);
        grant.permission == Permission::Allow && withdraws && !knew()
    }

    /// The ids of the grants in force, one for each operation, in order.
    pub(super) fn in_force(&self) -> Vec<u8> {
        if self.founder.is_none() {
            return Vec::new();
        }
        let mut found: Vec<(GrantId, NodeId, u64, OperationId)> = Vec::new();
        for (id, operation) in &self.all {
            let Some(GrantChange::Grant(grant)) = operation.change.grants() else {
                continue;
            };
            let counts = grant.permission == Permission::Deny || self.allows(operation);
            let mut others = self.all.iter();
            let taken = |(id, by): &(OperationId, Operation)| {
                self.revokes(by, operation, grant) || self.beats((*id, by), operation, grant)
            };
            if counts && !others.any(taken) {
                let place = operation.place;
                found.push((grant.id, place.issuer, place.sequence, *id));
            }
        }
        found.sort();
        found.iter().map(|(id, ..)| id.0[0]).collect()
    }
}
