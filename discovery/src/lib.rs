//! Finds things and trusts nobody: where the configuration lies.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod config;
