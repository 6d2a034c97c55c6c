//! The index of all tools of all servers (MGP §16.4), searched by words, by meaning and by category.
//!
//! An index never changes; a server that appears, changes or leaves makes the next one, which shares
//! with it all other servers. So a reader never waits, and a server costs its own size.

mod entry;
mod rank;
mod request;
mod server_index;
mod terms;
mod vector_cache;
mod vectors;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_protocol::ids::ServerId;

pub use entry::{IndexDraft, IndexedTool};
pub use rank::Evidence;
pub use request::{IndexSearch, REQUEST_MAX, RESULTS_MAX, SearchFilter, SearchRequest, Strategy};
pub use server_index::{EmbeddingText, ServerIndex};
pub(in crate::tools) use terms::split_stems;
pub use vector_cache::VectorCache;
pub use vectors::{DIMENSIONS_MAX, Vector};

/// Everything that can be found at one moment.
#[derive(Clone, Debug, Default)]
pub struct Index {
    servers: BTreeMap<ServerId, Arc<ServerIndex>>,
}

/// A tool that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchHit<'a> {
    /// The tool.
    pub entry: &'a IndexedTool,
    /// How well it fits, from 0 to 1. Scores of one search can be held against each other, those of
    /// two cannot.
    pub score: f32,
    /// What the score was made of.
    pub evidence: Evidence,
    /// Whether it does what is looked for at all, as far as that can be told.
    pub is_match: bool,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchResults<'a> {
    /// The best first; equals in the order of servers and their lists.
    pub hits: Vec<SearchHit<'a>>,
    /// How many tools there were to choose from: those that are visible and pass the filter.
    pub visible: usize,
    /// How it was searched. Another than was asked for when no meaning was known: then by words.
    pub strategy: Strategy,
}

impl Index {
    /// The next index, with this server as it is now.
    #[must_use]
    pub fn with_server(&self, server: Arc<ServerIndex>) -> Self {
        let mut servers = self.servers.clone();
        servers.insert(server.server().clone(), server);
        Self { servers }
    }

    /// The next index, without that server.
    #[must_use]
    pub fn without_server(&self, server: &ServerId) -> Self {
        let mut servers = self.servers.clone();
        servers.remove(server);
        Self { servers }
    }

    /// A server's part.
    #[must_use]
    pub fn server(&self, server: &ServerId) -> Option<&Arc<ServerIndex>> {
        self.servers.get(server)
    }

    /// All parts, ordered by server.
    pub fn servers(&self) -> impl Iterator<Item = &Arc<ServerIndex>> {
        self.servers.values()
    }

    /// How many tools there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.servers().map(|server| server.entries().len()).sum()
    }

    /// True when there is nothing to find.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Searches what is visible.
    #[must_use]
    pub fn search(&self, search: &IndexSearch<'_>) -> SearchResults<'_> {
        rank::search(self.servers().map(|server| &**server), search)
    }
}
