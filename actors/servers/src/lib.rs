//! Servers: their supervisors, the connections to them, their processes and sandboxes.

pub mod audit_forwarding;
pub mod guard;
pub mod levels;
pub mod link;
pub mod sandbox;
pub mod server;
