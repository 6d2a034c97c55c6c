//! Servers: supervisors, connections, processes and sandboxes.

pub mod audit_forwarding;
pub mod guard;
pub mod link;
pub mod log_levels;
pub mod login;
mod negotiation;
pub mod sandbox;
pub mod server;
pub mod upstream;
