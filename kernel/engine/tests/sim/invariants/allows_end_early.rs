//! What expires ends by the clock that is furthest ahead, of the one here and those of all who could take it back.

use mgp_engine::cluster::clock_offset::PeerClock;

use crate::play::Invariant;
use crate::world::{AllowedCall, World};

/// FEDERATION, clocks: beyond two seconds, what is allowed ends early.
#[derive(Default)]
pub(crate) struct AllowsEndEarly;

impl Invariant for AllowsEndEarly {
    fn holds(&mut self, world: &World) {
        for call in &world.calls {
            judge(world, call);
        }
    }
}

fn judge(world: &World, call: &AllowedCall) {
    let machine = &world.machines[call.machine];
    let Some(replica) = &machine.replica else {
        return;
    };
    let mut fitting = call.held.allows(call.grant);
    let Some(end_ms) = fitting.find_map(|(_, grant)| grant.not_after_ms) else {
        return;
    };
    let ours_ms = machine.wall_ms(call.at_ms);
    let right_ms = ours_ms.saturating_add_signed(-machine.wall_off_ms);
    for node in replica.logs().members().possible_revokers() {
        let Some(off) = world.clocks.get(&(call.machine, node)) else {
            continue;
        };
        let theirs_ms = right_ms.saturating_add_signed(*off);
        // Measured no worse than by this much.
        let clock = PeerClock::from_clocks(theirs_ms, ours_ms, 400);
        assert!(
            !clock.is_skewed() || theirs_ms < end_ms,
            "{call:?} ended at {end_ms} by the clock of {node}"
        );
    }
}
