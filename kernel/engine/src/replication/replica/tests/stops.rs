//! Admins that shut down gracefully and start again, and what the answer to a revocation promises.

use super::*;
use crate::policy::grants::{LogPosition, OperationId, Revoke};

/// What the answer of a revocation by this admin says of the owner, when it is acknowledged.
fn revoke_at(scene: &mut Scene, admin: u8) -> Vec<(NodeId, AllowEnd)> {
    let Ok(ProposalOutcome::Signed(place)) = scene.propose(admin, revoke_change(1)) else {
        panic!("{admin} is an admin, and its log is confirmed");
    };
    scene.nodes[&admin].confirmation(place.sequence).missing
}

/// Node 1 stops gracefully and is back, and all others have heard that.
fn restarted() -> Scene {
    let mut scene = Scene::new(3);
    scene.propose(0, allow(1)).unwrap();
    scene.propose(1, Replica::shutdown_change()).unwrap();
    scene.start(1);
    scene.pass(15);
    assert!(scene.may().is_ok());
    scene
}

/// FED-047: that an admin is at work again stands in its log, not in the memory of the owner.
#[test]
fn an_admin_that_is_back_is_waited_for_over_a_restart_of_the_owner() {
    let mut scene = restarted();
    scene.apart.insert(1);
    scene.start(2);
    scene.pass(15);
    assert_eq!(scene.may(), Err(RemoteDenial::LeaseExpired(node(1))));
    scene.apart.clear();
    scene.pass(15);
    assert!(scene.may().is_ok());
}

/// FED-038: the bound holds, though the owner was restarted within it.
#[test]
fn a_revoke_of_an_admin_that_was_shut_down_once_ends_at_a_cut_off_owner() {
    for restarts in [false, true] {
        let mut scene = restarted();
        scene.apart.insert(1);
        if restarts {
            scene.start(2);
            scene.tick();
        }
        let missing = revoke_at(&mut scene, 1);
        let ends = |wanted: u8| {
            let found = missing.iter().find(|(of, _)| *of == node(wanted));
            found.map(|(_, end)| *end)
        };
        let Some(AllowEnd::NoLaterThan(end)) = ends(2) else {
            panic!("{missing:?}");
        };
        assert!(end <= scene.now() + DEFAULT_LEASE);
        scene.pass(end.duration_since(scene.now()).as_secs());
        assert!(matches!(scene.may(), Err(RemoteDenial::LeaseExpired(_))));
    }
}

/// FED-038: an owner that knows only that the admin was shut down goes on, and the answer says so.
#[test]
fn no_bound_is_promised_for_an_owner_that_has_not_confirmed_the_start() {
    let mut scene = Scene::new(3);
    scene.propose(0, allow(1)).unwrap();
    scene.propose(1, Replica::shutdown_change()).unwrap();
    scene.nodes.remove(&1);
    scene.pass(1);
    // On one side the admin and its witness, on the other one the owner.
    let owner = scene.nodes.remove(&2).unwrap();
    scene.start(1);
    scene.pass(15);
    let missing = revoke_at(&mut scene, 1);
    assert_eq!(missing, [(node(2), AllowEnd::Unbounded)]);
    scene.nodes.insert(2, owner);
    scene.pass(15);
    assert_eq!(scene.may(), Err(RemoteDenial::NotGranted));
}

/// The same where the owner has asked the admin since its start, and was answered before the admin could write.
#[test]
fn no_bound_is_promised_for_an_owner_that_asked_and_has_not_confirmed_the_start() {
    let mut scene = Scene::new(4);
    scene.propose(0, allow(1)).unwrap();
    scene.propose(1, Replica::shutdown_change()).unwrap();
    // One of three others does not confirm its log.
    scene.apart.extend([0, 3]);
    scene.start(1);
    scene.pass(15);
    assert!(!scene.nodes[&1].is_confirmed());
    scene.apart = BTreeSet::from([2]);
    scene.pass(15);
    let missing = revoke_at(&mut scene, 1);
    assert_eq!(missing, [(node(2), AllowEnd::Unbounded)]);
}

/// An admin that crashed cannot know what an owner confirmed before, until it is heard again.
#[test]
fn an_admin_that_crashed_promises_nothing_of_who_was_not_heard_since() {
    let mut scene = restarted();
    scene.nodes.remove(&2);
    scene.start(1);
    scene.pass(15);
    let missing = revoke_at(&mut scene, 1);
    assert_eq!(missing, [(node(2), AllowEnd::Unbounded)]);
}

/// An owner that has not heard of an admin does not wait for its word.
#[test]
fn an_admin_that_the_owner_does_not_know_promises_nothing_there() {
    let mut scene = Scene::new(3);
    scene.propose(0, allow(1)).unwrap();
    scene.apart.insert(2);
    scene
        .propose(0, admit_change(3, MemberRole::Admin))
        .unwrap();
    scene.start(3);
    scene.pass(15);
    let missing = revoke_at(&mut scene, 3);
    assert_eq!(missing, [(node(2), AllowEnd::Unbounded)]);
}

/// An admin that never wrote anything is waited for by who knows that it is one.
#[test]
fn an_admin_that_never_wrote_is_waited_for_by_who_knows_its_admission() {
    let mut scene = Scene::new(3);
    scene.propose(0, allow(1)).unwrap();
    assert_eq!(scene.nodes[&1].logs().grants().tip(node(1)), LogTip::EMPTY);
    scene.apart.insert(2);
    let missing = revoke_at(&mut scene, 1);
    assert!(matches!(missing[..], [(_, AllowEnd::NoLaterThan(_))]));
}

/// FED-038: the lease that counts is that of the owner.
#[test]
fn the_bound_is_the_lease_of_the_owner() {
    for secs in [15, 90] {
        let mut scene = Scene::new(3);
        let lease = Duration::from_secs(secs);
        scene.leases.insert(2, lease);
        scene.start(2);
        scene.pass(31);
        scene.propose(0, allow(1)).unwrap();
        scene.apart.insert(2);
        let missing = revoke_at(&mut scene, 1);
        let [(_, AllowEnd::NoLaterThan(end))] = missing[..] else {
            panic!("{missing:?}");
        };
        assert!(end <= scene.now() + lease);
        scene.pass(end.duration_since(scene.now()).as_secs() - 1);
        assert!(scene.may().is_ok(), "{secs} s: the bound is not too long");
        scene.pass(1);
        assert!(matches!(scene.may(), Err(RemoteDenial::LeaseExpired(_))));
    }
}

/// An older version does not say how long its lease is: this node's own is not promised in its place.
#[test]
fn a_lease_that_was_not_said_is_not_promised() {
    let mut scene = Scene::new(3);
    scene.propose(0, allow(1)).unwrap();
    let (life, heads) = (scene.nodes[&2].instance, scene.nodes[&2].heads());
    let mut ask = |lease| {
        let ask = LogMessage::Request {
            instance: life,
            nonce: Nonce([1; 16]),
            heads: heads.clone(),
            lease,
        };
        scene.act(1, |replica, means| {
            replica.handle_message(node(2), ask, means)
        });
        scene.nodes[&1].allow_end_at(node(2))
    };
    assert_eq!(ask(None), AllowEnd::UnknownLease);
    let known = ask(Some(DEFAULT_LEASE));
    let AllowEnd::NoLaterThan(end) = known else {
        panic!("{known:?}");
    };
    // A shorter one of the same node does not take back what it was answered before.
    assert_eq!(
        ask(Some(Duration::from_secs(1))),
        AllowEnd::NoLaterThan(end)
    );
}

/// What is late of an earlier start of the owner says nothing of the lease it has now.
#[test]
fn a_question_of_an_earlier_life_is_not_the_lease_of_this_one() {
    let mut scene = Scene::new(3);
    scene.propose(1, revoke_change(9)).unwrap();
    let (life, heads) = (scene.nodes[&2].instance, scene.nodes[&2].heads());
    scene.start(1);
    scene.apart.extend([0, 2]);
    let ask = |life, secs| LogMessage::Request {
        instance: life,
        nonce: Nonce([1; 16]),
        heads: heads.clone(),
        lease: Some(Duration::from_secs(secs)),
    };
    let late = ask(LifeId([9; 16]), 15);
    scene.act(1, |replica, means| {
        replica.handle_message(node(2), late, means)
    });
    // It is asked who lives.
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&scene.count.to_le_bytes());
    let answer = LogMessage::Response {
        instance: life,
        nonce: Nonce(nonce),
        heads: heads.clone(),
    };
    scene.act(1, |replica, means| {
        replica.handle_message(node(2), answer, means)
    });
    assert_eq!(scene.nodes[&1].allow_end_at(node(2)), AllowEnd::Unbounded);
    let end = scene.now() + Duration::from_secs(90);
    let now = ask(life, 90);
    scene.act(1, |replica, means| {
        replica.handle_message(node(2), now, means)
    });
    assert_eq!(
        scene.nodes[&1].allow_end_at(node(2)),
        AllowEnd::NoLaterThan(end)
    );
}

/// FED-047: what is written at a start takes nothing away, is written once, and not by a node that stops.
#[test]
fn a_node_writes_once_that_it_is_back() {
    let mut scene = Scene::new(3);
    scene.propose(1, Replica::shutdown_change()).unwrap();
    scene.pass(15);
    let rests = |scene: &Scene, at: u8| scene.nodes[&at].logs().grants().is_resting(node(1));
    assert!(rests(&scene, 1) && rests(&scene, 2), "it is stopping");
    scene.start(1);
    scene.pass(60);
    assert!(!rests(&scene, 1) && !rests(&scene, 2));
    let logs = scene.nodes[&2].logs();
    assert_eq!(logs.grants().tip(node(1)).next, 2);
    let (_, entry) = logs.entries_from(node(1), 1).next().unwrap();
    let resume = SignedOperation::from_bytes(&entry).unwrap();
    let change = &resume.encoded().operation().change;
    assert!(change.is_rest_or_resume() && !change.is_granting());
    let LogChange::Grants(GrantChange::Revoke(Revoke::Ids(ids))) = change else {
        panic!("{change:?} closes what its issuer allows at older versions");
    };
    assert_eq!(ids.len(), 1, "older versions refuse a revocation of none");
    scene.start(1);
    scene.pass(60);
    assert_eq!(scene.nodes[&2].logs().grants().tip(node(1)).next, 2);
}

/// A revocation that was owed ends the rest as well.
#[test]
fn what_was_owed_at_a_stop_is_enough_to_be_back() {
    let mut scene = Scene::new(3);
    scene.propose(0, allow(1)).unwrap();
    scene.propose(1, Replica::shutdown_change()).unwrap();
    scene.apart.insert(1);
    scene.start(1);
    scene.tick();
    assert_eq!(
        scene.propose(1, revoke_change(1)),
        Ok(ProposalOutcome::Deferred)
    );
    scene.apart.clear();
    scene.pass(15);
    let grants = scene.nodes[&2].logs().grants();
    assert_eq!(
        (grants.is_resting(node(1)), grants.tip(node(1)).next),
        (false, 2)
    );
    assert_eq!(scene.may(), Err(RemoteDenial::NotGranted));
}

/// What lies behind a gap says as well that its issuer is at work.
#[test]
fn an_admin_of_which_something_later_is_known_does_not_rest() {
    let mut scene = Scene::new(3);
    scene.propose(1, Replica::shutdown_change()).unwrap();
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
    assert!(scene.nodes[&2].logs().grants().is_resting(node(1)));
    scene.apart.extend([0, 1]);
    scene.act(2, |replica, means| replica.handle_entries(&[later], means));
    assert!(!scene.nodes[&2].logs().grants().is_resting(node(1)));
}
