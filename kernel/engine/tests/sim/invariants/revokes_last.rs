//! No revocation is ever undone.

use std::collections::{BTreeMap, BTreeSet};

use mgp_engine::policy::grants::{GrantId, GrantStatus, LoggedGrant};
use mgp_protocol::mgp::access::Permission;

use crate::invariants::members_converge::those_in;
use crate::play::Invariant;
use crate::world::World;

/// Every so many events all grants of all machines are looked at.
const EVERY: u64 = 5;

/// Every so many, also those that have ended and were put away, and of machines at which nothing has changed.
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
            let every_one = self.events.is_multiple_of(EVERY_ONE);
            if same && !every_one {
                continue;
            }
            let gone = self.gone.entry(at).or_default();
            for (granted, force) in forces(world, at, every_one) {
                let id = granted.grant.id;
                assert!(
                    force != GrantStatus::InForce || !gone.contains(&id),
                    "{at}: {id} is back"
                );
                if matches!(force, GrantStatus::Revoked(_)) && world.machines[at].is_synced() {
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
            for (granted, force) in forces(world, at, true) {
                let lives = force == GrantStatus::InForce && revoked.contains(&granted.grant.id);
                assert!(!lives, "{at}: {} was revoked elsewhere", granted.grant.id);
            }
        }
    }
}

fn knows(world: &World, at: usize) -> Knows {
    let machine = &world.machines[at];
    let replica = machine.replica.as_ref().unwrap();
    let (count, owes) = (replica.logs().count(), replica.pending_revokes());
    (machine.starts, count, owes, machine.is_synced())
}

/// The grants that allow, and whether they count; those that were put away are read anew, which takes long.
fn forces(
    world: &World,
    at: usize,
    every_one: bool,
) -> impl Iterator<Item = (LoggedGrant, GrantStatus)> {
    let replica = world.machines[at].replica.as_ref().unwrap();
    let grants: Vec<LoggedGrant> = if every_one {
        replica.logs().all_grants()
    } else {
        replica.logs().grants().iter().cloned().collect()
    };
    let allow = grants.into_iter().filter(allows);
    // No time has come yet at which anything expires.
    allow.map(move |granted| {
        let force = replica.grant_status(&granted, 0);
        (granted, force)
    })
}

fn allows(granted: &LoggedGrant) -> bool {
    granted.grant.permission == Permission::Allow
}

fn allowing(world: &World, at: usize, ids: &BTreeSet<GrantId>) -> BTreeSet<GrantId> {
    let replica = world.machines[at].replica.as_ref();
    let found = |id: &&GrantId| {
        let granted = replica.and_then(|replica| replica.logs().find_grant(**id));
        granted.is_some_and(|granted| allows(&granted))
    };
    ids.iter().filter(found).copied().collect()
}
