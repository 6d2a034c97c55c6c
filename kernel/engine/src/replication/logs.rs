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
    ApplyError, ApplyOutcome, Authority, ClusterId, GrantId, GrantKey, Grants, LogChange, LogKey,
    LogTip, LoggedGrant, MemberChange, SignedOperation, Subject,
};
use crate::store::journal::JOURNAL_MAX;

hex_id! {
    /// The hash of the places and ids of operations, in their order.
    BehindDigest, 32
}

/// Bytes of entries from which on a node writes nothing that gives. It is half of the file they are in: what takes
/// away has the other half, of all admins together.
pub(crate) const GRANTS_BYTES_MAX: u64 = JOURNAL_MAX / 2;

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
    pub(crate) const EMPTY: Self = Self {
        tip: LogTip::EMPTY,
        behind: None,
    };
}

/// The heads of all logs that a node has something of.
pub type LogHeads = BTreeMap<NodeId, LogHead>;

/// Entries that are not on disk yet.
pub type UnstoredEntries = BTreeMap<NodeId, BTreeSet<LogKey>>;

/// Why an entry was not taken. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MergeError {
    /// Of another cluster, or of none.
    #[error("it belongs to another cluster")]
    ForeignCluster,
    /// Nobody who may has admitted its issuer as far as is known here.
    #[error("its issuer is not known to be an admin")]
    IssuerNotAdmitted,
    /// The log refuses it.
    #[error(transparent)]
    Rejected(#[from] ApplyError),
}

/// All that a node knows of its cluster's logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLogs {
    local_node: NodeId,
    cluster: ClusterId,
    grants: Grants,
    members: ClusterMembers,
    authority: Authority,
    entries: BTreeMap<NodeId, EntryArchive>,
}

/// All of it follows from which operations are known.
impl Hash for ClusterLogs {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.local_node, self.cluster).hash(state);
        for (issuer, entries) in &self.entries {
            issuer.hash(state);
            state.write_usize(entries.count());
            let keys = self.grants.keys_from(*issuer, 0);
            keys.for_each(|key| key.hash(state));
        }
    }
}

impl ClusterLogs {
    /// Nothing is known yet but which cluster it is.
    #[must_use]
    pub fn new(local_node: NodeId, cluster: ClusterId) -> Self {
        Self {
            local_node,
            cluster,
            grants: Grants::default(),
            members: ClusterMembers::empty(),
            authority: Authority::without_issuers(local_node),
            entries: BTreeMap::new(),
        }
    }

    /// Takes an entry whose signature was verified. In any order, any number of times; one whose issuer's
    /// admission is not known yet must be offered again.
    ///
    /// # Errors
    /// [`MergeError`]; then nothing has changed.
    pub(crate) fn merge(&mut self, signed: &SignedOperation) -> Result<ApplyOutcome, MergeError> {
        let mut outdated = false;
        let taken = self.insert(signed, &mut outdated);
        self.update_members(outdated);
        let is_new = matches!(taken, Ok(applied) if applied != ApplyOutcome::Duplicate);
        if is_new && self.can_expire_grants(signed) {
            self.grants.prune(&self.authority);
        }
        taken
    }

    /// Takes all that can be taken, in whatever order they are; returns those that were new.
    pub(crate) fn merge_all<'a>(
        &mut self,
        signed: impl IntoIterator<Item = &'a SignedOperation>,
    ) -> Vec<&'a SignedOperation> {
        let mut new = Vec::new();
        let mut left: Vec<&SignedOperation> = signed.into_iter().collect();
        let mut outdated = false;
        loop {
            let before = left.len();
            left.retain(|signed| match self.insert(signed, &mut outdated) {
                Ok(ApplyOutcome::Duplicate) => false,
                Ok(_) => {
                    new.push(*signed);
                    false
                }
                Err(MergeError::IssuerNotAdmitted) => true,
                // It comes again with what is missing before it, or is none of this cluster.
                Err(_) => false,
            });
            if left.len() == before || left.is_empty() {
                self.update_members(outdated);
                if new.iter().any(|signed| self.can_expire_grants(signed)) {
                    self.grants.prune(&self.authority);
                }
                return new;
            }
        }
    }

    /// Takes an entry. `outdated` is true while the members are not judged by all that was taken.
    fn insert(
        &mut self,
        signed: &SignedOperation,
        outdated: &mut bool,
    ) -> Result<ApplyOutcome, MergeError> {
        let written = signed.encoded();
        let operation = written.operation();
        let founds = written.id().0 == self.cluster.0;
        if !founds && operation.cluster != Some(self.cluster) {
            return Err(MergeError::ForeignCluster);
        }
        let issuer = written.issuer();
        // Who is heard stays so, whatever comes: only who is not is judged anew.
        if !founds && !self.members.can_possibly_issue(issuer) {
            self.update_members(std::mem::take(outdated));
            if !self.members.can_possibly_issue(issuer) {
                return Err(MergeError::IssuerNotAdmitted);
            }
        }
        let key = (written.position().sequence, written.id());
        if self.grants.is_known(issuer, key) {
            return Ok(ApplyOutcome::Duplicate);
        }
        let before = self.grants.tip(issuer);
        let applied = self.grants.apply(written)?;
        if applied != ApplyOutcome::Duplicate {
            let of_issuer = self.entries.entry(issuer).or_default();
            of_issuer.insert(key, signed.entry_bytes(), self.grants.tip(issuer).next);
            *outdated = *outdated || self.affects_members(&operation.change, issuer, before);
        }
        Ok(applied)
    }

    fn update_members(&mut self, outdated: bool) {
        if outdated {
            self.members = ClusterMembers::from_grants(&self.grants, self.cluster);
            self.authority = self.members.authority(self.local_node);
        }
    }

    /// Whether the members may have changed: by what it says, or by what became certain or uncertain with it.
    fn affects_members(&self, change: &LogChange, issuer: NodeId, before: LogTip) -> bool {
        let one_more = self.grants.tip(issuer).next == before.next + 1;
        let cut = self
            .members
            .get(issuer)
            .is_some_and(|member| member.cut_at.is_some());
        match change {
            LogChange::Members(MemberChange::Rest {})
            | LogChange::Grants(_)
            | LogChange::Unknown(_) => !one_more || cut,
            LogChange::Members(_) => true,
        }
    }

    /// Which node this is.
    #[must_use]
    pub fn local_node(&self) -> NodeId {
        self.local_node
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
        let keys = self.grants.keys_from(issuer, sequence);
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
    pub fn memory_bytes(&self) -> usize {
        let entries = self.entries.values().map(EntryArchive::memory_bytes);
        self.grants.memory_bytes() + entries.sum::<usize>()
    }

    /// The grant of this name, whether it counts or not; one of them where a forked log has two.
    #[must_use]
    pub fn find_grant(&self, id: GrantId) -> Option<LoggedGrant> {
        let whole = self.grants.get(id).cloned();
        whole.or_else(|| self.restore_grant(self.grants.pruned_key(id)?))
    }

    /// Every grant of a subject, whether it counts or not.
    #[must_use]
    pub(crate) fn grants_for(&self, subject: &Subject) -> Vec<LoggedGrant> {
        let whole = self.grants.for_subject(subject).cloned();
        whole.chain(self.pruned_grants(Some(subject))).collect()
    }

    /// Every grant of everyone, whether it counts or not.
    #[must_use]
    pub fn all_grants(&self) -> Vec<LoggedGrant> {
        let whole = self.grants.iter().cloned();
        whole.chain(self.pruned_grants(None)).collect()
    }

    /// Those that were shed, log by log: what lies together is read together.
    fn pruned_grants(&self, of: Option<&Subject>) -> Vec<LoggedGrant> {
        let mut keys: Vec<GrantKey> = self.grants.pruned_keys(of).collect();
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

    fn restore_grant(&self, (_, place, id): GrantKey) -> Option<LoggedGrant> {
        parse_grant(&self.entry(place.issuer, (place.sequence, id))?)
    }

    /// Whether a grant may have ended for good with this entry.
    fn can_expire_grants(&self, signed: &SignedOperation) -> bool {
        match &signed.encoded().operation().change {
            LogChange::Grants(change) => self.grants.can_end_grants(change),
            // Somebody more may take away.
            LogChange::Members(_) => true,
            LogChange::Unknown(_) => false,
        }
    }

    /// The heads of what is known here, without what is not on disk.
    #[must_use]
    pub fn heads(&self, unstored: &UnstoredEntries) -> LogHeads {
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
        let behind = self.grants.keys_from(issuer, tip.next).filter(stored);
        let behind = uncertain_digest(behind);
        LogHead { tip, behind }
    }
}

/// The grant of an entry that was taken.
fn parse_grant(entry: &[u8]) -> Option<LoggedGrant> {
    let signed = SignedOperation::from_bytes(entry).ok()?;
    LoggedGrant::from_operation(signed.encoded())
}

/// None of no operations.
fn uncertain_digest(keys: impl Iterator<Item = LogKey>) -> Option<BehindDigest> {
    let mut keys = keys.peekable();
    keys.peek()?;
    let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 behind the tip");
    for (sequence, id) in keys {
        hasher.update(&sequence.to_le_bytes());
        hasher.update(&id.0);
    }
    Some(BehindDigest(hasher.finalize().into()))
}
