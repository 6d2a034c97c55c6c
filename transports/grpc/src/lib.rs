//! MCP-lite over gRPC (MCP-lite 0.042, section 5): the messages, both ends of the service, and the two
//! services that every gRPC door has.
//!
//! [`mcplite`] is generated from [`PROTO`], the document's own text. A `google.protobuf.Struct` is never
//! unpacked to values: [`exact::Struct`] goes from JSON text to the wire and back, exactly or not at all.

pub mod builtin_services;
pub mod error_details;
pub mod exact;

pub use prost;
pub use tonic;

/// The messages and the service, generated.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::too_many_lines,
    clippy::wildcard_enum_match_arm
)]
pub mod mcplite {
    include!("../generated/mcplite.rs");
}

/// The text that [`mcplite`] is made from, for those who make stubs of their own.
pub const PROTO: &str = include_str!("../proto/mcplite.proto");

/// The same as an encoded `FileDescriptorSet`, with what it imports.
pub(crate) const DESCRIPTORS: &[u8] = include_bytes!("../generated/mcplite.bin");

/// The name of the service, as in paths: `/mcplite.MCPLite/CallTool`.
pub const SERVICE: &str = "mcplite.MCPLite";
