//! What an observer reads off the operations by the plain words of the design, without the engine's shortcuts.

use std::collections::{BTreeMap, BTreeSet};

use mgp_engine::policy::grants::{
    ClusterId, EncodedOperation, Grant, GrantChange, GrantId, LogChange, MemberChange, MemberRole,
    Operation, OperationId, Revoke,
};
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::access::Permission;

/// Operations, and what they add up to.
#[derive(Debug, Default)]
pub(crate) struct Held {
    all: Vec<EncodedOperation>,
    /// Everyone who was ever made an admin by somebody who ever was one, and the recovery key.
    pub(crate) admins: BTreeSet<NodeId>,
    /// What somebody who was ever an admin has revoked, by name.
    pub(crate) revoked: BTreeSet<GrantId>,
    /// What takes back something that was allowed, by operation: by whom, and which grants it names.
    pub(crate) withdrawals: BTreeMap<OperationId, (NodeId, BTreeSet<GrantId>)>,
    /// Where every grant that allows stands.
    allows: BTreeMap<GrantId, Vec<usize>>,
}

impl Held {
    pub(crate) fn new(all: Vec<EncodedOperation>, cluster: ClusterId) -> Self {
        let admins = ever_admins(&all, cluster);
        let by_admins = all.iter().filter(|told| admins.contains(&told.issuer()));
        let revoked = by_admins.flat_map(|told| revoked(told.operation()));
        let mut allows: BTreeMap<GrantId, Vec<usize>> = BTreeMap::new();
        for (at, told) in all.iter().enumerate() {
            if let Some(grant) = allowed(told.operation()) {
                allows.entry(grant.id).or_default().push(at);
            }
        }
        let withdrawals = all.iter().filter_map(|told| {
            let ids = withdrawn_grants(&told.operation().change)?;
            let by = admins.get(&told.issuer())?;
            Some((told.id(), (*by, ids)))
        });
        Self {
            revoked: revoked.collect(),
            withdrawals: withdrawals.collect(),
            admins,
            allows,
            all,
        }
    }

    /// The grants of this name that allow, with who issued them.
    pub(crate) fn allows(&self, id: GrantId) -> impl Iterator<Item = (NodeId, &Grant)> {
        let all = self.allows.get(&id).into_iter().flatten();
        all.filter_map(|at| {
            let told = &self.all[*at];
            Some((told.issuer(), allowed(told.operation())?))
        })
    }
}

fn ever_admins(all: &[EncodedOperation], cluster: ClusterId) -> BTreeSet<NodeId> {
    let of_members =
        |told: &&EncodedOperation| matches!(told.operation().change, LogChange::Members(_));
    let all: Vec<&EncodedOperation> = all.iter().filter(of_members).collect();
    let mut admins = BTreeSet::new();
    let mut recovery = None;
    for told in &all {
        if let Some(MemberChange::Found { recovery: key, .. }) = told.operation().change.members()
            && told.id().0 == cluster.0
        {
            recovery = Some(key.node_id());
            admins.extend([told.issuer(), key.node_id()]);
        }
    }
    for _ in 0..all.len() {
        let before = admins.len();
        for told in &all {
            let by = told.issuer();
            let made = match told.operation().change.members() {
                _ if !admins.contains(&by) => None,
                Some(MemberChange::Admit {
                    key,
                    role: MemberRole::Admin,
                    ..
                }) => Some(key.node_id()),
                Some(MemberChange::Recover { key, .. }) if Some(by) == recovery => {
                    Some(key.node_id())
                }
                Some(MemberChange::Rekey { node, key, .. }) if admins.contains(node) => {
                    Some(key.node_id())
                }
                _ => None,
            };
            admins.extend(made);
        }
        if admins.len() == before {
            break;
        }
    }
    admins
}

/// What an operation allows.
fn allowed(operation: &Operation) -> Option<&Grant> {
    match operation.change.grants() {
        Some(GrantChange::Grant(grant)) if grant.permission == Permission::Allow => Some(grant),
        _ => None,
    }
}

/// What an operation takes away by name.
fn revoked(operation: &Operation) -> impl Iterator<Item = GrantId> {
    let change = operation.change.grants();
    let ids = change.map(GrantChange::revoked_ids).unwrap_or_default();
    ids.iter().copied()
}

/// The grants that an operation takes back, where it does: a revoke, or a denial that replaces what allowed.
pub(crate) fn withdrawn_grants(change: &LogChange) -> Option<BTreeSet<GrantId>> {
    let ids = match change.grants()? {
        GrantChange::Revoke(Revoke::Ids(ids)) => ids,
        GrantChange::Grant(grant) if grant.permission == Permission::Deny => &grant.replaces,
        GrantChange::Grant(_) | GrantChange::Revoke(Revoke::UpTo { .. }) => return None,
    };
    Some(ids.iter().copied().collect())
}
