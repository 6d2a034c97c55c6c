//! Who calls: agents, their requests, streams and tasks, and the tools their sessions hold.

pub mod agent;
pub mod agents;
pub mod attempts;
pub mod directory;
pub mod errand;
pub mod exchange;
pub mod holding;
pub mod input_required;
pub mod negotiation;
pub mod parked;
pub mod pass;
pub mod presence;
pub mod request;
pub mod rostered;
pub mod streams;
pub mod tasks;
pub mod wire_ids;
