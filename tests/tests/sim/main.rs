//! Many nodes of one cluster over a bad network, in virtual time: the engine of the replicated logs as it is, with
//! everything around it played by a seed.
//!
//! `cargo test -p mgp-tests --test sim` runs some seeds for each invariant. A seed that fails is printed; it is
//! played again, told event by event, with `MGP_SIM_SEED=<seed> cargo test -p mgp-tests --test sim -- --nocapture`.
//! Many are run with `MGP_SIM_SEEDS=<how many>`.

#![allow(clippy::unwrap_used)]

mod acknowledged_entries_last;
mod calls_need_a_grant;
mod chance;
mod leases_close;
mod machine;
mod members_converge;
mod model;
mod network;
mod play;
mod revokes_last;
mod world;

/// The seeds of each invariant in the usual run: as many as pass in some ten seconds.
const SEEDS: u64 = 40;
