//! Clients of every version with servers of every version, through one kernel.
#![allow(clippy::unwrap_used)]

mod across_nodes;
mod directly;
mod experiment;
mod matrix;
mod story;
mod tasks;
mod versions;
