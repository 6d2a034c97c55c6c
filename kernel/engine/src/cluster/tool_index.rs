//! The tools of a cluster: every node writes the index of its own tools and copies those of all other nodes.
//!
//! An index has one writer, so its versions never conflict. A peer receives its view: what is shared with it, in the
//! order of the last changes, so that a copy can be updated from any position in that order.

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
#[cfg(test)]
pub(crate) use self::remote_index::IndexError;
pub use self::remote_index::{IndexEffect, RemoteIndex};
pub use self::remote_indexes::RemoteIndexes;
pub(crate) use self::validation::EntryError;
pub use self::validation::{RemoteEntry, hash_schemas};

/// Most servers in the index of one node, which is one machine.
pub const SERVERS_MAX: usize = 128;
/// Most tools in the index of one node: ten times what the servers of one machine have.
pub(crate) const TOOLS_MAX: usize = 20_000;
/// Longest definition in an index, in bytes. Known ones have some thousand.
pub(crate) const DEFINITION_MAX: usize = 256 << 10;
/// Most bytes of records in the index of one node: as much as one server's list may have.
pub const BYTES_MAX: usize = 64 << 20;
/// Most bytes of records that a kernel stores of all other nodes: 100,000 tools, twice over.
pub const REMOTE_BYTES_MAX: usize = 512 << 20;
/// Most nodes whose indexes are stored here, or that receive ours.
pub const NODES_MAX: usize = 4096;
/// Bytes of records in a page, with at least one record: sent in the time of a few calls.
pub(crate) const PAGE_BYTES: usize = 256 << 10;
/// Longest name of a tool, in bytes, as in the catalog.
pub(crate) const NAME_MAX: usize = 1024;
/// A pull that is not answered within this time has failed.
pub const PULL_TIMEOUT: Duration = Duration::from_secs(10);

/// A server, or one of its tools by the server's own name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexKey {
    /// The server.
    pub server: ServerId,
    /// The tool; `None` for the server itself.
    pub tool: Option<Arc<str>>,
}

impl IndexKey {
    /// The key of the server itself.
    #[must_use]
    pub fn server(server: &ServerId) -> Self {
        Self {
            server: server.clone(),
            tool: None,
        }
    }

    /// The key of one of its tools.
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

/// The hash of one entry: of its key and of its record as its owner wrote it.
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

/// The root of an empty index, for nodes that share nothing.
#[must_use]
pub fn empty_root() -> IndexRoot {
    root_hash(std::iter::empty())
}

/// The hash over all entries, sorted by key. Hashing all of 20,000 takes less time than sending one page.
fn root_hash<'a>(leaves: impl Iterator<Item = &'a blake3::Hash>) -> IndexRoot {
    let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 index root");
    for leaf in leaves {
        hasher.update(leaf.as_bytes());
    }
    IndexRoot(hasher.finalize().into())
}
