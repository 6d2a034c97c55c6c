//! Those who are in the cluster come to hold and decide the same.

use mgp_engine::replication::logs::UnstoredEntries;
use mgp_engine::replication::members::ClusterMembers;

use crate::play::Invariant;
use crate::world::World;

/// PRJ-006: access is decided equally on every node.
#[derive(Default)]
pub(crate) struct MembersConverge;

impl Invariant for MembersConverge {
    fn holds(&mut self, _world: &World) {}

    fn holds_at_the_end(&mut self, world: &World) {
        for at in world.running() {
            is_made_of_its_entries(world, at);
        }
        let all_in = those_in(world);
        let Some((first, others)) = all_in.split_first() else {
            return;
        };
        let first = world.machines[*first].replica.as_ref().unwrap();
        for at in others {
            let other = world.machines[*at].replica.as_ref().unwrap();
            assert_eq!(first.heads(), other.heads(), "{at} holds something else");
            assert_eq!(first.logs().members(), other.logs().members());
            assert_eq!(first.logs().grants(), other.logs().grants());
        }
    }
}

/// What a replica keeps to answer quickly is what its entries add up to.
fn is_made_of_its_entries(world: &World, at: usize) {
    let machine = &world.machines[at];
    let replica = machine.replica.as_ref().unwrap();
    let logs = replica.logs();
    let members = ClusterMembers::from_grants(logs.grants(), logs.cluster());
    assert_eq!(*logs.members(), members, "{at} takes others for members");
    if machine.is_synced() {
        assert_eq!(
            *replica.heads(),
            logs.heads(&UnstoredEntries::new()),
            "{at}"
        );
    }
}

/// The machines that all of them take for members, without those whose key two machines have.
pub(crate) fn those_in(world: &World) -> Vec<usize> {
    let mut all_in = world.running();
    all_in.retain(|at| !world.machines[*at].cloned);
    loop {
        let before = all_in.clone();
        all_in.retain(|at| {
            let node = world.machines[*at].node();
            before.iter().all(|by| {
                let replica = world.machines[*by].replica.as_ref().unwrap();
                replica.logs().members().is_member(node)
            })
        });
        if all_in == before {
            return all_in;
        }
    }
}
