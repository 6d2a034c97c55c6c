//! Many nodes of one cluster over a bad network, in virtual time: the engine of the replicated logs as it is, with
//! everything around it played by a seed.
//!
//! `cargo test -p mgp-engine --test sim` runs some seeds for each invariant, `cargo xtask simulate` thousands. A seed
//! that fails is printed; it is played again, told event by event, with
//! `MGP_SIM_SEED=<seed> cargo test -p mgp-engine --test sim -- --nocapture`.
//!
//! `MGP_SIM_FIRST`, `MGP_SIM_SEEDS` and `MGP_SIM_THREADS` say which seeds, and on how many cores.

#![allow(clippy::unwrap_used)]
// How many seeds, and which, is asked of the environment: this is no engine.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod chance;
mod exhaustive;
mod invariants;
mod machine;
mod model;
mod network;
mod play;
mod seeds;
mod world;
