//! The copy of another node's index.
//!
//! It is brought up to date by pulls from its owner, over the owner's own link, and by nobody else. Until a
//! copy that is made anew is whole, what was held before stays.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mgp_protocol::federation::tool_index::{
    EXAMPLES_MAX, IndexChange, IndexDigest, IndexPage, IndexReport, IndexRoot, NotBrought,
    PullIndex, RefusedEntry, plain,
};
use mgp_protocol::ids::ServerId;

use super::judge::judge;
use super::put_off::PutOff;
use super::{
    BYTES_MAX, EntryRefusal, HeldEntry, IndexKey, NAME_MAX, SERVERS_MAX, TOOLS_MAX, leaf, root,
};
use crate::clock::MonotonicTime;

/// Most entries that are not taken and still remembered as told.
const ENTRIES_MAX: usize = SERVERS_MAX + TOOLS_MAX;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexEffect {
    /// Send this to the owner.
    Pull(PullIndex),
    /// The entry is there, or another one than before.
    Set(IndexKey),
    /// It is gone.
    Removed(IndexKey),
    /// Tell the owner, and whoever asks, what is not taken.
    Report(IndexReport),
}

/// Why nothing more is taken from a node for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenIndex {
    /// Pages that are not the answer to what was asked.
    #[error("its pages do not follow on each other")]
    Order,
    /// A name that nothing can have.
    #[error("it names what can have no name")]
    Name,
    /// At the bound.
    #[error("it tells of more than {SERVERS_MAX} servers")]
    Servers,
    /// At the bound.
    #[error("it tells of more than {TOOLS_MAX} tools")]
    Tools,
    /// At the bound.
    #[error("its records have more than {BYTES_MAX} bytes")]
    Bytes,
    /// The copy is not what the owner says it has.
    #[error("what it told is not what its hash is of")]
    Root,
}

#[derive(Clone, Debug)]
struct ToldEntry {
    leaf: blake3::Hash,
    bytes: usize,
    it: Result<HeldEntry, EntryRefusal>,
}

/// One owner's index as it is held here.
#[derive(Debug, Default)]
pub struct HeldIndex {
    entries: BTreeMap<IndexKey, ToldEntry>,
    servers: usize,
    bytes: usize,
    epoch: u64,
    position: u64,
    /// The root at `position`, when the copy was whole there.
    whole: Option<IndexRoot>,
    /// Entries of the copy before, while a new one is made.
    unconfirmed: BTreeSet<IndexKey>,
    told: Option<IndexDigest>,
    /// The owner told it after the pull that is under way was sent. It comes on another stream than the page, which
    /// may have been made before.
    told_since: bool,
    asked: Option<PullIndex>,
    pulls: PutOff,
    broken: Option<BrokenIndex>,
    reported: Option<IndexReport>,
}

impl HeldIndex {
    /// An entry that was taken.
    #[must_use]
    pub fn get(&self, key: &IndexKey) -> Option<&HeldEntry> {
        self.entries.get(key)?.it.as_ref().ok()
    }

    /// All entries that were taken, by server.
    pub fn entries(&self) -> impl Iterator<Item = (&IndexKey, &HeldEntry)> {
        let all = self.entries.iter();
        all.filter_map(|(key, told)| Some((key, told.it.as_ref().ok()?)))
    }

    /// What was taken of one server: itself first, then its tools.
    pub fn of_server(
        &self,
        server: &ServerId,
    ) -> impl Iterator<Item = (&IndexKey, &HeldEntry)> + use<'_> {
        let (first, server) = (IndexKey::server(server), server.clone());
        let its = self.entries.range(first..);
        let its = its.take_while(move |(key, _)| key.server == server);
        its.filter_map(|(key, told)| Some((key, told.it.as_ref().ok()?)))
    }

    /// Entries that were not taken, and why.
    pub fn refused(&self) -> impl Iterator<Item = (&IndexKey, &EntryRefusal)> {
        let all = self.entries.iter();
        all.filter_map(|(key, told)| Some((key, told.it.as_ref().err()?)))
    }

    /// Why nothing more is taken for now.
    #[must_use]
    pub fn broken(&self) -> Option<BrokenIndex> {
        self.broken
    }

    /// True when the copy is the index that the owner last told of.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.told.is_some_and(|told| {
            (self.epoch, self.position, self.whole) == (told.epoch, told.version, Some(told.root))
        })
    }

    /// The digest of the copy, where it is whole: what is kept beside its records.
    #[must_use]
    pub fn digest(&self) -> Option<IndexDigest> {
        let (epoch, version) = (self.epoch, self.position);
        let digest = |root| IndexDigest {
            epoch,
            version,
            root,
        };
        self.whole.map(digest)
    }

    /// True while a page is on its way: what is held now is not yet what the owner last told of.
    #[must_use]
    pub fn is_copying(&self) -> bool {
        self.asked.is_some()
    }

    /// Bytes of records held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What was kept of it from before this kernel's start: the records of a copy that was whole, the hashes of
    /// its entries that were not taken, and the digest it had. None where these are not of that digest.
    ///
    /// Where an entry was not taken, the copy is made anew once its owner is heard, and what is here is held
    /// until then: a later build may take it.
    pub fn restored(
        digest: IndexDigest,
        records: impl IntoIterator<Item = IndexChange>,
        refused: BTreeMap<IndexKey, IndexRoot>,
        room: usize,
    ) -> Option<Self> {
        let mut index = Self::default();
        for record in records {
            index.change(record, room, &mut Vec::new()).ok()?;
        }
        let taken = index.entries.iter().map(|(key, told)| (key, told.leaf));
        let leaves = refused
            .iter()
            .map(|(key, leaf)| (key, blake3::Hash::from_bytes(leaf.0)));
        let leaves: BTreeMap<&IndexKey, blake3::Hash> = taken.chain(leaves).collect();
        let root = root(leaves.values());
        if root != digest.root {
            return None;
        }
        if refused.is_empty() {
            (index.epoch, index.position) = (digest.epoch, digest.version);
            index.whole = Some(root);
        }
        Some(index)
    }

    /// The hashes of the entries that were not taken: what is kept of them, so that the copy can be told from
    /// a damaged one.
    pub fn refused_leaves(&self) -> impl Iterator<Item = (&IndexKey, IndexRoot)> {
        let refused = self.entries.iter().filter(|(_, told)| told.it.is_err());
        refused.map(|(key, told)| (key, IndexRoot(told.leaf.into())))
    }

    /// The owner told its digest, over its own link.
    pub fn told(&mut self, digest: IndexDigest, now: MonotonicTime) -> Vec<IndexEffect> {
        self.told = Some(digest);
        self.told_since = self.asked.is_some();
        self.pull(now).into_iter().collect()
    }

    /// A pull was answered with a page. `room`: bytes that this kernel has left for indexes.
    pub fn brought(
        &mut self,
        page: IndexPage,
        room: usize,
        now: MonotonicTime,
    ) -> Vec<IndexEffect> {
        let asked = self.asked.take_if(|asked| asked.number == page.number);
        let Some(asked) = asked.filter(|_| self.pulls.ends(page.number)) else {
            return Vec::new();
        };
        let mut effects = Vec::new();
        match self.take(&asked, page, room, &mut effects) {
            Ok(last) => {
                self.broken = None;
                self.pulls.brought(last, now);
                effects.extend(last.then(|| self.report()).flatten());
            }
            Err(broken) => {
                if broken == BrokenIndex::Root {
                    (self.epoch, self.position, self.whole) = (0, 0, None);
                }
                self.broken = Some(broken);
                self.pulls.failed(None, now);
                effects.extend(self.report());
            }
        }
        effects.extend(self.pull(now));
        effects
    }

    /// A pull brought nothing. The link stays as it is.
    pub fn not_brought(
        &mut self,
        number: u64,
        why: NotBrought,
        now: MonotonicTime,
    ) -> Vec<IndexEffect> {
        if self.pulls.ends(number) {
            self.asked = None;
            let told = match why {
                NotBrought::Later(millis) => Some(Duration::from_millis(millis)),
                NotBrought::Lost => None,
            };
            self.pulls.failed(told, now);
        }
        self.pull(now).into_iter().collect()
    }

    /// The link is lost. What is held stays, and so does the place in the owner's changes.
    pub fn unlinked(&mut self) {
        self.told = None;
        self.asked = None;
        self.pulls.unlinked();
    }

    /// The time has come for something, or not.
    pub fn due(&mut self, now: MonotonicTime) -> Vec<IndexEffect> {
        if self.pulls.is_lost(now) {
            self.asked = None;
            self.pulls.failed(None, now);
        }
        self.pull(now).into_iter().collect()
    }

    /// When to ask what is due.
    #[must_use]
    pub fn next_due(&self) -> Option<MonotonicTime> {
        self.pulls
            .next()
            .filter(|_| self.told.is_some() && !self.is_current())
    }

    fn root(&self) -> IndexRoot {
        root(self.entries.values().map(|told| &told.leaf))
    }

    fn pull(&mut self, now: MonotonicTime) -> Option<IndexEffect> {
        let told = self.told.filter(|_| !self.is_current())?;
        let number = self.pulls.begin(now)?;
        let alike = self.whole == Some(told.root);
        let (after, root) = match told.epoch == self.epoch {
            true => (self.position, None),
            // The owner started again with what it had: only the numbers are others.
            false if alike => (told.version, Some(told.root)),
            false => (0, None),
        };
        let asked = PullIndex {
            number,
            epoch: told.epoch,
            after,
            root,
        };
        (self.asked, self.told_since) = (Some(asked), false);
        Some(IndexEffect::Pull(asked))
    }

    /// Takes a page; true when the copy is whole with it.
    fn take(
        &mut self,
        asked: &PullIndex,
        page: IndexPage,
        room: usize,
        effects: &mut Vec<IndexEffect>,
    ) -> Result<bool, BrokenIndex> {
        let last = page.upto == page.digest.version;
        let goes_on = (page.epoch, page.after) == (asked.epoch, asked.after);
        let forward = page.upto > page.after || (last && page.upto == page.after);
        // Pages that bring nothing would have no end.
        let forward = forward && (last || !page.changes.is_empty());
        if page.epoch != page.digest.epoch
            || page.upto > page.digest.version
            || !forward
            || !(goes_on || page.after == 0)
        {
            return Err(BrokenIndex::Order);
        }
        if page.after == 0 {
            self.unconfirmed = self.entries.keys().cloned().collect();
        }
        (self.epoch, self.position) = (page.epoch, page.after);
        self.whole = None;
        let most = self.bytes.saturating_add(room);
        for change in page.changes {
            self.change(change, most, effects)?;
        }
        self.position = page.upto;
        let (told, brought) = (self.told.filter(|_| self.told_since), page.digest);
        let older =
            |told: &IndexDigest| told.epoch != brought.epoch || told.version > brought.version;
        self.told = Some(told.filter(older).unwrap_or(brought));
        if last {
            for key in std::mem::take(&mut self.unconfirmed) {
                effects.extend(self.remove(&key));
            }
            let root = self.root();
            if root != page.digest.root {
                return Err(BrokenIndex::Root);
            }
            self.whole = Some(root);
        }
        Ok(last)
    }

    fn change(
        &mut self,
        change: IndexChange,
        most: usize,
        effects: &mut Vec<IndexEffect>,
    ) -> Result<(), BrokenIndex> {
        let long = |name: &String| name.len() > NAME_MAX;
        if change.server.len() > ServerId::MAX_LEN || change.tool.as_ref().is_some_and(long) {
            return Err(BrokenIndex::Name);
        }
        let key = IndexKey {
            server: self.known_server(change.server),
            tool: change.tool.map(Into::into),
        };
        self.unconfirmed.remove(&key);
        let Some(record) = change.record.map(|record| record.0) else {
            effects.extend(self.remove(&key));
            return Ok(());
        };
        let leaf = leaf(&key, &record);
        let there = self.entries.get(&key);
        if there.is_some_and(|there| there.leaf == leaf) {
            return Ok(());
        }
        let is_new = there.is_none();
        let before = there.map_or(0, |there| there.bytes);
        let servers = self.servers + usize::from(is_new && key.tool.is_none());
        let tools = self.entries.len() + usize::from(is_new) - servers;
        let others = self.bytes - before;
        let mut it = judge(&key, &record);
        if it.is_ok() && others + record.len() > most {
            it = Err(EntryRefusal::KernelFull);
        }
        let bytes = if it.is_ok() { record.len() } else { 0 };
        if servers > SERVERS_MAX {
            return Err(BrokenIndex::Servers);
        }
        if tools > TOOLS_MAX || self.entries.len() > ENTRIES_MAX {
            return Err(BrokenIndex::Tools);
        }
        if others + bytes > BYTES_MAX {
            return Err(BrokenIndex::Bytes);
        }
        (self.servers, self.bytes) = (servers, others + bytes);
        let taken = it.is_ok();
        let before = self
            .entries
            .insert(key.clone(), ToldEntry { leaf, bytes, it });
        if taken {
            effects.push(IndexEffect::Set(key));
        } else if before.is_some_and(|before| before.it.is_ok()) {
            effects.push(IndexEffect::Removed(key));
        }
        Ok(())
    }

    /// The id of a server, the same one for all its tools.
    fn known_server(&self, server: String) -> ServerId {
        let server = ServerId::new(server);
        let known = self.entries.range(IndexKey::server(&server)..).next();
        let known = known.map(|(key, _)| &key.server);
        known
            .filter(|known| **known == server)
            .cloned()
            .unwrap_or(server)
    }

    fn remove(&mut self, key: &IndexKey) -> Option<IndexEffect> {
        let told = self.entries.remove(key)?;
        self.servers -= usize::from(key.tool.is_none());
        self.bytes -= told.bytes;
        told.it.is_ok().then(|| IndexEffect::Removed(key.clone()))
    }

    /// The report, when there is something else to report than before.
    fn report(&mut self) -> Option<IndexEffect> {
        let broken = self.broken.map(|broken| RefusedEntry {
            entry: "the index".to_owned(),
            reason: broken.to_string(),
        });
        let refused = self.refused().map(|(key, why)| RefusedEntry {
            entry: plain(&key.to_string()),
            reason: why.to_string(),
        });
        let report = IndexReport {
            refused: self.refused().count() as u64,
            examples: broken
                .into_iter()
                .chain(refused)
                .take(EXAMPLES_MAX)
                .collect(),
        };
        let nothing = report.examples.is_empty() && self.reported.is_none();
        let same = self.reported.as_ref() == Some(&report);
        if nothing || same {
            return None;
        }
        self.reported = Some(report.clone());
        Some(IndexEffect::Report(report))
    }
}
