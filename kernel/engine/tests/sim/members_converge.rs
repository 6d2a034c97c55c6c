//! Those who are in the cluster come to hold and decide the same.

use crate::play::Invariant;
use crate::world::World;

/// PRJ-006: access is decided equally on every node.
#[derive(Default)]
pub(crate) struct MembersConverge;

impl Invariant for MembersConverge {
    fn holds(&mut self, _world: &World) {}

    fn holds_at_the_end(&mut self, world: &World) {
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
                replica.logs().members().is_in(node)
            })
        });
        if all_in == before {
            return all_in;
        }
    }
}
