//! What MGP adds to MCP, with real processes: who may do what, and what was done.

mod approvals;
mod negotiation;
mod permissions;
mod pins;
