//! The operator's decisions on permissions, stored as grants.

use std::collections::BTreeMap;

use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::access::Permission;
use mgp_protocol::mgp::permission::{PermissionType, Verdict};

use crate::policy::grants::{
    Authority, Grant, GrantChange, GrantId, GrantResource, GrantStatus, Grants, Subject,
};

/// A decision of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedDecision {
    /// Approved, or denied.
    pub(crate) permission: Permission,
    /// By whom.
    pub(crate) decided_by: String,
    /// When it ends, in milliseconds since 1970.
    pub(crate) expires_ms: Option<u64>,
}

/// The operator's decisions in force on a server. Deny wins, then the one that lasts longest.
#[must_use]
pub fn decisions_in_force(
    grants: &Grants,
    authority: &Authority,
    server: &ServerId,
    now_ms: u64,
) -> BTreeMap<PermissionType, RecordedDecision> {
    let mut out: BTreeMap<PermissionType, RecordedDecision> = BTreeMap::new();
    let subject = Subject::Server(authority.local_node().server(server.clone()));
    for granted in grants.for_subject(&subject) {
        let GrantResource::Permission(name) = &granted.grant.resource else {
            continue;
        };
        if grants.status(granted, authority, now_ms) != GrantStatus::InForce {
            continue;
        }
        let found = RecordedDecision {
            permission: granted.grant.permission,
            decided_by: granted.author.clone(),
            expires_ms: granted.grant.not_after_ms,
        };
        let weight = |r: &RecordedDecision| {
            (
                r.permission == Permission::Deny,
                r.expires_ms.unwrap_or(u64::MAX),
            )
        };
        for permission in PermissionType::parse_all(name) {
            let known = out.entry(permission).or_insert_with(|| found.clone());
            if weight(&found) > weight(known) {
                *known = found.clone();
            }
        }
    }
    out
}

/// The operation to record when the operator decides; it must be on disk before [`super::PermissionGate::decide`].
/// `None` for a deferral, which changes nothing. `id` is random and new.
#[must_use]
pub(crate) fn to_grant_change(
    grants: &Grants,
    authority: &Authority,
    server: &ServerId,
    permission: &PermissionType,
    verdict: Verdict,
    until_ms: Option<u64>,
    id: GrantId,
) -> Option<GrantChange> {
    let (subject, resource) = (
        Subject::Server(authority.local_node().server(server.clone())),
        GrantResource::permission(permission),
    );
    let standing = grants.unrevoked(&subject, &resource, authority);
    Some(GrantChange::Grant(Grant {
        id,
        permission: match verdict {
            Verdict::Approved => Permission::Allow,
            Verdict::Denied => Permission::Deny,
            Verdict::Deferred => return None,
        },
        replaces: standing.iter().map(|granted| granted.grant.id).collect(),
        when: None,
        subject,
        resource,
        not_after_ms: until_ms,
        told_by: None,
        justification: None,
    }))
}
