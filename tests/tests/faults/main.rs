//! The kernel among servers that misbehave: whoever misbehaves is contained, whoever asked is told
//! what went wrong, and nobody else notices.
#![allow(clippy::unwrap_used)]

mod calls;
mod configuration;
mod crowd;
mod descendants;
mod draining;
mod environment;
mod kernel;
mod machine;
mod messages;
mod outcomes;
mod remote;
mod scene;
mod spawns;
mod starts;
mod upgrade;
