//! All tools of all servers, to be searched (MGP §16.4): by words, by meaning, by category.
//!
//! An index never changes; a server that appears, changes or leaves makes the next one, which shares
//! with it all other servers. So a reader never waits, and a server costs its own size.

mod clauses;
mod entry;
mod everyday;
mod evidence;
mod kinds;
mod lists;
mod memo;
mod postings;
mod rank;
mod request;
mod scan;
mod scene;
mod shelf;
mod spelling;
mod spread;
mod vectors;
mod words;

#[cfg(test)]
mod plainly;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_protocol::ids::ServerId;

pub use entry::{Draft, Entry};
pub use evidence::Evidence;
pub use memo::Memo;
pub use request::{Filter, REQUEST_MAX, RESULTS_MAX, Request, Search, Strategy};
pub use shelf::{Shelf, Text};
pub use vectors::{DIMENSIONS_MAX, Vector};

/// Everything that can be found at one moment.
#[derive(Clone, Debug, Default)]
pub struct Index {
    shelves: BTreeMap<ServerId, Arc<Shelf>>,
}

/// A tool that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit<'a> {
    /// The tool.
    pub entry: &'a Entry,
    /// How well it fits, from 0 to 1. Scores of one search can be held against each other, those of
    /// two cannot.
    pub score: f32,
    /// What the score was made of.
    pub evidence: Evidence,
    /// Whether it does what is looked for at all, as far as that can be told.
    pub fits: bool,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<'a> {
    /// The best first; equals in the order of servers and their lists.
    pub hits: Vec<Hit<'a>>,
    /// How many tools there were to choose from: those that are visible and pass the filter.
    pub visible: usize,
    /// How it was searched. Another than was asked for when no meaning was known: then by words.
    pub strategy: Strategy,
}

impl Index {
    /// The next index, with this server as it is now.
    #[must_use]
    pub fn with(&self, shelf: Arc<Shelf>) -> Self {
        let mut shelves = self.shelves.clone();
        shelves.insert(shelf.server().clone(), shelf);
        Self { shelves }
    }

    /// The next index, without that server.
    #[must_use]
    pub fn without(&self, server: &ServerId) -> Self {
        let mut shelves = self.shelves.clone();
        shelves.remove(server);
        Self { shelves }
    }

    /// A server's part.
    #[must_use]
    pub fn shelf(&self, server: &ServerId) -> Option<&Arc<Shelf>> {
        self.shelves.get(server)
    }

    /// All parts, ordered by server.
    pub fn shelves(&self) -> impl Iterator<Item = &Arc<Shelf>> {
        self.shelves.values()
    }

    /// How many tools there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shelves().map(|shelf| shelf.entries().len()).sum()
    }

    /// True when there is nothing to find.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Searches what is visible.
    #[must_use]
    pub fn search(&self, search: &Search<'_>) -> Found<'_> {
        rank::search(self.shelves().map(|shelf| &**shelf), search)
    }
}
