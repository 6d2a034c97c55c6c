//! Which seeds are played, on all cores, and what happened in them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::invariants::acknowledged_entries_last::AcknowledgedEntriesLast;
use crate::invariants::allows_end_early::AllowsEndEarly;
use crate::invariants::calls_need_a_grant::CallsNeedAGrant;
use crate::invariants::leases_close::LeasesClose;
use crate::invariants::members_converge::MembersConverge;
use crate::invariants::revoke_answers_hold::RevokeAnswersHold;
use crate::invariants::revokes_beat_grants::RevokesBeatGrants;
use crate::invariants::revokes_last::RevokesLast;
use crate::play::{Invariant, play};

/// The seeds of the usual run: as many as pass in some seconds.
const SEEDS: u64 = 40;
/// What must have happened for a run to have shown anything.
const COVERED: [&str; 22] = [
    "a call is allowed",
    "a call is refused",
    "a change is proposed",
    "a clock is set",
    "a call is allowed by a pattern",
    "a crash loses writes",
    "a crash loses nothing",
    "a grant has a pattern",
    "a key is recovered",
    "a machine is cloned",
    "a machine restarts",
    "a machine starts",
    "a machine stops in good order",
    "a message is late",
    "a message is lost",
    "a message is repeated",
    "a node is cut off",
    "an admin revokes what it does not reach",
    "a revoke is bounded at a node that lacks it",
    "a revoke is not bounded at a node that lacks it",
    "the network falls apart",
    "the network is whole",
];

/// How often what happened.
pub(crate) type Happened = BTreeMap<&'static str, u64>;

/// PRJ-006, MGP-080, MGP-082, FED-001, FED-049: what holds in a cluster, in every run.
#[test]
fn every_invariant_holds_in_every_run() {
    if let Some(seed) = asked("MGP_SIM_SEED") {
        play(seed, true, &mut invariants());
        return;
    }
    let first = asked("MGP_SIM_FIRST").unwrap_or(0);
    let seeds = asked("MGP_SIM_SEEDS").unwrap_or(SEEDS);
    let happened = played(first, seeds);
    for (what, times) in &happened {
        println!("{times:>12}  {what}");
    }
    println!("{seeds} seeds from {first} on");
    for what in COVERED {
        assert!(happened.contains_key(what), "in no run {what}");
    }
}

fn invariants() -> [Box<dyn Invariant>; 8] {
    [
        Box::new(CallsNeedAGrant),
        Box::new(RevokesLast::default()),
        Box::new(RevokesBeatGrants),
        Box::new(MembersConverge),
        Box::new(AcknowledgedEntriesLast::default()),
        Box::new(LeasesClose::default()),
        Box::new(RevokeAnswersHold::default()),
        Box::new(AllowsEndEarly),
    ]
}

/// A number that the environment asks for.
pub(crate) fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn played(first: u64, seeds: u64) -> Happened {
    let next = AtomicU64::new(first);
    let work = || {
        let mut happened = Happened::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return happened;
            }
            // Where one fails, no further one is begun.
            let played = alone(seed).inspect_err(|_| next.store(first + seeds, Ordering::Relaxed));
            for (what, times) in played.unwrap_or_else(|why| resume_unwind(why)) {
                *happened.entry(what).or_default() += times;
            }
        }
    };
    let workers = asked("MGP_SIM_THREADS").unwrap_or_else(cores);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut all = Happened::new();
        for worker in workers {
            let happened = worker.join().unwrap_or_else(|why| resume_unwind(why));
            for (what, times) in happened {
                *all.entry(what).or_default() += times;
            }
        }
        all
    })
}

fn cores() -> u64 {
    thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

/// One seed, which is told when it fails.
fn alone(seed: u64) -> thread::Result<Happened> {
    let played = catch_unwind(AssertUnwindSafe(|| play(seed, false, &mut invariants())));
    played.inspect_err(|_| {
        println!(
            "seed {seed} fails; again: MGP_SIM_SEED={seed} cargo test -p mgp-engine --test sim -- --nocapture"
        );
    })
}
