//! Requested changes, decided as the access actor decides them.

use mgp_protocol::mgp::permission::{PermissionType, Verdict};

use super::super::changes::{ChangeRequest, GrantRecords};
use super::*;

fn decide(
    grants: &Grants,
    principal: &Principal,
    request: &ChangeRequest,
) -> Result<Vec<GrantChange>, GrantRequestError> {
    let made = u8::try_from(grants.iter().count()).unwrap();
    let records = GrantRecords {
        grants,
        authority: &authority(),
        defaults: &defaults(DefaultPolicy::OptIn),
        now_ms: NOW,
        new_id: id(made + 1),
    };
    request.decide(principal, &records)
}

fn apply(grants: &mut Grants, request: &ChangeRequest) -> Vec<GrantChange> {
    let changes = decide(grants, &operator(), request).unwrap();
    for change in &changes {
        write(grants, 1, change.clone());
    }
    changes
}

fn permission_of(changes: &[GrantChange]) -> Option<Permission> {
    match changes {
        [GrantChange::Grant(grant)] => Some(grant.permission),
        _ => None,
    }
}

/// What an agent registers it may call, unless the operator has denied it: registering again does not undo that.
#[test]
fn a_creator_is_granted_its_server_unless_it_is_denied() {
    let to_creator = ChangeRequest::GrantToCreator(AgentId::new("a"), server("files"));
    let mut grants = Grants::default();
    let changes = apply(&mut grants, &to_creator);
    let [GrantChange::Grant(granted)] = &changes[..] else {
        panic!("{changes:?}");
    };
    assert_eq!((granted.id, granted.permission), (id(1), Permission::Allow));
    assert_eq!(granted.resource, GrantResource::Server(at("files")));
    let why = granted.justification.as_deref();
    assert_eq!(why, Some("it registered the server"));
    let deny = Box::new(request(None, Permission::Deny));
    let deny = ChangeRequest::Grant(deny, NodeNames::default());
    let changes = apply(&mut grants, &deny);
    assert_eq!(permission_of(&changes), Some(Permission::Deny));
    assert_eq!(decide(&grants, &operator(), &to_creator), Ok(Vec::new()));
}

/// A request is decided for the principal that makes it, and for no other.
#[test]
fn a_change_is_decided_for_its_principal() {
    let names = NodeNames::default;
    let allow = Box::new(request(None, Permission::Allow));
    for request in [
        ChangeRequest::Grant(allow, names()),
        ChangeRequest::Revoke(revoking(None), names()),
    ] {
        let refused = decide(&Grants::default(), &agent("a"), &request);
        assert!(matches!(
            refused,
            Err(GrantRequestError::NotOperator { .. })
        ));
        assert!(decide(&Grants::default(), &operator(), &request).is_ok());
    }
}

/// A revoke, and the removal of a server, take back what was granted and its permissions.
#[test]
fn what_is_granted_on_a_server_is_revoked_with_it() {
    let set = |verdict| ChangeRequest::SetPermission {
        server: server("files"),
        permission: PermissionType::parse_all("network.outbound").remove(0),
        verdict,
        until_ms: Some(NOW + 1),
    };
    let mut grants = Grants::default();
    assert_eq!(apply(&mut grants, &set(Verdict::Deferred)), []);
    let changes = apply(&mut grants, &set(Verdict::Approved));
    assert_eq!(permission_of(&changes), Some(Permission::Allow));
    let changes = apply(&mut grants, &ChangeRequest::RevokeServer(server("files")));
    let [GrantChange::Revoke(Revoke::Ids(ids))] = &changes[..] else {
        panic!("{changes:?}");
    };
    assert_eq!(ids[..], [id(1)]);
    let other = ChangeRequest::RevokeServer(server("git"));
    assert_eq!(apply(&mut grants, &other), []);
}
