//! Names of HTTP headers of MCP and W3C Trace Context, for both sides of the kernel.

use http::header::HeaderName;

/// `Mcp-Session-Id`.
pub const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// `MCP-Protocol-Version`.
pub const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// `Last-Event-ID`.
pub const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// `traceparent`.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// `tracestate`.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
