//! What MGP adds to MCP, with real processes: who may do what, and what was done.

mod health;
mod lifecycle;
mod negotiation;
