//! What MGP adds to MCP, with real processes: who may do what, and what was done.

#![allow(clippy::unwrap_used)]

mod access;
mod audit;
mod callbacks;
mod errors;
mod events;
mod finding;
mod health;
mod negotiation;
mod newer;
mod permissions;
mod registering;
mod sandbox;
mod scene;
mod screening;
mod streams;
