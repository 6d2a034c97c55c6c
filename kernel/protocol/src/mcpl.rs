//! The messages of MCPL 0.4 and 0.5 (MCP Live) between servers and hosts, beside MCP. Sections are those of 0.4, except
//! where 0.5 is named.
//!
//! Used in the legacy protocols only, with peers that declared `capabilities.experimental.mcpl`.

pub mod channels;
pub mod content;
pub mod context;
pub mod error;
pub mod feature_sets;
pub mod grants;
pub mod inference;
pub mod lifecycle;
pub mod model;
pub mod negotiation;
pub mod push;
pub mod scope;
pub mod state;

pub use self::error::McplError;
pub use self::negotiation::{HostCapabilities, McplVersion, ServerCapabilities};
pub(crate) use crate::mcp::methods;
