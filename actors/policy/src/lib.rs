//! Policies: access control, permissions of servers, pins of tools, and approvals.

pub mod access;
pub mod approvals;
pub mod permissions;
pub mod pins;
