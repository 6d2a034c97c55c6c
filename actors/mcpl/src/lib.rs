//! MCPL: the host of MCPL servers, and the connection to agents that are MCPL hosts themselves.

pub mod agents;
pub mod audit;
pub mod channels;
pub mod conversations;
pub mod feature_sets;
pub mod hooks;
pub mod host;
pub mod inference;
pub mod push;
pub mod scopes;
pub mod state;
