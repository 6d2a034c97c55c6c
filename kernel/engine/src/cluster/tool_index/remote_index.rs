//! The copy of another node's index.
//!
//! It is updated by pulls from its owner, over the owner's own link, and by nobody else. Until a new copy is
//! complete, the earlier one stays.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mgp_protocol::federation::tool_index::{
    EXAMPLES_MAX, IndexChange, IndexDigest, IndexPage, IndexReport, IndexRoot, PullFailure,
    PullIndex, RefusedEntry, to_printable,
};
use mgp_protocol::ids::ServerId;

use super::pull_backoff::PullBackoff;
use super::validation::validate;
use super::{
    BYTES_MAX, EntryError, IndexKey, NAME_MAX, RemoteEntry, SERVERS_MAX, TOOLS_MAX, entry_hash,
    root_hash,
};
use crate::clock::MonotonicTime;

/// Most rejected entries whose hashes are stored.
const ENTRIES_MAX: usize = SERVERS_MAX + TOOLS_MAX;

/// What the caller of this state machine has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexEffect {
    /// Send this to the owner.
    Pull(PullIndex),
    /// The entry is new or has changed.
    Set(IndexKey),
    /// The entry was removed.
    Removed(IndexKey),
    /// Report to the owner, and to anyone who asks, which entries were rejected.
    Report(IndexReport),
}

/// Why pulls from a node are paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// A page that does not answer the request.
    #[error("its pages are out of order")]
    OutOfOrder,
    /// An invalid name.
    #[error("it contains an invalid name")]
    BadName,
    /// The limit of servers is exceeded.
    #[error("it has more than {SERVERS_MAX} servers")]
    TooManyServers,
    /// The limit of tools is exceeded.
    #[error("it has more than {TOOLS_MAX} tools")]
    TooManyTools,
    /// The limit of bytes is exceeded.
    #[error("its records have more than {BYTES_MAX} bytes")]
    TooManyBytes,
    /// The copy does not have the owner's root.
    #[error("its contents do not match its hash")]
    RootMismatch,
}

#[derive(Clone, Debug)]
struct ReportedEntry {
    hash: blake3::Hash,
    bytes: usize,
    outcome: Result<RemoteEntry, EntryError>,
}

/// The copy of one owner's index.
#[derive(Debug, Default)]
pub struct RemoteIndex {
    entries: BTreeMap<IndexKey, ReportedEntry>,
    servers: usize,
    bytes: usize,
    epoch: u64,
    position: u64,
    /// The root at `position`, when the copy was complete there.
    complete_root: Option<IndexRoot>,
    /// Entries of the earlier copy, while a new one is made.
    unconfirmed: BTreeSet<IndexKey>,
    reported_digest: Option<IndexDigest>,
    /// The digest arrived after the pull in flight was sent. The page arrives on another stream and may be older.
    is_newer_than_pull: bool,
    pending_pull: Option<PullIndex>,
    pulls: PullBackoff,
    error: Option<IndexError>,
    reported: Option<IndexReport>,
}

impl RemoteIndex {
    /// An accepted entry.
    #[must_use]
    pub fn get(&self, key: &IndexKey) -> Option<&RemoteEntry> {
        self.entries.get(key)?.outcome.as_ref().ok()
    }

    /// All accepted entries, by server.
    pub fn entries(&self) -> impl Iterator<Item = (&IndexKey, &RemoteEntry)> {
        let all = self.entries.iter();
        all.filter_map(|(key, entry)| Some((key, entry.outcome.as_ref().ok()?)))
    }

    /// The accepted entries of one server: itself first, then its tools.
    pub fn server_entries(
        &self,
        server: &ServerId,
    ) -> impl Iterator<Item = (&IndexKey, &RemoteEntry)> + use<'_> {
        let (first, server) = (IndexKey::server(server), server.clone());
        let entries = self.entries.range(first..);
        let entries = entries.take_while(move |(key, _)| key.server == server);
        entries.filter_map(|(key, entry)| Some((key, entry.outcome.as_ref().ok()?)))
    }

    /// Rejected entries, and why.
    pub fn rejected_entries(&self) -> impl Iterator<Item = (&IndexKey, &EntryError)> {
        let all = self.entries.iter();
        all.filter_map(|(key, entry)| Some((key, entry.outcome.as_ref().err()?)))
    }

    /// Why pulls are paused at the moment.
    #[must_use]
    pub fn error(&self) -> Option<IndexError> {
        self.error
    }

    /// True when the copy matches the owner's latest digest.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.reported_digest.is_some_and(|digest| {
            (self.epoch, self.position, self.complete_root)
                == (digest.epoch, digest.version, Some(digest.root))
        })
    }

    /// The digest of the copy if it is complete: stored with its records.
    #[must_use]
    pub fn digest(&self) -> Option<IndexDigest> {
        let (epoch, version) = (self.epoch, self.position);
        let digest = |root| IndexDigest {
            epoch,
            version,
            root,
        };
        self.complete_root.map(digest)
    }

    /// True while a page is on its way: the copy does not match the owner's latest digest yet.
    #[must_use]
    pub fn is_copying(&self) -> bool {
        self.pending_pull.is_some()
    }

    /// Bytes of stored records.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Restores what was stored before this kernel's start: the records of a complete copy, the hashes of its
    /// rejected entries, and its digest. `None` where these do not match the digest.
    ///
    /// Where an entry was rejected, the copy is made anew at the owner's first digest, and this one is used until
    /// then: a later build may accept the entry.
    pub fn restore(
        digest: IndexDigest,
        records: impl IntoIterator<Item = IndexChange>,
        rejected: BTreeMap<IndexKey, IndexRoot>,
        capacity: usize,
    ) -> Option<Self> {
        let mut index = Self::default();
        for record in records {
            index.apply_change(record, capacity, &mut Vec::new()).ok()?;
        }
        let accepted = index.entries.iter().map(|(key, entry)| (key, entry.hash));
        let leaves = rejected
            .iter()
            .map(|(key, leaf)| (key, blake3::Hash::from_bytes(leaf.0)));
        let leaves: BTreeMap<&IndexKey, blake3::Hash> = accepted.chain(leaves).collect();
        let root = root_hash(leaves.values());
        if root != digest.root {
            return None;
        }
        if rejected.is_empty() {
            (index.epoch, index.position) = (digest.epoch, digest.version);
            index.complete_root = Some(root);
        }
        Some(index)
    }

    /// The hashes of rejected entries: stored so that the copy can be distinguished from a damaged one.
    pub fn rejected_hashes(&self) -> impl Iterator<Item = (&IndexKey, IndexRoot)> {
        let rejected = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.outcome.is_err());
        rejected.map(|(key, entry)| (key, IndexRoot(entry.hash.into())))
    }

    /// The owner sent its digest, over its own link.
    pub(crate) fn handle_digest(
        &mut self,
        digest: IndexDigest,
        now: MonotonicTime,
    ) -> Vec<IndexEffect> {
        self.reported_digest = Some(digest);
        self.is_newer_than_pull = self.pending_pull.is_some();
        self.start_pull(now).into_iter().collect()
    }

    /// A pull was answered with a page. `room`: bytes that this kernel has left for indexes.
    pub(crate) fn handle_page(
        &mut self,
        page: IndexPage,
        capacity: usize,
        now: MonotonicTime,
    ) -> Vec<IndexEffect> {
        let pull = self.pending_pull.take_if(|pull| pull.number == page.number);
        let Some(pull) = pull.filter(|_| self.pulls.finish(page.number)) else {
            return Vec::new();
        };
        let mut effects = Vec::new();
        match self.apply_page(&pull, page, capacity, &mut effects) {
            Ok(last) => {
                self.error = None;
                self.pulls.record_page(last, now);
                effects.extend(last.then(|| self.take_report()).flatten());
            }
            Err(broken) => {
                if broken == IndexError::RootMismatch {
                    (self.epoch, self.position, self.complete_root) = (0, 0, None);
                }
                self.error = Some(broken);
                self.pulls.record_failure(None, now);
                effects.extend(self.take_report());
            }
        }
        effects.extend(self.start_pull(now));
        effects
    }

    /// A pull failed. The link stays.
    pub(crate) fn handle_pull_failure(
        &mut self,
        number: u64,
        why: PullFailure,
        now: MonotonicTime,
    ) -> Vec<IndexEffect> {
        if self.pulls.finish(number) {
            self.pending_pull = None;
            let retry_after = match why {
                PullFailure::Later(millis) => Some(Duration::from_millis(millis)),
                PullFailure::Lost => None,
            };
            self.pulls.record_failure(retry_after, now);
        }
        self.start_pull(now).into_iter().collect()
    }

    /// The link is lost. The copy stays, and so does its position in the owner's changes.
    pub(crate) fn handle_link_down(&mut self) {
        self.reported_digest = None;
        self.pending_pull = None;
        self.pulls.reset();
    }

    /// Handles the passing of time.
    pub(crate) fn handle_timeout(&mut self, now: MonotonicTime) -> Vec<IndexEffect> {
        if self.pulls.is_timed_out(now) {
            self.pending_pull = None;
            self.pulls.record_failure(None, now);
        }
        self.start_pull(now).into_iter().collect()
    }

    /// When [`Self::handle_timeout`] must be called next.
    #[must_use]
    pub(crate) fn next_timeout(&self) -> Option<MonotonicTime> {
        self.pulls
            .next_timeout()
            .filter(|_| self.reported_digest.is_some() && !self.is_current())
    }

    fn compute_root(&self) -> IndexRoot {
        root_hash(self.entries.values().map(|entry| &entry.hash))
    }

    fn start_pull(&mut self, now: MonotonicTime) -> Option<IndexEffect> {
        let digest = self.reported_digest.filter(|_| !self.is_current())?;
        let number = self.pulls.start(now)?;
        let has_same_root = self.complete_root == Some(digest.root);
        let (after, root) = match digest.epoch == self.epoch {
            true => (self.position, None),
            // The owner restarted with the same entries: only its version numbers differ.
            false if has_same_root => (digest.version, Some(digest.root)),
            false => (0, None),
        };
        let pull = PullIndex {
            number,
            epoch: digest.epoch,
            after,
            root,
        };
        (self.pending_pull, self.is_newer_than_pull) = (Some(pull), false);
        Some(IndexEffect::Pull(pull))
    }

    /// Applies a page; true when the copy is complete with it.
    fn apply_page(
        &mut self,
        pull: &PullIndex,
        page: IndexPage,
        capacity: usize,
        effects: &mut Vec<IndexEffect>,
    ) -> Result<bool, IndexError> {
        let last = page.upto == page.digest.version;
        let is_continuation = (page.epoch, page.after) == (pull.epoch, pull.after);
        let makes_progress = page.upto > page.after || (last && page.upto == page.after);
        // Empty pages could go on forever.
        let makes_progress = makes_progress && (last || !page.changes.is_empty());
        if page.epoch != page.digest.epoch
            || page.upto > page.digest.version
            || !makes_progress
            || !(is_continuation || page.after == 0)
        {
            return Err(IndexError::OutOfOrder);
        }
        if page.after == 0 {
            self.unconfirmed = self.entries.keys().cloned().collect();
        }
        (self.epoch, self.position) = (page.epoch, page.after);
        self.complete_root = None;
        let max_bytes = self.bytes.saturating_add(capacity);
        for change in page.changes {
            self.apply_change(change, max_bytes, effects)?;
        }
        self.position = page.upto;
        let (reported, paged) = (
            self.reported_digest.filter(|_| self.is_newer_than_pull),
            page.digest,
        );
        let is_newer =
            |digest: &IndexDigest| digest.epoch != paged.epoch || digest.version > paged.version;
        self.reported_digest = Some(reported.filter(is_newer).unwrap_or(paged));
        if last {
            for key in std::mem::take(&mut self.unconfirmed) {
                effects.extend(self.remove(&key));
            }
            let root = self.compute_root();
            if root != page.digest.root {
                return Err(IndexError::RootMismatch);
            }
            self.complete_root = Some(root);
        }
        Ok(last)
    }

    fn apply_change(
        &mut self,
        change: IndexChange,
        max_bytes: usize,
        effects: &mut Vec<IndexEffect>,
    ) -> Result<(), IndexError> {
        let is_too_long = |name: &String| name.len() > NAME_MAX;
        if change.server.len() > ServerId::MAX_LEN || change.tool.as_ref().is_some_and(is_too_long)
        {
            return Err(IndexError::BadName);
        }
        let key = IndexKey {
            server: self.intern_server(change.server),
            tool: change.tool.map(Into::into),
        };
        self.unconfirmed.remove(&key);
        let Some(record) = change.record.map(|record| record.0) else {
            effects.extend(self.remove(&key));
            return Ok(());
        };
        let leaf = entry_hash(&key, &record);
        let existing = self.entries.get(&key);
        if existing.is_some_and(|entry| entry.hash == leaf) {
            return Ok(());
        }
        let is_new = existing.is_none();
        let before = existing.map_or(0, |entry| entry.bytes);
        let servers = self.servers + usize::from(is_new && key.tool.is_none());
        let tools = self.entries.len() + usize::from(is_new) - servers;
        let others = self.bytes - before;
        let mut outcome = validate(&key, &record);
        if outcome.is_ok() && others + record.len() > max_bytes {
            outcome = Err(EntryError::KernelFull);
        }
        let bytes = if outcome.is_ok() { record.len() } else { 0 };
        if servers > SERVERS_MAX {
            return Err(IndexError::TooManyServers);
        }
        if tools > TOOLS_MAX || self.entries.len() > ENTRIES_MAX {
            return Err(IndexError::TooManyTools);
        }
        if others + bytes > BYTES_MAX {
            return Err(IndexError::TooManyBytes);
        }
        (self.servers, self.bytes) = (servers, others + bytes);
        let is_accepted = outcome.is_ok();
        let before = self.entries.insert(
            key.clone(),
            ReportedEntry {
                hash: leaf,
                bytes,
                outcome,
            },
        );
        if is_accepted {
            effects.push(IndexEffect::Set(key));
        } else if before.is_some_and(|before| before.outcome.is_ok()) {
            effects.push(IndexEffect::Removed(key));
        }
        Ok(())
    }

    /// The id of a server, shared by all its tools.
    fn intern_server(&self, server: String) -> ServerId {
        let server = ServerId::new(server);
        let known = self.entries.range(IndexKey::server(&server)..).next();
        let known = known.map(|(key, _)| &key.server);
        known
            .filter(|known| **known == server)
            .cloned()
            .unwrap_or(server)
    }

    fn remove(&mut self, key: &IndexKey) -> Option<IndexEffect> {
        let entry = self.entries.remove(key)?;
        self.servers -= usize::from(key.tool.is_none());
        self.bytes -= entry.bytes;
        entry
            .outcome
            .is_ok()
            .then(|| IndexEffect::Removed(key.clone()))
    }

    /// The report, when it differs from the last one.
    fn take_report(&mut self) -> Option<IndexEffect> {
        let broken = self.error.map(|broken| RefusedEntry {
            entry: "the index".to_owned(),
            reason: broken.to_string(),
        });
        let rejected = self.rejected_entries().map(|(key, why)| RefusedEntry {
            entry: to_printable(&key.to_string()),
            reason: why.to_string(),
        });
        let report = IndexReport {
            refused: self.rejected_entries().count() as u64,
            examples: broken
                .into_iter()
                .chain(rejected)
                .take(EXAMPLES_MAX)
                .collect(),
        };
        let is_empty = report.examples.is_empty() && self.reported.is_none();
        let is_unchanged = self.reported.as_ref() == Some(&report);
        if is_empty || is_unchanged {
            return None;
        }
        self.reported = Some(report.clone());
        Some(IndexEffect::Report(report))
    }
}
