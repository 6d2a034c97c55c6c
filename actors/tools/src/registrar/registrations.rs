//! The registered servers, on disk and in memory. A change is acknowledged once it is on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use mgp_protocol::ids::{ConnectionId, ServerId};
use mgp_protocol::refusal::Refusal;
use mgp_sync::Snapshot;
use serde::{Deserialize, Serialize};

use super::record::Record;
use mgp_store::journal::{AppendError, Journal, OpenedJournal};
use mgp_store::{DiskHealth, Witness};

const KIND: &str = "registered";
/// An entry of the journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RegistryEntry {
    Server(Box<Record>),
    /// A server that has ended, or ends with its session: its grants are still to be revoked.
    Ending(String),
}

/// All registered servers.
#[derive(Debug)]
pub struct Registrations {
    journal: Journal,
    torn_tail: Option<String>,
    /// Describes missing entries; while there are any, nothing can be registered.
    loss: Option<String>,
    /// By id.
    pub servers: BTreeMap<ServerId, Record>,
    ending: BTreeSet<ServerId>,
    names: Arc<Names>,
}

/// The names of registered servers, which configured servers cannot take.
pub type Names = Snapshot<BTreeSet<ServerId>>;

impl Registrations {
    /// Opens the registrations; blocks.
    ///
    /// # Errors
    /// The file's defect, as text.
    pub fn open(path: &Path, witness: Witness) -> Result<Self, String> {
        let OpenedJournal {
            journal,
            entries,
            torn_tail,
            truncated,
        } = Journal::open_witnessed(path, KIND, witness).map_err(|e| e.to_string())?;
        let loss = truncated.map(|truncated| {
            format!(
                "{truncated}: registered servers are missing, and so are names whose grants are still to be revoked; nothing can be registered. Restore a copy of the file and restart the kernel, or run `mgp down`, then `mgp accept registered.journal`"
            )
        });
        if let Some(tail) = &torn_tail {
            tracing::warn!("{tail}");
        }
        let mut registrations = Self {
            journal,
            torn_tail,
            loss,
            servers: BTreeMap::new(),
            ending: BTreeSet::new(),
            names: Arc::new(Names::new(BTreeSet::new())),
        };
        for entry in entries {
            let entry = serde_json::from_slice(&entry)
                .map_err(|e| format!("{}: an entry cannot be read: {e}", path.display()))?;
            match entry {
                RegistryEntry::Server(record) => {
                    registrations.servers.insert(record.server_id(), *record);
                }
                RegistryEntry::Ending(id) => {
                    registrations.ending.insert(ServerId::new(id));
                }
            }
        }
        registrations.publish();
        Ok(registrations)
    }

    /// Truncates an incomplete entry at the end, and returns its description.
    ///
    /// # Errors
    /// The disk failed.
    pub(crate) async fn truncate_torn_tail(&mut self) -> Result<Option<String>, AppendError> {
        if self.torn_tail.is_some() {
            self.journal.truncate_torn_tail().await?;
        }
        Ok(self.torn_tail.take())
    }

    /// Describes missing entries and the remedy.
    #[must_use]
    pub fn loss(&self) -> Option<&str> {
        self.loss.as_deref()
    }

    /// Compares the file with its witness while no kernel has it open, and changes neither; blocks.
    ///
    /// # Errors
    /// The file's defect, as text.
    pub fn compare(path: &Path, witness: &Witness) -> Result<Option<String>, String> {
        let truncated = Journal::compare(path, KIND, witness).map_err(|e| e.to_string())?;
        Ok(truncated.map(|truncated| truncated.to_string()))
    }

    /// Whether registrations can be stored.
    #[must_use]
    pub fn health(&self) -> DiskHealth {
        self.journal.health()
    }

    /// The published names.
    #[must_use]
    pub fn names(&self) -> Arc<Names> {
        self.names.clone()
    }

    /// Servers that have ended and may still have grants.
    #[must_use]
    pub(crate) fn ending(&self) -> Vec<ServerId> {
        self.ending.iter().cloned().collect()
    }

    /// How many servers this agent has registered.
    #[must_use]
    pub(crate) fn count(&self, created_by: &str) -> usize {
        let is_creator = |record: &&Record| record.created_by == created_by;
        self.servers.values().filter(is_creator).count()
    }

    /// The servers that end with this session.
    #[must_use]
    pub(crate) fn session_servers(&self, session: ConnectionId) -> Vec<ServerId> {
        let ends_with_session = |record: &&Record| record.session == Some(session);
        let records = self.servers.values().filter(ends_with_session);
        records.map(Record::server_id).collect()
    }

    /// Adds or changes a server; on disk when this returns.
    ///
    /// # Errors
    /// The write failed, and nothing was changed.
    pub(crate) async fn save_record(&mut self, record: Record) -> Result<(), Refusal> {
        if let Some(why) = &self.loss {
            return Err(Refusal::Internal(why.clone()));
        }
        let id = record.server_id();
        let before = self.servers.insert(id.clone(), record);
        let saved = self.save().await;
        if saved.is_err() {
            match before {
                Some(before) => self.servers.insert(id, before),
                None => self.servers.remove(&id),
            };
        }
        saved
    }

    /// Removes a server; on disk when this returns. Its name is free after [`Registrations::finish_removal`].
    /// [`Registrations::finish_removal`].
    ///
    /// The write failed, and nothing was changed.
    /// Then nothing was changed.
    pub async fn remove(&mut self, id: &ServerId) -> Result<(), Refusal> {
        let Some(record) = self.servers.remove(id) else {
            return Ok(());
        };
        self.ending.insert(id.clone());
        let saved = self.save().await;
        if saved.is_err() {
            self.ending.remove(id);
            self.servers.insert(id.clone(), record);
        }
        saved
    }

    /// Frees the name of a server whose grants are all revoked.
    ///
    /// # Errors
    /// The write failed, and nothing was changed.
    pub(crate) async fn finish_removal(&mut self, id: &ServerId) -> Result<(), Refusal> {
        if !self.ending.remove(id) {
            return Ok(());
        }
        let saved = self.save().await;
        if saved.is_err() {
            self.ending.insert(id.clone());
        }
        saved
    }

    async fn save(&self) -> Result<(), Refusal> {
        // A server that ends with its session is stored only by name.
        let servers = self.servers.values().map(|record| match record.session {
            None => RegistryEntry::Server(Box::new(record.clone())),
            Some(_) => RegistryEntry::Ending(record.id.clone()),
        });
        let ending = self
            .ending
            .iter()
            .map(|id| RegistryEntry::Ending(id.to_string()));
        let entries = servers
            .chain(ending)
            .map(|entry| serde_json::to_vec(&entry).expect("a record is always JSON"));
        let saved = self.journal.replace(entries.collect()).await;
        saved.map_err(|error| {
            Refusal::Internal(format!("the registration is not stored: {error}"))
        })?;
        self.publish();
        Ok(())
    }

    fn publish(&self) {
        let names = self.servers.keys().chain(&self.ending).cloned();
        self.names.store(Arc::new(names.collect()));
    }
}
