//! The registered servers, on disk and in memory. What is answered is on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mgp_protocol::ids::{ConnectionId, ServerId};
use mgp_protocol::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::record::Record;
use crate::journal::{Journal, Opened};

/// The journal's kind.
const KIND: &str = "registered";
/// Names that servers had and that no other one gets: grants and approvals were given to them. A
/// person removes the file when they are used up.
const LEFT_MAX: usize = 4096;

/// An entry of the journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Entry {
    Server(Box<Record>),
    Left(String),
}

/// All registered servers. One owner at a time.
#[derive(Debug)]
pub struct Book {
    journal: Journal,
    /// By id.
    pub servers: BTreeMap<ServerId, Record>,
    left: BTreeSet<ServerId>,
}

impl Book {
    /// Opens the book; blocks.
    ///
    /// # Errors
    /// In words, what is wrong with the file.
    pub fn open(path: &Path) -> Result<Self, String> {
        let Opened {
            journal,
            entries,
            cut,
        } = Journal::open(path, KIND).map_err(|e| e.to_string())?;
        if let Some(cut) = cut {
            tracing::warn!("{cut}");
        }
        let mut book = Self {
            journal,
            servers: BTreeMap::new(),
            left: BTreeSet::new(),
        };
        for entry in entries {
            let entry = serde_json::from_slice(&entry)
                .map_err(|e| format!("{}: an entry that cannot be read: {e}", path.display()))?;
            match entry {
                Entry::Server(record) => {
                    book.servers.insert(record.server(), *record);
                }
                Entry::Left(id) => {
                    book.left.insert(ServerId::new(id));
                }
            }
        }
        Ok(book)
    }

    /// Ids that no new server can have.
    pub fn taken(&self) -> impl Iterator<Item = &ServerId> {
        self.servers.keys().chain(&self.left)
    }

    /// How many this one has registered.
    #[must_use]
    pub fn count(&self, created_by: &str) -> usize {
        let own = |record: &&Record| record.created_by == created_by;
        self.servers.values().filter(own).count()
    }

    /// Whether a name can be used up.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.left.len() + self.servers.len() < LEFT_MAX
    }

    /// Those that end with this session.
    #[must_use]
    pub fn of_session(&self, session: ConnectionId) -> Vec<ServerId> {
        let its = |record: &&Record| record.session == Some(session);
        let records = self.servers.values().filter(its);
        records.map(Record::server).collect()
    }

    /// Takes a server in, or what has changed about it; it is on disk when this returns.
    ///
    /// # Errors
    /// Nothing was changed then.
    pub async fn put(&mut self, record: Record) -> Result<(), Refusal> {
        let id = record.server();
        let before = self.servers.insert(id.clone(), record);
        let kept = self.keep().await;
        if kept.is_err() {
            match before {
                Some(before) => self.servers.insert(id, before),
                None => self.servers.remove(&id),
            };
        }
        kept
    }

    /// Takes a server out, for good; it is gone from the disk when this returns.
    ///
    /// # Errors
    /// Nothing was changed then.
    pub async fn strike(&mut self, id: &ServerId) -> Result<Option<Record>, Refusal> {
        let Some(record) = self.servers.remove(id) else {
            return Ok(None);
        };
        self.left.insert(id.clone());
        if let Err(refusal) = self.keep().await {
            self.left.remove(id);
            self.servers.insert(id.clone(), record);
            return Err(refusal);
        }
        Ok(Some(record))
    }

    async fn keep(&self) -> Result<(), Refusal> {
        // Of a server that ends with its session only the name lasts.
        let servers = self.servers.values().map(|record| match record.session {
            None => Entry::Server(Box::new(record.clone())),
            Some(_) => Entry::Left(record.id.clone()),
        });
        let left = self.left.iter().map(|id| Entry::Left(id.to_string()));
        let entries = servers
            .chain(left)
            .map(|entry| serde_json::to_vec(&entry).expect("a record is always JSON"));
        let kept = self.journal.replace(entries.collect()).await;
        kept.map_err(|error| Refusal::Broken(format!("the registration is not kept: {error}")))
    }
}
