//! Who is there: the configuration, the command line and the kernel itself.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cli;
pub mod cluster;
pub mod config;
pub mod demo;
pub mod health;
pub mod kernel;
pub mod operator;
pub mod paths;
mod renewed_key;
pub mod routes;
pub mod source;
pub mod tree;
pub mod trust;
