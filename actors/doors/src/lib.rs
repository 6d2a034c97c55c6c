//! Where agents come in: HTTP and lines, their sessions, who they are, and the registry of those with a token.

pub mod belongings;
pub mod bodies;
pub mod connection;
pub mod door;
#[cfg(test)]
mod endings;
pub mod oauth;
pub mod reception;
pub mod roster;
pub mod session;
pub mod stateless;
