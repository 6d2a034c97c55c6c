//! What MGP adds to MCP, with real processes: who may do what, and what was done.

mod access;
mod audit;
mod code_safety;
mod confirmation;
mod errors;
mod escapes;
mod health;
mod identity;
mod kills;
mod lifecycle;
mod made;
mod negotiation;
mod oauth;
mod retries;
mod scene;
mod validators;
