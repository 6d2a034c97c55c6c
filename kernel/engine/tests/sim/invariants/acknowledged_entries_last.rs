//! No entry that a machine acknowledged is lost by its restart, and none that reached others by its loss.

use std::collections::BTreeMap;

use crate::invariants::members_converge::those_in;
use crate::machine::Machine;
use crate::play::Invariant;
use crate::world::World;

/// Every so many events all that was acknowledged is looked for; after each, how much a machine knows.
const EVERY: u64 = 20;

/// MGP-082: what is acknowledged is on disk, and goes to everyone.
#[derive(Default)]
pub(crate) struct AcknowledgedEntriesLast {
    events: u64,
    /// Of each machine, at which start it was last looked at, and how many entries it knew.
    known: BTreeMap<usize, (u64, usize)>,
}

impl Invariant for AcknowledgedEntriesLast {
    fn holds(&mut self, world: &World) {
        self.events += 1;
        for at in world.running() {
            let machine = &world.machines[at];
            let count = machine.replica.as_ref().unwrap().logs().count();
            let known = self.known.insert(at, (machine.starts, count));
            match known {
                Some((starts, before)) if starts == machine.starts => {
                    assert!(before <= count, "{at} knew {before} entries, now {count}");
                }
                Some(_) | None => assert_eq!(lost(machine, machine), 0, "{at} lost some"),
            }
            if self.events.is_multiple_of(EVERY) {
                assert_eq!(lost(machine, machine), 0, "{at} lost some");
            }
        }
    }

    fn holds_at_the_end(&mut self, world: &World) {
        let all_in = those_in(world);
        for (at, other) in all_in
            .iter()
            .flat_map(|at| all_in.iter().map(move |other| (at, other)))
        {
            let lost = lost(&world.machines[*at], &world.machines[*other]);
            assert_eq!(lost, 0, "{other} never got some of {at}");
        }
    }
}

/// How many of the entries that a machine acknowledged are not known at another one.
fn lost(acknowledged: &Machine, at: &Machine) -> usize {
    let known = at.replica.as_ref().unwrap().logs().entries();
    let mut known = known.map(|(issuer, key, _)| (issuer, key)).peekable();
    let lost = acknowledged.acknowledged.iter().filter(|one| {
        while known.next_if(|known| known < *one).is_some() {}
        known.peek() != Some(*one)
    });
    lost.count()
}
