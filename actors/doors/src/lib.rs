//! The doors for agents: HTTP, lines and links of other nodes, sessions, authentication, and the registry of agents with tokens.

pub mod agent_registry;
pub mod bodies;
pub mod connection;
pub mod console;
#[cfg(test)]
mod ending_tests;
pub mod grpc_door;
pub mod http_door;
pub mod lite;
pub mod node_door;
pub mod oauth;
pub mod reception;
pub mod revocation;
pub mod session;
pub mod stateless;
