//! The view of one audience: entries in the order of their last changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mgp_protocol::federation::tool_index::{
    IndexChange, IndexDigest, IndexPage, IndexRoot, PullIndex, RecordBytes,
};
use mgp_protocol::ids::NodeId;
use mgp_protocol::ids::ServerId;

use super::{
    BYTES_MAX, DEFINITION_MAX, IndexKey, NODES_MAX, PAGE_BYTES, SERVERS_MAX, TOOLS_MAX, entry_hash,
    root_hash,
};

/// Most tombstones: as many as there are tools. A copy that lags behind more of them is made anew.
const REMOVALS_MAX: usize = TOOLS_MAX;
/// A record is little longer than its definition: a vector, hashes, names of members.
const RECORD_MAX: usize = DEFINITION_MAX + (32 << 10);

/// A record of this node's own.
#[derive(Debug)]
pub(super) struct LocalRecord {
    bytes: Vec<u8>,
    hash: blake3::Hash,
}

impl LocalRecord {
    pub(super) fn has_bytes(&self, bytes: &[u8]) -> bool {
        self.bytes == bytes
    }

    pub(super) fn new(key: &IndexKey, bytes: Vec<u8>) -> Arc<Self> {
        let leaf = entry_hash(key, &bytes);
        Arc::new(Self { bytes, hash: leaf })
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn hash(&self) -> &blake3::Hash {
        &self.hash
    }

    pub(super) fn to_change(&self, key: &IndexKey) -> IndexChange {
        IndexChange {
            server: key.server.to_string(),
            tool: key.tool.as_deref().map(str::to_owned),
            record: Some(RecordBytes(self.bytes.clone())),
        }
    }
}

/// Why a shared entry is omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OmissionReason {
    /// The limit of servers is reached.
    #[error("a node shares at most {SERVERS_MAX} servers")]
    ServerLimit,
    /// The limit of tools is reached.
    #[error("a node shares at most {TOOLS_MAX} tools")]
    ToolLimit,
    /// The limit of bytes is reached.
    #[error("a node shares at most {BYTES_MAX} bytes of definitions")]
    ByteLimit,
    /// It is too long for a page.
    #[error("its definition has {0} bytes; other nodes accept at most {DEFINITION_MAX}")]
    TooLong(usize),
}

/// The index of one audience.
#[derive(Debug)]
pub(super) struct IndexView {
    epoch: u64,
    version: u64,
    root: IndexRoot,
    live: BTreeMap<IndexKey, (u64, Arc<LocalRecord>)>,
    /// Live entries by their last change.
    changed: BTreeMap<u64, IndexKey>,
    /// Removed entries, and the version of their removal.
    tombstones: BTreeMap<IndexKey, u64>,
    removals: BTreeMap<u64, IndexKey>,
    /// The version of the last removal that was forgotten.
    last_forgotten: u64,
    /// The version at which each peer's copy began: it never got entries removed before.
    copy_starts: BTreeMap<NodeId, u64>,
    servers: usize,
    bytes: usize,
    omitted: BTreeMap<IndexKey, OmissionReason>,
}

impl IndexView {
    pub(super) fn new(epoch: u64) -> Self {
        Self {
            epoch,
            version: 0,
            root: root_hash([].into_iter()),
            live: BTreeMap::new(),
            changed: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            removals: BTreeMap::new(),
            last_forgotten: 0,
            copy_starts: BTreeMap::new(),
            servers: 0,
            bytes: 0,
            omitted: BTreeMap::new(),
        }
    }

    pub(super) fn digest(&self) -> IndexDigest {
        IndexDigest {
            epoch: self.epoch,
            version: self.version,
            root: self.root,
        }
    }

    pub(super) fn contains_server(&self, server: &ServerId) -> bool {
        self.live.contains_key(&IndexKey::server(server))
    }

    pub(super) fn omitted_entries(&self) -> impl Iterator<Item = (&IndexKey, OmissionReason)> {
        self.omitted.iter().map(|(key, why)| (key, *why))
    }

    pub(super) fn forget(&mut self, peer: NodeId) {
        self.copy_starts.remove(&peer);
    }

    /// Sets the entries of a server, as far as the limits allow. Entries already in the view stay.
    pub(super) fn set_entries(
        &mut self,
        server: &ServerId,
        entries: &BTreeMap<IndexKey, Arc<LocalRecord>>,
    ) {
        let before = self.version;
        let is_of_server = |key: &IndexKey| key.server == *server;
        self.omitted.retain(|key, _| !is_of_server(key));
        let first = IndexKey::server(server);
        let existing = self.live.range(first..).map(|(key, _)| key);
        let existing = existing.take_while(|key| is_of_server(key));
        let removed = existing.filter(|key| !entries.contains_key(key)).cloned();
        for key in removed.collect::<Vec<_>>() {
            self.remove(&key);
        }
        for (key, record) in entries {
            let has_server = self.live.contains_key(&IndexKey::server(server));
            if key.tool.is_some() && !has_server {
                // It is omitted with its server.
                self.remove(key);
            } else if let Err(why) = self.insert(key, record) {
                self.omitted.insert(key.clone(), why);
            }
        }
        if self.version != before {
            self.root = root_hash(self.live.values().map(|(_, record)| &record.hash));
        }
    }

    /// Servers with omitted entries.
    pub(super) fn servers_with_omissions(&self) -> BTreeSet<ServerId> {
        self.omitted.keys().map(|key| key.server.clone()).collect()
    }

    fn insert(&mut self, key: &IndexKey, record: &Arc<LocalRecord>) -> Result<(), OmissionReason> {
        let existing = self.live.get(key);
        if existing.is_some_and(|(_, existing)| existing.hash == record.hash) {
            return Ok(());
        }
        let existing_bytes = existing.map_or(0, |(_, existing)| existing.bytes.len());
        let limit = match (&key.tool, existing.is_some()) {
            _ if record.bytes.len() > RECORD_MAX => {
                Err(OmissionReason::TooLong(record.bytes.len()))
            }
            (None, false) if self.servers >= SERVERS_MAX => Err(OmissionReason::ServerLimit),
            (Some(_), false) if self.live.len() - self.servers >= TOOLS_MAX => {
                Err(OmissionReason::ToolLimit)
            }
            _ if self.bytes - existing_bytes + record.bytes.len() > BYTES_MAX => {
                Err(OmissionReason::ByteLimit)
            }
            _ => Ok(()),
        };
        if limit.is_err() {
            // The version in the view is outdated.
            self.remove(key);
            return limit;
        }
        self.remove_live(key);
        if let Some(removal) = self.tombstones.remove(key) {
            self.removals.remove(&removal);
        }
        self.version += 1;
        self.servers += usize::from(key.tool.is_none());
        self.bytes += record.bytes.len();
        self.changed.insert(self.version, key.clone());
        self.live
            .insert(key.clone(), (self.version, Arc::clone(record)));
        Ok(())
    }

    fn remove(&mut self, key: &IndexKey) {
        if !self.remove_live(key) {
            return;
        }
        self.version += 1;
        self.tombstones.insert(key.clone(), self.version);
        self.removals.insert(self.version, key.clone());
        if self.removals.len() > REMOVALS_MAX
            && let Some((removal, key)) = self.removals.pop_first()
        {
            self.tombstones.remove(&key);
            self.last_forgotten = removal;
        }
    }

    fn remove_live(&mut self, key: &IndexKey) -> bool {
        let Some((change, record)) = self.live.remove(key) else {
            return false;
        };
        self.changed.remove(&change);
        self.servers -= usize::from(key.tool.is_none());
        self.bytes -= record.bytes.len();
        true
    }

    /// The page that a peer requests; the first one of a new copy if its own has another epoch, never began here, or
    /// lags behind a forgotten removal.
    pub(super) fn page(&mut self, peer: NodeId, pull: &PullIndex) -> IndexPage {
        let same = pull.epoch == self.epoch && pull.after <= self.version;
        if same && pull.after == self.version && pull.root == Some(self.root) {
            self.begin_copy(peer);
        }
        let begun = self.copy_starts.get(&peer).copied();
        let goes_on =
            |begun: u64| same && pull.after > 0 && self.last_forgotten <= begun.max(pull.after);
        let (after, begun) = match begun.filter(|begun| goes_on(*begun)) {
            Some(begun) => (pull.after, begun),
            None => (0, self.begin_copy(peer)),
        };
        let (changes, upto) = self.changes_since(after, begun);
        IndexPage {
            number: pull.number,
            epoch: self.epoch,
            after,
            upto,
            digest: self.digest(),
            changes,
        }
    }

    fn begin_copy(&mut self, peer: NodeId) -> u64 {
        if self.copy_starts.len() >= NODES_MAX && !self.copy_starts.contains_key(&peer) {
            // Its copy is made anew at its next request.
            self.copy_starts.pop_first();
        }
        self.copy_starts.insert(peer, self.version);
        self.version
    }

    /// The changes after a version, as many as fit into a page, and the version where they end.
    fn changes_since(&self, after: u64, begun: u64) -> (Vec<IndexChange>, u64) {
        let behind = |place: u64| (std::ops::Bound::Excluded(place), std::ops::Bound::Unbounded);
        let mut changed = self.changed.range(behind(after)).peekable();
        let mut removed = self.removals.range(behind(after.max(begun))).peekable();
        let (mut changes, mut bytes) = (Vec::new(), 0);
        let mut upto = after;
        loop {
            let next = match (changed.peek(), removed.peek()) {
                (Some((change, _)), Some((removal, _))) if change > removal => removed.next(),
                (Some(_), _) => changed.next(),
                (None, _) => removed.next(),
            };
            let Some((place, key)) = next else {
                return (changes, self.version);
            };
            let record = self.live.get(key).map(|(_, record)| &record.bytes);
            let size = key.to_string().len() + record.map_or(0, Vec::len);
            if bytes + size > PAGE_BYTES && !changes.is_empty() {
                return (changes, upto);
            }
            bytes += size;
            upto = *place;
            changes.push(IndexChange {
                server: key.server.to_string(),
                tool: key.tool.as_deref().map(str::to_owned),
                record: record.cloned().map(RecordBytes),
            });
        }
    }
}
