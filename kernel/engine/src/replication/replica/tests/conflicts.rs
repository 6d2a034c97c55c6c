//! Concurrent grants and revokes.

use super::*;

/// Whether the grant is in conflict with a revoke of node 1 at every node.
fn is_in_conflict_everywhere(cluster: &Cluster, id: u8) -> bool {
    cluster.nodes.values().all(|replica| {
        let granted = replica.logs().find_grant(GrantId([id; 16])).unwrap();
        let force = replica.grant_status(&granted, 0);
        matches!(force, GrantStatus::InConflict { revoke, .. } if revoke.issuer == node(1))
    })
}

/// PRJ-006: in each order, and whichever of them is isolated, the revoke wins at all nodes; a later grant that has seen
/// it allows again.
#[test]
fn revoke_wins_over_concurrent_grant_at_all_nodes() {
    for apart in [vec![0], vec![1], vec![0, 1]] {
        for revokes_first in [true, false] {
            let mut cluster = Cluster::new(3);
            cluster.propose(0, allow(1)).unwrap();
            cluster.isolated.extend(&apart);
            let mut changes = [(0, allow(2)), (1, revoke_change(1))];
            if revokes_first {
                changes.reverse();
            }
            for (n, change) in changes {
                cluster.propose(n, change).unwrap();
            }
            cluster.isolated.clear();
            cluster.advance(11);
            assert!(is_in_conflict_everywhere(&cluster, 2), "{apart:?}");
            assert_eq!(cluster.authorize(), Err(RemoteDenial::NotGranted));
            cluster.propose(0, allow(3)).unwrap();
            assert_eq!(cluster.authorize(), Ok(GrantId([3; 16])), "{apart:?}");
        }
    }
}

#[test]
fn a_pending_revoke_wins_over_a_grant_unknown_to_its_author() {
    let mut cluster = Cluster::new(3);
    cluster.propose(0, allow(1)).unwrap();
    cluster.isolated.insert(1);
    cluster.start(1);
    cluster.tick();
    assert_eq!(
        cluster.propose(1, revoke_change(1)),
        Ok(ProposalOutcome::Deferred)
    );
    cluster.propose(0, allow(2)).unwrap();
    let unseen = cluster.disks[&0].0.last().cloned().unwrap();
    cluster.act(1, |replica, cx| replica.handle_entries(&[unseen], cx));
    assert_eq!(cluster.nodes[&1].pending_revokes(), 1);
    let own = &cluster.nodes[&1];
    let granted = own.logs().find_grant(GrantId([2; 16])).unwrap();
    assert!(matches!(
        own.grant_status(&granted, 0),
        GrantStatus::InConflict { .. }
    ));
    cluster.start(1);
    cluster.isolated.clear();
    cluster.advance(11);
    assert_eq!(cluster.nodes[&1].pending_revokes(), 0);
    assert!(is_in_conflict_everywhere(&cluster, 2));
    assert_eq!(cluster.authorize(), Err(RemoteDenial::NotGranted));
}

/// Most entries need no context.
#[test]
fn an_operation_names_only_the_logs_it_depends_on() {
    let mut cluster = Cluster::new(3);
    cluster.propose(0, allow(1)).unwrap();
    cluster.propose(0, allow(2)).unwrap();
    cluster.propose(1, revoke_change(1)).unwrap();
    cluster.propose(1, allow(3)).unwrap();
    cluster.propose(2, allow(4)).unwrap();
    let named: Vec<usize> = cluster.disks[&2]
        .0
        .iter()
        .map(|signed| signed.encoded().operation())
        .filter(|operation| operation.change.grants().is_some())
        .map(|operation| operation.context.logs.len())
        .collect();
    // The revoke has seen the second grant, and the last grant has seen the revoke.
    assert_eq!(named, [0, 0, 1, 0, 1]);
    assert!(cluster.authorize().is_ok());
}
