//! What MGP adds to MCP, with real processes: who may do what, and what was done.

mod audit;
mod code_safety;
mod confirmation;
mod errors;
mod health;
mod identity;
mod lifecycle;
mod made;
mod mtls;
mod negotiation;
mod oauth;
mod retries;
mod scene;
mod validators;
