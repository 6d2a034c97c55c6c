//! Finds things without trusting them: the files of the configuration.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod config;
