//! What MGP adds to MCP, with real processes: who may do what, and what was done.

#![allow(clippy::unwrap_used)]

mod access;
mod access_story;
mod approvals;
mod audit;
mod code_safety;
mod confirmation;
mod context;
mod deregistering;
mod discover;
mod discovery_list;
mod disk;
mod errors;
mod escapes;
mod events;
mod evidence;
mod exposure;
mod finding;
mod health;
mod identity;
mod judged;
mod kills;
mod lifecycle;
mod made;
mod mtls;
mod naming;
mod negotiation;
mod oauth;
mod permissions;
mod pins;
mod registering;
mod results;
mod retries;
mod revokes;
mod sandbox;
mod scene;
mod security;
mod session_tools;
mod unagreed;
mod users;
mod validators;
// It calls the system by numbers.
#[cfg(target_arch = "x86_64")]
mod walls;
