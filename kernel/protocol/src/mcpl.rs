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
pub mod model;
pub mod negotiation;
pub mod push;
pub mod scope;
pub mod state;
pub mod tags;

pub use self::error::McplError;
pub use self::negotiation::{HostCapabilities, ServerCapabilities};
pub(crate) use crate::mcp::methods;

methods! {
    "mcpl/manifestChanged" => ManifestChanged,
    "mcpl/manifest" => Manifest,
}

/// The version this kernel announces. `versions` beside it names all that it speaks.
pub(crate) const VERSION: &str = "0.4";

/// A version of MCPL that this kernel speaks. The version that a peer announces decides which one is spoken to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum McplVersion {
    /// 0.4, and all drafts before it.
    #[default]
    V0_4,
    /// 0.5, and all drafts after it.
    V0_5,
}

impl McplVersion {
    /// The version that is spoken to a peer that announces this minor version of 0.
    pub(crate) fn for_minor(minor: u32) -> Self {
        if minor >= 5 { Self::V0_5 } else { Self::V0_4 }
    }

    /// The version in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_4 => VERSION,
            Self::V0_5 => "0.5",
        }
    }
}

/// `mcpl/manifestChanged`, a notification of a server of 0.5 (0.5 §17.3): a hint. What changed is found by comparing the
/// manifests.
#[derive(Debug)]
pub struct ManifestChanged;

/// `mcpl/manifest`: the whole manifest of a server of 0.5 (0.5 §17.4).
#[derive(Debug)]
pub struct Manifest;
