//! Decisions of MCP Live: enabled sets, open scopes, delivery of events, inferences and stored states.
//!
//! Pure as the engine is: text and the time go in, a verdict comes out.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod channels;
pub mod conversations;
pub mod feature_sets;
pub mod grants;
pub mod hooks;
pub mod inference;
pub mod manifest;
pub mod names;
pub mod policy;
pub mod push;
pub mod rules;
pub mod scopes;
pub mod state;
