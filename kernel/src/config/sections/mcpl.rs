//! `[mcpl]`: what servers may do beside being called.

pub(crate) mod inference;
pub(crate) mod push;
pub(crate) mod scopes;
pub(crate) mod state;
