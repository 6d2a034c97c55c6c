//! What may be done: access, permissions, pins of tools, and what waits for a person.

pub mod access;
pub mod approvals;
pub mod permissions;
pub mod pins;
