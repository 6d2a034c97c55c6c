//! What MGP adds to MCP, with real processes: who may do what, and what was done.

mod access;
mod code_safety;
mod confirmation;
mod kills;
mod made;
mod negotiation;
mod validators;
