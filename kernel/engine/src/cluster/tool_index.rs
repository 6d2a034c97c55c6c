//! The tools of a cluster: every node writes the index of its own and reads those of all others.
//!
//! An index has one writer, so no two versions of it can be in conflict. What a peer is told is its view:
//! what is shared with it, in the order of the last changes, so that a copy is brought up to date from any
//! place in that order.

mod index_view;
mod local_index;
mod pull_backoff;
mod remote_index;
mod remote_indexes;
#[cfg(test)]
mod tests;
mod validation;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::federation::tool_index::IndexRoot;
use mgp_protocol::ids::ServerId;

pub use self::index_view::OmissionReason;
pub use self::local_index::{LocalIndex, OfferedServer};
pub use self::remote_index::{IndexEffect, IndexError, RemoteIndex};
pub use self::remote_indexes::RemoteIndexes;
pub use self::validation::{EntryError, RemoteEntry, RemoteTool, hash_schemas};

/// Most servers that one node tells of. A kernel is one machine's.
pub const SERVERS_MAX: usize = 128;
/// Most tools that one node tells of: what one machine's servers have, ten times over.
pub const TOOLS_MAX: usize = 20_000;
/// Longest definition that is told, in bytes. Known ones have some thousand.
pub const DEFINITION_MAX: usize = 256 << 10;
/// Most bytes of records that one node tells of: as much as one server's list may have.
pub const BYTES_MAX: usize = 64 << 20;
/// Most bytes of records that a kernel holds of all other nodes: 100,000 tools, twice over.
pub const REMOTE_BYTES_MAX: usize = 512 << 20;
/// Most nodes whose indexes are held, or who are told ours.
pub const NODES_MAX: usize = 4096;
/// Bytes of records in a page, but at least one record: it is on its way in the time of a few calls.
pub const PAGE_BYTES: usize = 256 << 10;
/// Longest name of a tool, in bytes, as in the catalog.
pub const NAME_MAX: usize = 1024;
/// A pull without an answer for so long is lost.
pub const PULL_TIMEOUT: Duration = Duration::from_secs(10);

/// A server, or one of its tools by the server's own name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexKey {
    /// The server.
    pub server: ServerId,
    /// The tool; the server itself without.
    pub tool: Option<Arc<str>>,
}

impl IndexKey {
    /// The server itself.
    #[must_use]
    pub fn server(server: &ServerId) -> Self {
        Self {
            server: server.clone(),
            tool: None,
        }
    }

    /// One of its tools.
    #[must_use]
    pub fn tool(server: &ServerId, tool: impl Into<Arc<str>>) -> Self {
        Self {
            server: server.clone(),
            tool: Some(tool.into()),
        }
    }
}

impl fmt::Display for IndexKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tool {
            Some(tool) => write!(f, "{}:{tool}", self.server),
            None => write!(f, "{}", self.server),
        }
    }
}

/// The hash of one entry: of its name and of its record as its owner wrote it.
fn entry_hash(key: &IndexKey, record: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 index entry");
    let tool = key.tool.as_deref();
    for part in [
        key.server.as_str().as_bytes(),
        &[u8::from(tool.is_some())],
        tool.unwrap_or_default().as_bytes(),
        record,
    ] {
        hasher
            .update(&(part.len() as u64).to_le_bytes())
            .update(part);
    }
    hasher.finalize()
}

/// The hash over no entries: of who shares nothing.
#[must_use]
pub fn empty_root() -> IndexRoot {
    root_hash(std::iter::empty())
}

/// The hash over all entries, in the order of their names. Hashing all of 20,000 again takes less than
/// sending one page.
fn root_hash<'a>(leaves: impl Iterator<Item = &'a blake3::Hash>) -> IndexRoot {
    let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 index root");
    for leaf in leaves {
        hasher.update(leaf.as_bytes());
    }
    IndexRoot(hasher.finalize().into())
}
