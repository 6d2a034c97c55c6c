//! The logs of all admins of one cluster, as they are known at one node: what they add up to, who may issue, and
//! the entries themselves, as they came, for other nodes.

mod archive;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use mgp_protocol::hex_id;
use mgp_protocol::ids::NodeId;
use serde::{Deserialize, Serialize};

use self::archive::EntryArchive;
use super::members::ClusterMembers;
use crate::policy::grants::{
    Applied, Authority, ClusterId, GrantId, GrantKey, Granted, Grants, LogChange, LogKey, LogTip,
    MemberChange, NotApplied, Signed, Subject,
};
use crate::store::journal::JOURNAL_MAX;

hex_id! {
    /// The hash of the places and ids of operations, in their order.
    BehindDigest, 32
}

/// Bytes of entries from which on a node writes nothing that gives. It is half of the file they are in: what takes
/// away has the other half, of all admins together.
pub const GRANTING_BYTES_MAX: u64 = JOURNAL_MAX / 2;

/// What a node says it has of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogHead {
    /// The end of the certain part.
    pub tip: LogTip,
    /// What lies behind it: ahead of a gap, or on the branches of a fork.
    pub behind: Option<BehindDigest>,
}

impl LogHead {
    /// Of a log of which nothing is known.
    pub const EMPTY: Self = Self {
        tip: LogTip::EMPTY,
        behind: None,
    };
}

/// The heads of all logs that a node has something of.
pub type LogHeads = BTreeMap<NodeId, LogHead>;

/// Entries that are not on disk yet.
pub type Unstored = BTreeMap<NodeId, BTreeSet<LogKey>>;

/// Why an entry was not taken. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMerged {
    /// Of another cluster, or of none.
    #[error("it belongs to another cluster")]
    OtherCluster,
    /// Nobody who may has admitted its issuer as far as is known here.
    #[error("its issuer is not known to be an admin")]
    NotAdmitted,
    /// The log refuses it.
    #[error(transparent)]
    NotApplied(#[from] NotApplied),
}

/// All that a node knows of its cluster's logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLogs {
    here: NodeId,
    cluster: ClusterId,
    grants: Grants,
    members: ClusterMembers,
    authority: Authority,
    entries: BTreeMap<NodeId, EntryArchive>,
}

/// All of it follows from which operations are known.
impl Hash for ClusterLogs {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.here, self.cluster).hash(state);
        for (issuer, entries) in &self.entries {
            issuer.hash(state);
            state.write_usize(entries.count());
            let keys = self.grants.keys(*issuer, 0);
            keys.for_each(|key| key.hash(state));
        }
    }
}

impl ClusterLogs {
    /// Nothing is known yet but which cluster it is.
    #[must_use]
    pub fn new(here: NodeId, cluster: ClusterId) -> Self {
        Self {
            here,
            cluster,
            grants: Grants::default(),
            members: ClusterMembers::nobody(),
            authority: Authority::nobody(here),
            entries: BTreeMap::new(),
        }
    }

    /// Takes an entry whose signature was verified. In any order, any number of times; one whose issuer's
    /// admission is not known yet must be offered again.
    ///
    /// # Errors
    /// [`NotMerged`]; then nothing has changed.
    pub fn take(&mut self, signed: &Signed) -> Result<Applied, NotMerged> {
        let mut outdated = false;
        let taken = self.keep(signed, &mut outdated);
        self.judge_members(outdated);
        let is_new = matches!(taken, Ok(applied) if applied != Applied::Known);
        if is_new && self.can_end_grants(signed) {
            self.grants.shed(&self.authority);
        }
        taken
    }

    /// Takes all that can be taken, in whatever order they are; returns those that were new.
    pub fn take_all<'a>(
        &mut self,
        signed: impl IntoIterator<Item = &'a Signed>,
    ) -> Vec<&'a Signed> {
        let mut new = Vec::new();
        let mut left: Vec<&Signed> = signed.into_iter().collect();
        let mut outdated = false;
        loop {
            let before = left.len();
            left.retain(|signed| match self.keep(signed, &mut outdated) {
                Ok(Applied::Known) => false,
                Ok(_) => {
                    new.push(*signed);
                    false
                }
                Err(NotMerged::NotAdmitted) => true,
                // It comes again with what is missing before it, or is none of this cluster.
                Err(_) => false,
            });
            if left.len() == before || left.is_empty() {
                self.judge_members(outdated);
                if new.iter().any(|signed| self.can_end_grants(signed)) {
                    self.grants.shed(&self.authority);
                }
                return new;
            }
        }
    }

    /// Takes an entry. `outdated` is true while the members are not judged by all that was taken.
    fn keep(&mut self, signed: &Signed, outdated: &mut bool) -> Result<Applied, NotMerged> {
        let written = signed.written();
        let operation = written.operation();
        let founds = written.id().0 == self.cluster.0;
        if !founds && operation.cluster != Some(self.cluster) {
            return Err(NotMerged::OtherCluster);
        }
        let issuer = written.issuer();
        // Who is heard stays so, whatever comes: only who is not is judged anew.
        if !founds && !self.members.is_heard(issuer) {
            self.judge_members(std::mem::take(outdated));
            if !self.members.is_heard(issuer) {
                return Err(NotMerged::NotAdmitted);
            }
        }
        let key = (written.place().sequence, written.id());
        if self.grants.is_known(issuer, key) {
            return Ok(Applied::Known);
        }
        let before = self.grants.tip(issuer);
        let applied = self.grants.apply(written)?;
        if applied != Applied::Known {
            let of_issuer = self.entries.entry(issuer).or_default();
            of_issuer.add(key, signed.entry(), self.grants.tip(issuer).next);
            *outdated = *outdated || self.concerns_members(&operation.change, issuer, before);
        }
        Ok(applied)
    }

    fn judge_members(&mut self, outdated: bool) {
        if outdated {
            self.members = ClusterMembers::of(&self.grants, self.cluster);
            self.authority = self.members.authority(self.here);
        }
    }

    /// Whether the members may have changed: by what it says, or by what became certain or uncertain with it.
    fn concerns_members(&self, change: &LogChange, issuer: NodeId, before: LogTip) -> bool {
        let one_more = self.grants.tip(issuer).next == before.next + 1;
        let cut = self
            .members
            .get(issuer)
            .is_some_and(|member| member.cut.is_some());
        match change {
            LogChange::Members(MemberChange::Rest {})
            | LogChange::Grants(_)
            | LogChange::Unknown(_) => !one_more || cut,
            LogChange::Members(_) => true,
        }
    }

    /// Which node this is.
    #[must_use]
    pub fn here(&self) -> NodeId {
        self.here
    }

    /// Which cluster it is.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// What was granted and revoked.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Who is in.
    #[must_use]
    pub fn members(&self) -> &ClusterMembers {
        &self.members
    }

    /// What grants are judged by here.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// True when this entry is known.
    #[must_use]
    pub fn is_known(&self, issuer: NodeId, key: LogKey) -> bool {
        self.grants.is_known(issuer, key)
    }

    /// The bytes of an entry, as they came.
    #[must_use]
    pub fn entry(&self, issuer: NodeId, key: LogKey) -> Option<Arc<[u8]>> {
        let known = self.is_known(issuer, key);
        known.then(|| self.entries.get(&issuer)?.reader().read(key))?
    }

    /// The bytes of all entries, as they came, log by log.
    pub fn entries(&self) -> impl Iterator<Item = (NodeId, LogKey, Arc<[u8]>)> {
        let logs = self.grants.issuers();
        logs.flat_map(move |issuer| {
            let entries = self.entries_from(issuer, 0);
            entries.map(move |(key, entry)| (issuer, key, entry))
        })
    }

    /// Those of one log, from this place on.
    pub fn entries_from(
        &self,
        issuer: NodeId,
        sequence: u64,
    ) -> impl Iterator<Item = (LogKey, Arc<[u8]>)> {
        let mut reader = self.entries.get(&issuer).map(EntryArchive::reader);
        let keys = self.grants.keys(issuer, sequence);
        keys.filter_map(move |key| Some((key, reader.as_mut()?.read(key)?)))
    }

    /// How many entries are known.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.values().map(EntryArchive::count).sum()
    }

    /// How many bytes all entries have, as they came.
    #[must_use]
    pub fn entry_bytes(&self) -> u64 {
        self.entries.values().map(EntryArchive::entry_bytes).sum()
    }

    /// How many bytes of memory all of it takes, nearly.
    #[must_use]
    pub fn memory(&self) -> usize {
        let entries = self.entries.values().map(EntryArchive::memory);
        self.grants.memory() + entries.sum::<usize>()
    }

    /// The grant of this name, whether it counts or not; one of them where a forked log has two.
    #[must_use]
    pub fn find_grant(&self, id: GrantId) -> Option<Granted> {
        let whole = self.grants.named(id).cloned();
        whole.or_else(|| self.restore(self.grants.shed_key(id)?))
    }

    /// Every grant of a subject, whether it counts or not.
    #[must_use]
    pub fn grants_for(&self, subject: &Subject) -> Vec<Granted> {
        let whole = self.grants.of(subject).cloned();
        whole.chain(self.shed_grants(Some(subject))).collect()
    }

    /// Every grant of everyone, whether it counts or not.
    #[must_use]
    pub fn all_grants(&self) -> Vec<Granted> {
        let whole = self.grants.all().cloned();
        whole.chain(self.shed_grants(None)).collect()
    }

    /// Those that were shed, log by log: what lies together is read together.
    fn shed_grants(&self, of: Option<&Subject>) -> Vec<Granted> {
        let mut keys: Vec<GrantKey> = self.grants.shed_keys(of).collect();
        keys.sort_unstable_by_key(|(_, place, _)| *place);
        let logs = keys.chunk_by(|(_, one, _), (_, next, _)| one.issuer == next.issuer);
        let granted = logs.flat_map(|keys| {
            let log = keys.first().and_then(|key| self.entries.get(&key.1.issuer));
            let mut reader = log.map(EntryArchive::reader);
            let read = keys.iter().filter_map(move |(_, place, id)| {
                let entry = reader.as_mut()?.read((place.sequence, *id))?;
                parse_grant(&entry)
            });
            read.collect::<Vec<_>>()
        });
        granted.collect()
    }

    fn restore(&self, (_, place, id): GrantKey) -> Option<Granted> {
        parse_grant(&self.entry(place.issuer, (place.sequence, id))?)
    }

    /// Whether a grant may have ended for good with this entry.
    fn can_end_grants(&self, signed: &Signed) -> bool {
        match &signed.written().operation().change {
            LogChange::Grants(change) => self.grants.can_end_grants(change),
            // Somebody more may take away.
            LogChange::Members(_) => true,
            LogChange::Unknown(_) => false,
        }
    }

    /// The heads of what is known here, without what is not on disk.
    #[must_use]
    pub fn heads(&self, unstored: &Unstored) -> LogHeads {
        let logs = self.grants.issuers();
        let heads = logs.map(|issuer| (issuer, self.head(issuer, unstored.get(&issuer))));
        heads.filter(|(_, head)| *head != LogHead::EMPTY).collect()
    }

    /// The head of one log.
    #[must_use]
    pub fn head(&self, issuer: NodeId, unstored: Option<&BTreeSet<LogKey>>) -> LogHead {
        let first = unstored.and_then(|unstored| unstored.first());
        let certain = self.grants.tip(issuer);
        let tip = match first {
            Some((sequence, _)) if *sequence < certain.next => self
                .grants
                .tip_at(issuer, *sequence)
                .unwrap_or(LogTip::EMPTY),
            Some(_) | None => certain,
        };
        let stored = |key: &LogKey| unstored.is_none_or(|unstored| !unstored.contains(key));
        let behind = self.grants.keys(issuer, tip.next).filter(stored);
        let behind = digest(behind);
        LogHead { tip, behind }
    }
}

/// The grant of an entry that was taken.
fn parse_grant(entry: &[u8]) -> Option<Granted> {
    let signed = Signed::from_bytes(entry).ok()?;
    Granted::from_operation(signed.written())
}

/// None of no operations.
fn digest(keys: impl Iterator<Item = LogKey>) -> Option<BehindDigest> {
    let mut keys = keys.peekable();
    keys.peek()?;
    let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 behind the tip");
    for (sequence, id) in keys {
        hasher.update(&sequence.to_le_bytes());
        hasher.update(&id.0);
    }
    Some(BehindDigest(hasher.finalize().into()))
}
