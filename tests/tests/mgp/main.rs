//! What MGP adds to MCP, with real processes: who may do what, and what was done.

mod negotiation;
