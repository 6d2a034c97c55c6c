//! MCPL, with real processes: servers that push, hook and infer, and agents that are hosts.

#![allow(clippy::unwrap_used)]

mod around;
mod channel_checks;
mod channels;
mod feature_sets;
mod hooks;
mod hosts;
mod inference;
mod negotiation;
mod newer;
mod push;
mod real_programs;
mod scene;
mod scopes;
mod state;
mod story;
