//! Finds things without trusting them: the files of the configuration, and nodes on the local network.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod config;
pub mod interfaces;
pub mod lan;
