//! Where agents come in: HTTP and lines, their sessions, who they are, and the registry of those with a token.

pub mod agent_registry;
pub mod bodies;
pub mod connection;
#[cfg(test)]
mod endings;
pub mod http_door;
pub mod oauth;
pub mod reception;
pub mod revocation;
pub mod session;
pub mod stateless;
