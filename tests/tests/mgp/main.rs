//! What MGP adds to MCP, with real processes: who may do what, and what was done.

mod code_safety;
mod confirmation;
mod escapes;
mod identity;
mod made;
mod negotiation;
mod oauth;
mod validators;
