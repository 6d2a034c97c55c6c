//! The operator's decisions on permissions, stored as grants.

use std::collections::BTreeMap;

use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::access::Permission;
use mgp_protocol::mgp::permission::{PermissionType, Verdict};

use crate::policy::grants::{
    Authority, Force, Grant, GrantChange, GrantId, GrantResource, Grants, Subject,
};

/// A decision of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Approved, or denied.
    pub permission: Permission,
    /// By whom.
    pub by: String,
    /// When it ends, in milliseconds since 1970.
    pub until_ms: Option<u64>,
}

/// The operator's decisions on a server in force. Deny wins, then the one that lasts longest.
#[must_use]
pub fn recorded(
    grants: &Grants,
    authority: &Authority,
    server: &ServerId,
    now_ms: u64,
) -> BTreeMap<PermissionType, Recorded> {
    let mut out: BTreeMap<PermissionType, Recorded> = BTreeMap::new();
    let subject = Subject::Server(authority.here().server(server.clone()));
    for granted in grants.of(&subject) {
        let GrantResource::Permission(name) = &granted.grant.resource else {
            continue;
        };
        if grants.force(granted, authority, now_ms) != Force::InForce {
            continue;
        }
        let found = Recorded {
            permission: granted.grant.permission,
            by: granted.author.clone(),
            until_ms: granted.grant.not_after_ms,
        };
        let weight = |r: &Recorded| {
            (
                r.permission == Permission::Deny,
                r.until_ms.unwrap_or(u64::MAX),
            )
        };
        for permission in PermissionType::read(name) {
            let known = out.entry(permission).or_insert_with(|| found.clone());
            if weight(&found) > weight(known) {
                *known = found.clone();
            }
        }
    }
    out
}

/// The operation recorded when the operator decides; it must be on disk before
/// [`super::PermissionGate::decide`]. `None` for a deferral, which changes nothing. `id` is random and new.
#[must_use]
pub fn record(
    grants: &Grants,
    authority: &Authority,
    server: &ServerId,
    permission: &PermissionType,
    verdict: Verdict,
    until_ms: Option<u64>,
    id: GrantId,
) -> Option<GrantChange> {
    let (subject, resource) = (
        Subject::Server(authority.here().server(server.clone())),
        GrantResource::permission(permission),
    );
    let standing = grants.standing(&subject, &resource, authority);
    Some(GrantChange::Grant(Grant {
        id,
        permission: match verdict {
            Verdict::Approved => Permission::Allow,
            Verdict::Denied => Permission::Deny,
            Verdict::Deferred => return None,
        },
        replaces: standing.iter().map(|granted| granted.grant.id).collect(),
        subject,
        resource,
        not_after_ms: until_ms,
        told_by: None,
        justification: None,
    }))
}
