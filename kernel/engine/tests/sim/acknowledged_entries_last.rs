//! No entry that a machine acknowledged is lost by its restart, and none that reached others by its loss.

use crate::members_converge::those_in;
use crate::play::Invariant;
use crate::world::World;

/// MGP-082: what is acknowledged is on disk, and goes to everyone.
#[derive(Default)]
pub(crate) struct AcknowledgedEntriesLast;

impl Invariant for AcknowledgedEntriesLast {
    fn holds(&mut self, world: &World) {
        for at in world.running() {
            let machine = &world.machines[at];
            let logs = machine.replica.as_ref().unwrap().logs();
            for (issuer, key) in &machine.acknowledged {
                assert!(
                    logs.entry(*issuer, *key).is_some(),
                    "{at} lost {key:?} of {issuer}"
                );
            }
        }
    }

    fn holds_at_the_end(&mut self, world: &World) {
        let all_in = those_in(world);
        for (at, other) in all_in
            .iter()
            .flat_map(|at| all_in.iter().map(move |other| (at, other)))
        {
            let theirs = world.machines[*other].replica.as_ref().unwrap().logs();
            for (issuer, key) in &world.machines[*at].acknowledged {
                assert!(
                    theirs.entry(*issuer, *key).is_some(),
                    "{other} never got {key:?} of {issuer}"
                );
            }
        }
    }
}
