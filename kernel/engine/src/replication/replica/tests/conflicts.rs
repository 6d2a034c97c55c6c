//! Grants and revokes of nodes that do not hear of each other.

use super::*;

/// Whether every node has this grant in conflict with a revoke of node 1.
fn is_in_conflict_everywhere(scene: &Scene, id: u8) -> bool {
    scene.nodes.values().all(|replica| {
        let granted = replica.logs().find_grant(GrantId([id; 16])).unwrap();
        let force = replica.grant_status(&granted, 0);
        matches!(force, GrantStatus::InConflict { revoke, .. } if revoke.issuer == node(1))
    })
}

/// PRJ-006: node 1 revokes while node 0 grants again, neither hearing of the other: in each order, and whoever of
/// them is cut off from the owner, the revoke wins everywhere, and a grant that knows of it opens again.
#[test]
fn a_grant_that_has_not_seen_the_revoke_is_closed_on_all_nodes_alike() {
    for apart in [vec![0], vec![1], vec![0, 1]] {
        for revokes_first in [true, false] {
            let mut scene = Scene::new(3);
            scene.propose(0, allow(1)).unwrap();
            scene.apart.extend(&apart);
            let mut changes = [(0, allow(2)), (1, revoke_change(1))];
            if revokes_first {
                changes.reverse();
            }
            for (n, change) in changes {
                scene.propose(n, change).unwrap();
            }
            scene.apart.clear();
            scene.pass(11);
            assert!(is_in_conflict_everywhere(&scene, 2), "{apart:?}");
            assert_eq!(scene.may(), Err(RemoteDenial::NotGranted));
            scene.propose(0, allow(3)).unwrap();
            assert_eq!(scene.may(), Ok(GrantId([3; 16])), "{apart:?}");
        }
    }
}

/// What a node revoked before it could sign beats a grant of which it hears before it signs, there and elsewhere.
#[test]
fn a_revoke_that_is_not_signed_yet_beats_what_its_author_did_not_know() {
    let mut scene = Scene::new(3);
    scene.propose(0, allow(1)).unwrap();
    scene.apart.insert(1);
    scene.start(1);
    scene.tick();
    assert_eq!(
        scene.propose(1, revoke_change(1)),
        Ok(ProposalOutcome::Deferred)
    );
    scene.propose(0, allow(2)).unwrap();
    let unseen = scene.disks[&0].0.last().cloned().unwrap();
    scene.act(1, |replica, means| replica.handle_entries(&[unseen], means));
    assert_eq!(scene.nodes[&1].pending_revokes(), 1);
    let own = &scene.nodes[&1];
    let granted = own.logs().find_grant(GrantId([2; 16])).unwrap();
    assert!(matches!(
        own.grant_status(&granted, 0),
        GrantStatus::InConflict { .. }
    ));
    scene.start(1);
    scene.apart.clear();
    scene.pass(11);
    assert_eq!(scene.nodes[&1].pending_revokes(), 0);
    assert!(is_in_conflict_everywhere(&scene, 2));
    assert_eq!(scene.may(), Err(RemoteDenial::NotGranted));
}

/// What everybody knows is left out: most entries are as long as before.
#[test]
fn an_operation_names_other_logs_only_where_it_depends_on_them() {
    let mut scene = Scene::new(3);
    scene.propose(0, allow(1)).unwrap();
    scene.propose(0, allow(2)).unwrap();
    scene.propose(1, revoke_change(1)).unwrap();
    scene.propose(1, allow(3)).unwrap();
    scene.propose(2, allow(4)).unwrap();
    let named: Vec<usize> = scene.disks[&2]
        .0
        .iter()
        .map(|signed| signed.encoded().operation())
        .filter(|operation| operation.change.grants().is_some())
        .map(|operation| operation.context.logs.len())
        .collect();
    // The revoke leaves the second grant, the last grant knows of the revoke.
    assert_eq!(named, [0, 0, 1, 0, 1]);
    assert!(scene.may().is_ok());
}
