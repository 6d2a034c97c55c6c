//! All wire formats: JSON-RPC envelopes, the methods of MCP and MGP, the messages between kernels, and the
//! rendering of refusals in the caller's dialect.
//!
//! No IO, no clock, no runtime. Payloads that are only relayed stay raw text: a frame is parsed once, to
//! its envelope, and edited by [`mgp_json::Splice`] where a name or a token must change.

pub mod dialect;
pub mod federation;
pub mod framing;
pub mod ids;
pub mod jsonrpc;
pub mod lite;
pub mod mcp;
pub mod mcpl;
pub mod mgp;
pub mod redacted_url;
pub mod refusal;
pub mod versions;
