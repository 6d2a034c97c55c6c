//! What one audience is told: entries in the order of their last changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mgp_protocol::federation::tool_index::{
    IndexChange, IndexDigest, IndexPage, IndexRoot, PullIndex, RecordBytes,
};
use mgp_protocol::ids::NodeId;
use mgp_protocol::ids::ServerId;

use super::{
    BYTES_MAX, DEFINITION_MAX, IndexKey, NODES_MAX, PAGE_BYTES, SERVERS_MAX, TOOLS_MAX, leaf, root,
};

/// Most removals that are remembered: as many as there are tools. A copy that is behind more of them is made
/// anew.
const GONE_MAX: usize = TOOLS_MAX;
/// A record is little more than its definition: a vector, hashes, names of members.
const RECORD_MAX: usize = DEFINITION_MAX + (32 << 10);

/// A record of this node's own.
#[derive(Debug)]
pub(super) struct OwnRecord {
    bytes: Vec<u8>,
    leaf: blake3::Hash,
}

impl OwnRecord {
    pub(super) fn is(&self, bytes: &[u8]) -> bool {
        self.bytes == bytes
    }

    pub(super) fn new(key: &IndexKey, bytes: Vec<u8>) -> Arc<Self> {
        let leaf = leaf(key, &bytes);
        Arc::new(Self { bytes, leaf })
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn leaf(&self) -> &blake3::Hash {
        &self.leaf
    }

    pub(super) fn change(&self, key: &IndexKey) -> IndexChange {
        IndexChange {
            server: key.server.to_string(),
            tool: key.tool.as_deref().map(str::to_owned),
            record: Some(RecordBytes(self.bytes.clone())),
        }
    }
}

/// Why an entry that is shared is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftOut {
    /// At the bound.
    #[error("a node tells others of at most {SERVERS_MAX} servers")]
    Servers,
    /// At the bound.
    #[error("a node tells others of at most {TOOLS_MAX} tools")]
    Tools,
    /// At the bound.
    #[error("a node tells others of at most {BYTES_MAX} bytes of definitions")]
    Bytes,
    /// It is too long for a page.
    #[error("its definition has {0} bytes; other nodes take at most {DEFINITION_MAX}")]
    TooLong(usize),
}

/// One audience's index.
#[derive(Debug)]
pub(super) struct IndexView {
    epoch: u64,
    version: u64,
    root: IndexRoot,
    live: BTreeMap<IndexKey, (u64, Arc<OwnRecord>)>,
    /// Live entries by their last change.
    changed: BTreeMap<u64, IndexKey>,
    /// Removed entries, and their removal.
    gone: BTreeMap<IndexKey, u64>,
    removed: BTreeMap<u64, IndexKey>,
    /// The last removal that is forgotten.
    forgotten: u64,
    /// When each peer's copy was begun: what was removed before was never told to it.
    begun: BTreeMap<NodeId, u64>,
    servers: usize,
    bytes: usize,
    left_out: BTreeMap<IndexKey, LeftOut>,
}

impl IndexView {
    pub(super) fn new(epoch: u64) -> Self {
        Self {
            epoch,
            version: 0,
            root: root([].into_iter()),
            live: BTreeMap::new(),
            changed: BTreeMap::new(),
            gone: BTreeMap::new(),
            removed: BTreeMap::new(),
            forgotten: 0,
            begun: BTreeMap::new(),
            servers: 0,
            bytes: 0,
            left_out: BTreeMap::new(),
        }
    }

    pub(super) fn digest(&self) -> IndexDigest {
        IndexDigest {
            epoch: self.epoch,
            version: self.version,
            root: self.root,
        }
    }

    pub(super) fn tells_of(&self, server: &ServerId) -> bool {
        self.live.contains_key(&IndexKey::server(server))
    }

    pub(super) fn left_out(&self) -> impl Iterator<Item = (&IndexKey, LeftOut)> {
        self.left_out.iter().map(|(key, why)| (key, *why))
    }

    pub(super) fn forget(&mut self, peer: NodeId) {
        self.begun.remove(&peer);
    }

    /// Makes the entries of a server those given, as far as there is room. What is told stays told.
    pub(super) fn set(&mut self, server: &ServerId, entries: &BTreeMap<IndexKey, Arc<OwnRecord>>) {
        let before = self.version;
        let of_server = |key: &IndexKey| key.server == *server;
        self.left_out.retain(|key, _| !of_server(key));
        let first = IndexKey::server(server);
        let there = self.live.range(first..).map(|(key, _)| key);
        let there = there.take_while(|key| of_server(key));
        let ended = there.filter(|key| !entries.contains_key(key)).cloned();
        for key in ended.collect::<Vec<_>>() {
            self.remove(&key);
        }
        for (key, record) in entries {
            let told = self.live.contains_key(&IndexKey::server(server));
            if key.tool.is_some() && !told {
                // It is left out with its server.
                self.remove(key);
            } else if let Err(why) = self.put(key, record) {
                self.left_out.insert(key.clone(), why);
            }
        }
        if self.version != before {
            self.root = root(self.live.values().map(|(_, record)| &record.leaf));
        }
    }

    /// Servers with entries that were left out.
    pub(super) fn waiting(&self) -> BTreeSet<ServerId> {
        self.left_out.keys().map(|key| key.server.clone()).collect()
    }

    fn put(&mut self, key: &IndexKey, record: &Arc<OwnRecord>) -> Result<(), LeftOut> {
        let there = self.live.get(key);
        if there.is_some_and(|(_, there)| there.leaf == record.leaf) {
            return Ok(());
        }
        let its = there.map_or(0, |(_, there)| there.bytes.len());
        let room = match (&key.tool, there.is_some()) {
            _ if record.bytes.len() > RECORD_MAX => Err(LeftOut::TooLong(record.bytes.len())),
            (None, false) if self.servers >= SERVERS_MAX => Err(LeftOut::Servers),
            (Some(_), false) if self.live.len() - self.servers >= TOOLS_MAX => Err(LeftOut::Tools),
            _ if self.bytes - its + record.bytes.len() > BYTES_MAX => Err(LeftOut::Bytes),
            _ => Ok(()),
        };
        if room.is_err() {
            // What is told of it is no longer so.
            self.remove(key);
            return room;
        }
        self.take(key);
        if let Some(removal) = self.gone.remove(key) {
            self.removed.remove(&removal);
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
        if !self.take(key) {
            return;
        }
        self.version += 1;
        self.gone.insert(key.clone(), self.version);
        self.removed.insert(self.version, key.clone());
        if self.removed.len() > GONE_MAX
            && let Some((removal, key)) = self.removed.pop_first()
        {
            self.gone.remove(&key);
            self.forgotten = removal;
        }
    }

    fn take(&mut self, key: &IndexKey) -> bool {
        let Some((change, record)) = self.live.remove(key) else {
            return false;
        };
        self.changed.remove(&change);
        self.servers -= usize::from(key.tool.is_none());
        self.bytes -= record.bytes.len();
        true
    }

    /// The page a peer asks for; the first one of a new copy where its own is of another epoch, was never
    /// begun here, or is behind a removal that is forgotten.
    pub(super) fn page(&mut self, peer: NodeId, pull: &PullIndex) -> IndexPage {
        let same = pull.epoch == self.epoch && pull.after <= self.version;
        if same && pull.after == self.version && pull.root == Some(self.root) {
            self.begin(peer);
        }
        let begun = self.begun.get(&peer).copied();
        let goes_on =
            |begun: u64| same && pull.after > 0 && self.forgotten <= begun.max(pull.after);
        let (after, begun) = match begun.filter(|begun| goes_on(*begun)) {
            Some(begun) => (pull.after, begun),
            None => (0, self.begin(peer)),
        };
        let (changes, upto) = self.changes(after, begun);
        IndexPage {
            number: pull.number,
            epoch: self.epoch,
            after,
            upto,
            digest: self.digest(),
            changes,
        }
    }

    fn begin(&mut self, peer: NodeId) -> u64 {
        if self.begun.len() >= NODES_MAX && !self.begun.contains_key(&peer) {
            // Its copy is made anew when it asks again.
            self.begun.pop_first();
        }
        self.begun.insert(peer, self.version);
        self.version
    }

    /// The changes behind a place, as many as a page holds, and the place where they end.
    fn changes(&self, after: u64, begun: u64) -> (Vec<IndexChange>, u64) {
        let behind = |place: u64| (std::ops::Bound::Excluded(place), std::ops::Bound::Unbounded);
        let mut changed = self.changed.range(behind(after)).peekable();
        let mut removed = self.removed.range(behind(after.max(begun))).peekable();
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
