//! No revocation is ever undone.

use std::collections::{BTreeMap, BTreeSet};

use mgp_engine::policy::grants::{Force, GrantId, Granted};
use mgp_protocol::mgp::access::Permission;

use crate::invariants::members_converge::those_in;
use crate::play::Invariant;
use crate::world::World;

/// Every so many events all grants of all machines are looked at.
const EVERY: u64 = 5;

/// Every so many, also of those at which nothing has changed.
const EVERY_ONE: u64 = 50;

/// MGP-082, PRJ-006: revoke wins, for good.
#[derive(Default)]
pub(crate) struct RevokesLast {
    events: u64,
    /// What each machine has said to be revoked, with all it knew on disk.
    gone: BTreeMap<usize, BTreeSet<GrantId>>,
    /// Of each machine, as what it was last looked at.
    looked_at: BTreeMap<usize, Knows>,
    /// What was acknowledged as signed by a machine that has its key for itself.
    signed: BTreeMap<usize, BTreeSet<GrantId>>,
}

/// While this is the same, so is what counts at a machine: which start it is, how much it knows and owes, and
/// whether all of it is on disk.
type Knows = (u64, usize, usize, bool);

impl Invariant for RevokesLast {
    fn holds(&mut self, world: &World) {
        for revoke in &world.revokes {
            let gone = self.gone.entry(revoke.machine).or_default();
            gone.extend(allowing(world, revoke.machine, &revoke.grants));
            let signed = self.signed.entry(revoke.machine).or_default();
            signed.extend(revoke.grants.iter().filter(|_| revoke.signed).copied());
        }
        self.events += 1;
        if !self.events.is_multiple_of(EVERY) {
            return;
        }
        for at in world.running() {
            let knows = knows(world, at);
            let same = self.looked_at.insert(at, knows) == Some(knows);
            if same && !self.events.is_multiple_of(EVERY_ONE) {
                continue;
            }
            let gone = self.gone.entry(at).or_default();
            for (granted, force) in forces(world, at) {
                let id = granted.grant.id;
                assert!(
                    force != Force::InForce || !gone.contains(&id),
                    "{at}: {id} is back"
                );
                if matches!(force, Force::Revoked(_)) && world.machines[at].is_synced() {
                    gone.insert(id);
                }
            }
        }
    }

    fn holds_at_the_end(&mut self, world: &World) {
        let all_in = those_in(world);
        let revoked: BTreeSet<GrantId> = all_in
            .iter()
            .filter_map(|at| self.signed.get(at))
            .flatten()
            .copied()
            .collect();
        for at in all_in {
            for (granted, force) in forces(world, at) {
                let lives = force == Force::InForce && revoked.contains(&granted.grant.id);
                assert!(!lives, "{at}: {} was revoked elsewhere", granted.grant.id);
            }
        }
    }
}

fn knows(world: &World, at: usize) -> Knows {
    let machine = &world.machines[at];
    let replica = machine.replica.as_ref().unwrap();
    let (count, owes) = (replica.logs().count(), replica.owes());
    (machine.starts, count, owes, machine.is_synced())
}

/// The grants that allow, and whether they count.
fn forces(world: &World, at: usize) -> impl Iterator<Item = (Granted, Force)> {
    let machine = &world.machines[at];
    let replica = machine.replica.as_ref().unwrap();
    let allow = replica.logs().all_grants().into_iter();
    let allow = allow.filter(|granted| granted.grant.permission == Permission::Allow);
    // No time has come yet at which anything expires.
    allow.map(move |granted| {
        let force = replica.force(&granted, 0);
        (granted, force)
    })
}

fn allowing(world: &World, at: usize, ids: &BTreeSet<GrantId>) -> BTreeSet<GrantId> {
    match world.machines[at].replica {
        Some(_) => {
            let found = forces(world, at).map(|(granted, _)| granted.grant.id);
            found.filter(|id| ids.contains(id)).collect()
        }
        None => BTreeSet::new(),
    }
}
