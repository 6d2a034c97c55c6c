mod conflicts;
mod forms;
mod queries;

use mgp_protocol::ids::{AgentId, NodeServer, ServerId};
use proptest::prelude::*;

use super::*;

fn issuer(n: u8) -> NodeId {
    NodeId([n; 32])
}

fn agent(name: &str) -> Subject {
    Subject::Agent(issuer(1).agent(AgentId::new(name)))
}

fn grant(id: u8, permission: Permission, not_after_ms: Option<u64>) -> Grant {
    Grant {
        id: GrantId([id; 16]),
        subject: agent("a"),
        resource: GrantResource::Server(issuer(1).server(ServerId::new("files"))),
        permission,
        not_after_ms,
        told_by: None,
        justification: None,
        replaces: Vec::new(),
        when: None,
    }
}

fn allow(id: u8) -> GrantChange {
    GrantChange::Grant(grant(id, Permission::Allow, None))
}

fn deny(id: u8) -> GrantChange {
    GrantChange::Grant(grant(id, Permission::Deny, None))
}

fn revoke(id: u8) -> GrantChange {
    GrantChange::Revoke(Revoke::Ids(vec![GrantId([id; 16])]))
}

/// A log of these changes, chained.
fn log(by: u8, changes: Vec<GrantChange>) -> Vec<EncodedOperation> {
    log_knowing(by, changes, &[])
}

/// The same, of somebody who knew so much of other logs.
fn log_knowing(by: u8, changes: Vec<GrantChange>, known: &[(u8, u64)]) -> Vec<EncodedOperation> {
    let known = known.iter().map(|(log, next)| (issuer(*log), *next));
    let context = CausalContext {
        logs: known.collect(),
        branches: Vec::new(),
    };
    let mut previous = OperationId::START;
    let mut out = Vec::new();
    for (sequence, change) in (0..).zip(changes) {
        let operation = EncodedOperation::new(Operation {
            cluster: None,
            place: LogPosition {
                issuer: issuer(by),
                sequence,
            },
            previous,
            author: "admin".into(),
            told_at_ms: 1000 + sequence,
            change: LogChange::Grants(change),
            context: context.clone(),
        });
        previous = operation.id();
        out.push(operation);
    }
    out
}

fn everyone() -> Authority {
    (0..8).fold(Authority::without_issuers(issuer(1)), |all, n| {
        all.with_issuer(issuer(n))
    })
}

fn applied<'a>(operations: impl IntoIterator<Item = &'a EncodedOperation>) -> Grants {
    let mut grants = Grants::default();
    for operation in operations {
        grants.apply(operation).unwrap();
    }
    grants
}

/// The ids of what counts.
fn in_force(grants: &Grants, authority: &Authority, now_ms: u64) -> Vec<u8> {
    let counts = |g: &&LoggedGrant| grants.status(g, authority, now_ms) == GrantStatus::InForce;
    let found = grants.for_subject(&agent("a")).filter(counts);
    found.map(|g| g.grant.id.0[0]).collect()
}

/// MGP-082, FED-033: a revoke beats a grant from elsewhere whichever comes first, and a new grant needs a new
/// name.
#[test]
fn a_revoke_wins_in_either_order_and_for_good() {
    let (one, other) = (
        log(1, vec![allow(1), allow(2)]),
        log_knowing(2, vec![revoke(1), allow(1)], &[(1, 2)]),
    );
    for order in [[&one, &other], [&other, &one]] {
        let grants = applied(order.into_iter().flatten());
        assert_eq!(in_force(&grants, &everyone(), 0), [2]);
    }
}

/// MGP-075, MGP-045: from its end on, a grant does not count.
#[test]
fn a_grant_ends_at_its_end() {
    let grants = applied(&log(
        1,
        vec![GrantChange::Grant(grant(1, Permission::Allow, Some(5000)))],
    ));
    assert_eq!(in_force(&grants, &everyone(), 4999), [1]);
    assert!(in_force(&grants, &everyone(), 5000).is_empty());
    let expired = grants.iter().next().unwrap();
    assert_eq!(
        grants.status(expired, &everyone(), 6000),
        GrantStatus::Expired(5000)
    );
}

/// FED-035: who may not issue neither gives nor takes, and authority that ended covers what was before.
#[test]
fn only_what_an_authorised_issuer_wrote_counts() {
    let one = log(1, vec![allow(1), allow(2)]);
    let other = log_knowing(2, vec![revoke(1)], &[(1, 2)]);
    let grants = applied(one.iter().chain(&other));
    assert!(in_force(&grants, &Authority::without_issuers(issuer(1)), 0).is_empty());
    let first = Authority::without_issuers(issuer(1)).with_issuer(issuer(1));
    assert_eq!(in_force(&grants, &first, 0), [1, 2]);
    let until = Authority::without_issuers(issuer(1)).with_issuer_until(issuer(1), 1);
    assert_eq!(in_force(&grants, &until, 0), [1]);
    assert_eq!(in_force(&grants, &everyone(), 0), [2]);
}

/// FED-034.
#[test]
fn a_revoke_up_to_a_place_spares_what_came_after() {
    let until = BTreeMap::from([(issuer(1), 1)]);
    let subject = agent("a");
    let sweep = GrantChange::Revoke(Revoke::UpTo { subject, until });
    let one = log(1, vec![allow(1), allow(2), allow(3)]);
    let two = log_knowing(2, vec![sweep, allow(4)], &[(1, 3)]);
    let grants = applied(two.iter().chain(&one));
    assert_eq!(in_force(&grants, &everyone(), 0), [3, 4]);
}

#[test]
fn a_grant_takes_the_place_of_others_in_one_step() {
    let mut new = grant(2, Permission::Deny, None);
    new.replaces = vec![GrantId([1; 16])];
    let grants = applied(&log(1, vec![allow(1), GrantChange::Grant(new)]));
    assert_eq!(in_force(&grants, &everyone(), 0), [2]);
    let server = GrantResource::Server(issuer(1).server(ServerId::new("files")));
    let standing = grants.unrevoked(&agent("a"), &server, &everyone());
    assert_eq!(standing.len(), 1);
}

/// What takes away counts at once, what allows waits for the operations before it.
#[test]
fn an_operation_ahead_of_a_gap_can_only_take_away() {
    let all = log(1, vec![allow(1), allow(2), deny(3), revoke(1)]);
    let mut grants = Grants::default();
    assert_eq!(grants.apply(&all[1]), Ok(ApplyOutcome::Buffered));
    assert_eq!(grants.apply(&all[2]), Ok(ApplyOutcome::Buffered));
    assert_eq!(grants.apply(&all[3]), Ok(ApplyOutcome::Buffered));
    assert_eq!(in_force(&grants, &everyone(), 0), [3]);
    assert_eq!(grants.apply(&all[0]), Ok(ApplyOutcome::Appended));
    assert_eq!(in_force(&grants, &everyone(), 0), [2, 3]);
    assert_eq!(grants.next_position(issuer(1)), (4, all[3].id()));
}

/// FED-040: a fork takes all that its issuer allowed, and spares what it took away, in any order.
#[test]
fn a_fork_leaves_only_what_takes_away() {
    let one = log(1, vec![allow(1), allow(2), deny(3)]);
    let known = [(2, 2)];
    let other = log_knowing(1, vec![allow(1), deny(4), revoke(9)], &known);
    let friend = log(2, vec![allow(8), allow(9)]);
    let there: Vec<_> = friend.iter().chain(&one).chain(&other).collect();
    let back: Vec<_> = other
        .iter()
        .rev()
        .chain(one.iter().rev())
        .chain(&friend)
        .collect();
    let (there, back) = (applied(there), applied(back));
    assert_eq!(in_force(&there, &everyone(), 0), [3, 4, 8]);
    assert_eq!(there, back);
    assert_eq!(there.forked_issuers().collect::<Vec<_>>(), [issuer(1)]);
}

/// An operation that names another one before it is a branch, whether it came in order or waited.
#[test]
fn a_broken_chain_is_a_fork() {
    let one = log(1, vec![allow(1), allow(2)]);
    let other = log(1, vec![allow(3), allow(4)]);
    for order in [[&one[0], &other[1]], [&other[1], &one[0]]] {
        let grants = applied(order);
        assert_eq!(grants.forked_issuers().collect::<Vec<_>>(), [issuer(1)]);
        assert!(in_force(&grants, &everyone(), 0).is_empty());
    }
}

/// The name of the last operation is not enough to follow it.
#[test]
fn an_operation_at_another_position_does_not_follow_the_last_one() {
    let two = log(1, vec![allow(1), allow(2)]);
    let mut ahead = two[1].operation().clone();
    ahead.place.sequence = 5;
    let mut grants = applied(&two[..1]);
    let ahead = EncodedOperation::new(ahead);
    assert_eq!(grants.apply(&ahead), Ok(ApplyOutcome::Buffered));
    assert_eq!(grants.next_position(issuer(1)), (1, two[0].id()));
    assert_eq!(in_force(&grants, &everyone(), 0), [1]);
}

#[test]
fn a_refused_operation_leaves_no_trace() {
    let mut full = log(1, vec![allow(1)]).remove(0).into_operation();
    full.place.sequence = GRANTS_END;
    let mut grants = Grants::default();
    assert_eq!(
        grants.apply(&EncodedOperation::new(full.clone())),
        Err(ApplyError::Invalid(BadOperation::Full))
    );
    assert_eq!(grants, Grants::default());
    assert_eq!(grants.issuers().count(), 0);
    for bad in [
        GrantChange::Revoke(Revoke::Ids(Vec::new())),
        GrantChange::Grant(Grant {
            replaces: vec![GrantId([1; 16])],
            ..grant(1, Permission::Allow, None)
        }),
        GrantChange::Grant(Grant {
            resource: GrantResource::Permission("camera".into()),
            ..grant(1, Permission::Allow, None)
        }),
        GrantChange::Grant(Grant {
            subject: agent(""),
            ..grant(1, Permission::Allow, None)
        }),
    ] {
        let operation = log(1, vec![bad]).remove(0);
        assert!(
            matches!(grants.apply(&operation), Err(ApplyError::Invalid(_))),
            "{operation:?}"
        );
    }
    full.change = LogChange::Grants(revoke(1));
    let last = grants.apply(&EncodedOperation::new(full));
    assert_eq!(
        last,
        Ok(ApplyOutcome::Buffered),
        "a full log still takes away"
    );
}

/// The bytes are an interface: signatures of stored logs depend on them.
#[test]
fn the_signed_bytes_stay_as_they_are() {
    let written = log(1, vec![allow(1)]).remove(0);
    assert_eq!(
        written.id().to_string(),
        "a11b59a604149fb6bf8dfb8cef972277cdbb74a4cde7a4a35aea4a91d219bfb9"
    );
    assert_eq!(GrantId::parse(&"0f".repeat(16)), Some(GrantId([15; 16])));
    assert_eq!(GrantId::parse(&"+f".repeat(16)), None);
}

fn change() -> impl Strategy<Value = GrantChange> {
    let end = proptest::option::of(0_u64..20);
    let given = (
        0_u8..12,
        any::<bool>(),
        end,
        proptest::collection::vec(0_u8..12, 0..3),
    );
    let given = given.prop_map(|(id, allows, end, replaces)| {
        let permission = if allows {
            Permission::Allow
        } else {
            Permission::Deny
        };
        let others = replaces.into_iter().filter(|other| *other != id);
        GrantChange::Grant(Grant {
            replaces: others.map(|id| GrantId([id; 16])).collect(),
            ..grant(id, permission, end)
        })
    });
    let sweep = (0_u8..4, 0_u64..6).prop_map(|(by, until)| {
        let subject = agent("a");
        GrantChange::Revoke(Revoke::UpTo {
            subject,
            until: BTreeMap::from([(issuer(by), until)]),
        })
    });
    prop_oneof![4 => given, 2 => (0_u8..12).prop_map(revoke), 1 => sweep]
}

fn logs() -> impl Strategy<Value = Vec<EncodedOperation>> {
    let changes = proptest::collection::vec(change(), 0..8);
    proptest::collection::vec(changes, 1..4).prop_map(|logs| {
        let logs = (0_u8..).zip(logs).map(|(by, changes)| log(by, changes));
        logs.flatten().collect()
    })
}

proptest! {
    /// FED-032: any order, any operation twice, the same state.
    #[test]
    fn any_order_and_any_repetition_give_the_same_state(
        (all, order) in logs().prop_flat_map(|all| {
            let twice: Vec<_> = all.iter().chain(&all).cloned().collect();
            (Just(all), Just(twice).prop_shuffle())
        }),
    ) {
        prop_assert_eq!(applied(&all), applied(&order));
    }

    /// FED-040: the same with a forked issuer: two logs of one key.
    #[test]
    fn a_fork_is_the_same_in_any_order(
        (all, order) in (logs(), proptest::collection::vec(change(), 1..6)).prop_flat_map(|(mut all, branch)| {
            all.extend(log(0, branch));
            (Just(all.clone()), Just(all).prop_shuffle())
        }),
        now in 0_u64..25,
    ) {
        let (one, other) = (applied(&all), applied(&order));
        prop_assert_eq!(in_force(&one, &everyone(), now), in_force(&other, &everyone(), now));
        prop_assert_eq!(one, other);
    }

    /// FED-035: an expired or revoked grant never counts, whatever else the logs say.
    #[test]
    fn what_is_expired_or_revoked_never_counts(all in logs(), now in 0_u64..25) {
        let grants = applied(&all);
        let taken: Vec<GrantId> = all.iter().filter_map(|o| o.operation().change.grants()).flat_map(|c| c.revoked_ids().to_vec()).collect();
        for granted in grants.iter() {
            if grants.status(granted, &everyone(), now) == GrantStatus::InForce {
                prop_assert!(!taken.contains(&granted.grant.id));
                prop_assert!(granted.grant.not_after_ms.is_none_or(|end| now < end));
            }
        }
    }

    /// Two operations that differ are signed differently.
    #[test]
    fn different_operations_have_different_bytes(one in change(), other in change()) {
        let (one, other) = (log(1, vec![one]).remove(0), log(1, vec![other]).remove(0));
        prop_assert_eq!(one.signed_bytes() == other.signed_bytes(), one.operation() == other.operation());
    }
}
