//! What an observer reads off the operations by the plain words of the design, without the engine's shortcuts.

use std::collections::{BTreeMap, BTreeSet};

use mgp_engine::policy::grants::{
    ClusterId, Grant, GrantChange, GrantId, MemberChange, MemberRole, Operation, OperationId,
};
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::access::Permission;

use crate::world::revoked;

/// Everyone who was ever made an admin by somebody who ever was one, and the recovery key.
pub(crate) fn ever_admins(
    all: &[(OperationId, Operation)],
    cluster: ClusterId,
) -> BTreeSet<NodeId> {
    let mut admins = BTreeSet::new();
    let mut recovery = None;
    for (id, operation) in all {
        if let Some(MemberChange::Found { recovery: key, .. }) = operation.change.members()
            && id.0 == cluster.0
        {
            recovery = Some(key.node());
            admins.extend([operation.place.issuer, key.node()]);
        }
    }
    for _ in 0..all.len() {
        let before = admins.len();
        for (_, operation) in all {
            let by = operation.place.issuer;
            let made = match operation.change.members() {
                Some(MemberChange::Admit {
                    key,
                    role: MemberRole::Admin,
                    ..
                }) => Some(key.node()),
                Some(MemberChange::Recover { key, .. }) if Some(by) == recovery => Some(key.node()),
                Some(MemberChange::Rekey { node, key, .. }) if admins.contains(node) => {
                    Some(key.node())
                }
                _ => None,
            };
            admins.extend(made.filter(|_| admins.contains(&by)));
        }
        if admins.len() == before {
            break;
        }
    }
    admins
}

/// What somebody who was ever an admin has revoked, by name.
pub(crate) fn ever_revoked(
    all: &[(OperationId, Operation)],
    cluster: ClusterId,
) -> BTreeSet<GrantId> {
    let admins = ever_admins(all, cluster);
    let by_admins = all
        .iter()
        .filter(|(_, operation)| admins.contains(&operation.place.issuer));
    by_admins
        .flat_map(|(_, operation)| revoked(operation))
        .collect()
}

/// Every grant that allows, with who issued it.
pub(crate) fn allows(all: &[(OperationId, Operation)]) -> BTreeMap<GrantId, Vec<(NodeId, Grant)>> {
    let mut found: BTreeMap<GrantId, Vec<(NodeId, Grant)>> = BTreeMap::new();
    for (_, operation) in all {
        if let Some(GrantChange::Grant(grant)) = operation.change.grants()
            && grant.permission == Permission::Allow
        {
            let by = operation.place.issuer;
            found.entry(grant.id).or_default().push((by, grant.clone()));
        }
    }
    found
}
