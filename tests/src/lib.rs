//! What the suites of this project share: the scripted server they are measured against, the harness
//! that runs the kernel as a person would, and the load generator of the benchmarks.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod fixture;
pub mod harness;
pub mod load;
pub mod scenario;
