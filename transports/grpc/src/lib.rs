//! MCP-lite over gRPC (MCP-lite 0.042, section 5): the messages, both ends of the service, and the two services of every
//! gRPC listener.
//!
//! [`mcplite`] is generated from the document's own text, `proto/mcplite.proto`. A `google.protobuf.Struct` is never
//! decoded to values: [`exact::Struct`] converts JSON text to the wire format and back, exactly or not at all.

mod builtin_services;
mod error_details;
pub mod exact;

pub use prost;
pub use tonic;

/// The generated messages and service.
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

// The services of every gRPC listener: health (`grpc.health.v1`) and reflection (v1 and v1alpha).
pub use self::builtin_services::{
    BuiltinServices, HEALTH_PATH, REFLECTION_ALPHA_PATH, REFLECTION_PATH,
};

// The details of an error: `google.rpc.ErrorInfo` in the trailer `grpc-status-details-bin`.
pub use self::error_details::ErrorDetails;

/// The source of [`mcplite`] as an encoded `FileDescriptorSet`, with its imports.
pub(crate) const DESCRIPTORS: &[u8] = include_bytes!("../generated/mcplite.bin");

/// The name of the service, as in paths: `/mcplite.MCPLite/CallTool`.
pub const SERVICE: &str = "mcplite.MCPLite";
