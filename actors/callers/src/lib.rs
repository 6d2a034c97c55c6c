//! Callers: agents, their requests, streams and tasks, and the tool caches of their sessions.

pub mod agent;
pub mod agent_requests;
pub mod agent_tap;
pub mod callbacks;
pub mod credential;
pub mod directory;
pub mod in_flight_call;
pub mod issued_tasks;
pub mod negotiation;
pub mod registered_agents;
pub mod request;
pub mod responses;
pub mod tasks;
pub mod tool_cache;
