//! The endpoints for agents: HTTP, byte streams and links of other nodes, sessions, authentication, and the registry
//! of agents with tokens.

pub mod agent_registry;
pub mod connection;
mod console;
mod endpoint_context;
mod grpc_endpoint;
mod http_endpoint;
#[cfg(test)]
mod leak_tests;
mod lite;
mod message_budgets;
mod node_endpoint;
mod oauth;
mod revocation;
mod session;
mod stateless;

// The console: the operator's links, and the browsers that are signed in.
pub use self::console::Console;

// What all connections and sessions share.
pub use self::endpoint_context::EndpointContext;

// The gRPC endpoint: MCP-lite on the port of the HTTP endpoint (MCP-lite 0.042, section 5).
pub use self::grpc_endpoint::GrpcEndpoint;

// The HTTP endpoint: Streamable HTTP for agents, in both protocol families.
pub use self::http_endpoint::{
    Auth, HttpEndpoint, HttpSse, MetricsPage, MetricsPath, ResponseCounts, ResponseOptions,
    ServerCard, Tokens,
};

// MCP-lite: what its bindings share.
pub use self::lite::{Lite, LiteSettings};

// Memory for messages of agents being received or answered: limited in total and per agent.
pub use self::message_budgets::MessageBudgets;

// The endpoint for agents of other nodes: each call over a link is one stateless request.
pub use self::node_endpoint::NodeEndpoint;

// Tokens of an authorization server (OAuth 2.1), and the kernel as one in front of an identity provider.
pub use self::oauth::broker::{Broker, BrokerSettings};
pub use self::oauth::{IssuerTokens, KeySource, OAuth, ProtectedResource, TokenSource};

// Ends everything an agent has under way when its credential is revoked.
pub use self::revocation::Revocation;

// The actor of one legacy HTTP session: from `initialize` to DELETE, its idle timeout or the end of the kernel.
pub use self::session::{SessionLimits, SessionMsg, SessionRecord, Sessions};

// Stateless requests of 2026-07-28, which carry in `_meta` what a session would know of the client.
pub use self::stateless::Stateless;
