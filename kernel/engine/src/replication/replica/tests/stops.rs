//! Admins that shut down gracefully and resume, and the bounds in the response to a revoke.

use super::*;
use crate::policy::grants::{LogPosition, OperationId, Revoke};

/// Revokes at this admin, and returns the nodes that have not confirmed.
fn revoke_at(cluster: &mut Cluster, admin: u8) -> Vec<(NodeId, AllowEnd)> {
    let Ok(ProposalOutcome::Signed(place)) = cluster.propose(admin, revoke_change(1)) else {
        panic!("{admin} is an admin, and its log is confirmed");
    };
    cluster.nodes[&admin].confirmation(place.sequence).missing
}

/// Node 1 has shut down gracefully and resumed, and all others know it.
fn restarted() -> Cluster {
    let mut cluster = Cluster::new(3);
    cluster.propose(0, allow(1)).unwrap();
    cluster.propose(1, Replica::shutdown_change()).unwrap();
    cluster.start(1);
    cluster.advance(15);
    assert!(cluster.authorize().is_ok());
    cluster
}

/// FED-047: the log records that an admin resumed, so that the owner's restart does not matter.
#[test]
fn leases_depend_on_a_resumed_admin_after_a_restart_of_the_owner() {
    let mut cluster = restarted();
    cluster.isolated.insert(1);
    cluster.start(2);
    cluster.advance(15);
    assert_eq!(
        cluster.authorize(),
        Err(RemoteDenial::LeaseExpired(node(1)))
    );
    cluster.isolated.clear();
    cluster.advance(15);
    assert!(cluster.authorize().is_ok());
}

/// FED-038: also if the owner restarts before the bound.
#[test]
fn an_isolated_owner_stops_allowing_within_the_bound_of_a_resumed_admin() {
    for restarts in [false, true] {
        let mut cluster = restarted();
        cluster.isolated.insert(1);
        if restarts {
            cluster.start(2);
            cluster.tick();
        }
        let missing = revoke_at(&mut cluster, 1);
        let ends = |wanted: u8| {
            let found = missing.iter().find(|(of, _)| *of == node(wanted));
            found.map(|(_, end)| *end)
        };
        let Some(AllowEnd::NoLaterThan(end)) = ends(2) else {
            panic!("{missing:?}");
        };
        assert!(end <= cluster.now() + DEFAULT_LEASE);
        cluster.advance(end.duration_since(cluster.now()).as_secs());
        assert!(matches!(
            cluster.authorize(),
            Err(RemoteDenial::LeaseExpired(_))
        ));
    }
}

/// FED-038: such an owner still considers the admin shut down.
#[test]
fn no_bound_is_given_for_an_owner_that_has_not_confirmed_the_resume() {
    let mut cluster = Cluster::new(3);
    cluster.propose(0, allow(1)).unwrap();
    cluster.propose(1, Replica::shutdown_change()).unwrap();
    cluster.nodes.remove(&1);
    cluster.advance(1);
    // On one side the admin and its witness, on the other one the owner.
    let owner = cluster.nodes.remove(&2).unwrap();
    cluster.start(1);
    cluster.advance(15);
    let missing = revoke_at(&mut cluster, 1);
    assert_eq!(missing, [(node(2), AllowEnd::Unbounded)]);
    cluster.nodes.insert(2, owner);
    cluster.advance(15);
    assert_eq!(cluster.authorize(), Err(RemoteDenial::NotGranted));
}

/// The admin answered its request before it could sign that it resumed.
#[test]
fn no_bound_is_given_for_an_owner_that_sent_a_request_and_has_not_confirmed_the_resume() {
    let mut cluster = Cluster::new(4);
    cluster.propose(0, allow(1)).unwrap();
    cluster.propose(1, Replica::shutdown_change()).unwrap();
    // One of three others does not confirm its log.
    cluster.isolated.extend([0, 3]);
    cluster.start(1);
    cluster.advance(15);
    assert!(!cluster.nodes[&1].is_confirmed());
    cluster.isolated = BTreeSet::from([2]);
    cluster.advance(15);
    let missing = revoke_at(&mut cluster, 1);
    assert_eq!(missing, [(node(2), AllowEnd::Unbounded)]);
}

/// A restarted admin does not know what the owner confirmed before.
#[test]
fn no_bound_is_given_after_a_crash_for_an_owner_that_has_not_answered() {
    let mut cluster = restarted();
    cluster.nodes.remove(&2);
    cluster.start(1);
    cluster.advance(15);
    let missing = revoke_at(&mut cluster, 1);
    assert_eq!(missing, [(node(2), AllowEnd::Unbounded)]);
}

#[test]
fn no_bound_is_given_for_an_owner_that_does_not_know_the_admin() {
    let mut cluster = Cluster::new(3);
    cluster.propose(0, allow(1)).unwrap();
    cluster.isolated.insert(2);
    cluster
        .propose(0, admit_change(3, MemberRole::Admin))
        .unwrap();
    cluster.start(3);
    cluster.advance(15);
    let missing = revoke_at(&mut cluster, 3);
    assert_eq!(missing, [(node(2), AllowEnd::Unbounded)]);
}

#[test]
fn an_admin_with_an_empty_log_has_a_bound_where_its_admission_is_known() {
    let mut cluster = Cluster::new(3);
    cluster.propose(0, allow(1)).unwrap();
    assert_eq!(
        cluster.nodes[&1].logs().grants().tip(node(1)),
        LogTip::EMPTY
    );
    cluster.isolated.insert(2);
    let missing = revoke_at(&mut cluster, 1);
    assert!(matches!(missing[..], [(_, AllowEnd::NoLaterThan(_))]));
}

/// FED-038.
#[test]
fn the_bound_is_the_lease_of_the_owner() {
    for secs in [15, 90] {
        let mut cluster = Cluster::new(3);
        let lease = Duration::from_secs(secs);
        cluster.leases.insert(2, lease);
        cluster.start(2);
        cluster.advance(31);
        cluster.propose(0, allow(1)).unwrap();
        cluster.isolated.insert(2);
        let missing = revoke_at(&mut cluster, 1);
        let [(_, AllowEnd::NoLaterThan(end))] = missing[..] else {
            panic!("{missing:?}");
        };
        assert!(end <= cluster.now() + lease);
        cluster.advance(end.duration_since(cluster.now()).as_secs() - 1);
        assert!(
            cluster.authorize().is_ok(),
            "{secs} s: the bound is not too long"
        );
        cluster.advance(1);
        assert!(matches!(
            cluster.authorize(),
            Err(RemoteDenial::LeaseExpired(_))
        ));
    }
}

/// Older versions do not send their lease, and the local one does not replace it.
#[test]
fn an_unknown_lease_gives_no_bound() {
    let mut cluster = Cluster::new(3);
    cluster.propose(0, allow(1)).unwrap();
    let (instance, heads) = (cluster.nodes[&2].instance, cluster.nodes[&2].heads());
    let mut request = |lease| {
        let request = LogMessage::Request {
            instance,
            nonce: Nonce([1; 16]),
            heads: heads.clone(),
            lease,
        };
        cluster.act(1, |replica, cx| {
            replica.handle_message(node(2), request, cx)
        });
        cluster.nodes[&1].allow_end_at(node(2))
    };
    assert_eq!(request(None), AllowEnd::UnknownLease);
    let known = request(Some(DEFAULT_LEASE));
    let AllowEnd::NoLaterThan(end) = known else {
        panic!("{known:?}");
    };
    // A shorter lease of the same node does not shorten an earlier one.
    assert_eq!(
        request(Some(Duration::from_secs(1))),
        AllowEnd::NoLaterThan(end)
    );
}

#[test]
fn a_late_request_of_an_earlier_instance_gives_no_bound() {
    let mut cluster = Cluster::new(3);
    cluster.propose(1, revoke_change(9)).unwrap();
    let (instance, heads) = (cluster.nodes[&2].instance, cluster.nodes[&2].heads());
    cluster.start(1);
    cluster.isolated.extend([0, 2]);
    let request = |instance, secs| LogMessage::Request {
        instance,
        nonce: Nonce([1; 16]),
        heads: heads.clone(),
        lease: Some(Duration::from_secs(secs)),
    };
    let late = request(LifeId([9; 16]), 15);
    cluster.act(1, |replica, cx| replica.handle_message(node(2), late, cx));
    // The node requests proof of the running instance.
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&cluster.count.to_le_bytes());
    let answer = LogMessage::Response {
        instance,
        nonce: Nonce(nonce),
        heads: heads.clone(),
    };
    cluster.act(1, |replica, cx| replica.handle_message(node(2), answer, cx));
    assert_eq!(cluster.nodes[&1].allow_end_at(node(2)), AllowEnd::Unbounded);
    let end = cluster.now() + Duration::from_secs(90);
    let now = request(instance, 90);
    cluster.act(1, |replica, cx| replica.handle_message(node(2), now, cx));
    assert_eq!(
        cluster.nodes[&1].allow_end_at(node(2)),
        AllowEnd::NoLaterThan(end)
    );
}

/// FED-047: the resume revokes nothing, and is not signed by a node that is shutting down.
#[test]
fn a_node_signs_its_resume_once() {
    let mut cluster = Cluster::new(3);
    cluster.propose(1, Replica::shutdown_change()).unwrap();
    cluster.advance(15);
    let is_resting =
        |cluster: &Cluster, at: u8| cluster.nodes[&at].logs().grants().is_resting(node(1));
    assert!(
        is_resting(&cluster, 1) && is_resting(&cluster, 2),
        "it is stopping"
    );
    cluster.start(1);
    cluster.advance(60);
    assert!(!is_resting(&cluster, 1) && !is_resting(&cluster, 2));
    let logs = cluster.nodes[&2].logs();
    assert_eq!(logs.grants().tip(node(1)).next, 2);
    let (_, entry) = logs.entries_from(node(1), 1).next().unwrap();
    let resume = SignedOperation::from_bytes(&entry).unwrap();
    let change = &resume.encoded().operation().change;
    assert!(change.is_rest_or_resume() && !change.is_granting());
    let LogChange::Grants(GrantChange::Revoke(Revoke::Ids(ids))) = change else {
        panic!("{change:?} closes what its issuer allows at older versions");
    };
    assert_eq!(ids.len(), 1, "older versions refuse a revocation of none");
    cluster.start(1);
    cluster.advance(60);
    assert_eq!(cluster.nodes[&2].logs().grants().tip(node(1)).next, 2);
}

#[test]
fn a_pending_revoke_is_enough_to_resume() {
    let mut cluster = Cluster::new(3);
    cluster.propose(0, allow(1)).unwrap();
    cluster.propose(1, Replica::shutdown_change()).unwrap();
    cluster.isolated.insert(1);
    cluster.start(1);
    cluster.tick();
    assert_eq!(
        cluster.propose(1, revoke_change(1)),
        Ok(ProposalOutcome::Deferred)
    );
    cluster.isolated.clear();
    cluster.advance(15);
    let grants = cluster.nodes[&2].logs().grants();
    assert_eq!(
        (grants.is_resting(node(1)), grants.tip(node(1)).next),
        (false, 2)
    );
    assert_eq!(cluster.authorize(), Err(RemoteDenial::NotGranted));
}

/// Also after a gap.
#[test]
fn an_admin_with_a_later_operation_is_not_shut_down() {
    let mut cluster = Cluster::new(3);
    cluster.propose(1, Replica::shutdown_change()).unwrap();
    let later = sign(
        1,
        Operation {
            cluster: Some(cluster_id()),
            place: LogPosition {
                issuer: node(1),
                sequence: 2,
            },
            previous: OperationId([9; 32]),
            author: "operator".into(),
            told_at_ms: 0,
            change: revoke_change(9),
            context: CausalContext::default(),
        },
    );
    assert!(cluster.nodes[&2].logs().grants().is_resting(node(1)));
    cluster.isolated.extend([0, 1]);
    cluster.act(2, |replica, cx| replica.handle_entries(&[later], cx));
    assert!(!cluster.nodes[&2].logs().grants().is_resting(node(1)));
}
