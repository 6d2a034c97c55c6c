//! The endpoints for agents: HTTP, byte streams and links of other nodes, sessions, authentication, and the registry
//! of agents with tokens.

pub mod agent_registry;
pub mod connection;
pub mod console;
pub mod endpoint_context;
pub mod grpc_endpoint;
pub mod http_endpoint;
#[cfg(test)]
mod leak_tests;
pub mod lite;
pub mod message_budgets;
pub mod node_endpoint;
pub mod oauth;
pub mod revocation;
pub mod session;
pub mod stateless;
