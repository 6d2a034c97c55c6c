//! The kernel among servers that misbehave: whoever misbehaves is contained, whoever asked is told
//! what went wrong, and nobody else notices.
#![allow(clippy::unwrap_used)]

mod answers;
mod arguments;
mod away;
mod calls;
mod configuration;
mod crowd;
mod descendants;
mod draining;
mod ending;
mod environment;
mod frames;
mod growth;
mod guard;
mod kernel;
mod line_ends;
mod lists;
mod machine;
mod noise;
mod remote;
mod restarts;
mod scene;
mod spawns;
mod starts;
mod waiting;
