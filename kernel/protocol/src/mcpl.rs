//! The messages of MCPL 0.4 (MCP Live) between servers and hosts, beside MCP.
//!
//! Used in the legacy protocols only, with peers that declared `capabilities.experimental.mcpl`.

pub mod channels;
pub mod content;
pub mod context;
pub mod error;
pub mod feature_sets;
pub mod inference;
pub mod model;
pub mod negotiation;
pub mod push;
pub mod scope;
pub mod state;

pub use self::error::McplError;
pub use self::negotiation::{HostCapabilities, ServerCapabilities};
pub(crate) use crate::mcp::methods;
