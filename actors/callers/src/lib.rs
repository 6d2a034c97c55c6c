//! Who calls: agents, their requests, streams and tasks, and the tools their sessions hold.

pub mod agent;
pub mod agents;
pub mod rounds;
pub mod directory;
pub mod background;
pub mod exchange;
pub mod holding;
pub mod input_required;
pub mod negotiation;
pub mod suspended;
pub mod pass;
pub mod activity;
pub mod request;
pub mod registered_agents;
pub mod streams;
pub mod tasks;
pub mod wire_ids;
