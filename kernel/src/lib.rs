//! The program `mgp`: the configuration, the command line and the kernel itself.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cli;
pub mod cluster;
pub mod config;
pub mod config_source;
pub mod demo;
pub mod health;
pub mod kernel;
mod key_rotation;
pub mod operator;
pub mod paths;
pub mod routes;
pub mod supervision_tree;
pub mod trust;
