//! The logs of all admins of one cluster at one node: the grants and members derived from them, and the unchanged
//! entries for other nodes.

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
    /// The hash of the sequence numbers and ids of operations, in order.
    BehindDigest, 32
}

/// Bytes of entries from which a node signs no more grants. Half of the file: revokes and denials of all admins have
/// the other half.
pub(crate) const GRANTS_BYTES_MAX: u64 = JOURNAL_MAX / 2;

/// The state of one log at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogHead {
    /// The end of the certain part.
    pub tip: LogTip,
    /// The uncertain operations: after a gap, or on the branches of a fork.
    pub behind: Option<BehindDigest>,
}

impl LogHead {
    /// The head of an unknown log.
    pub(crate) const EMPTY: Self = Self {
        tip: LogTip::EMPTY,
        behind: None,
    };
}

/// The heads of all logs that a node has entries of.
pub type LogHeads = BTreeMap<NodeId, LogHead>;

/// Entries that are not on disk yet.
pub type UnstoredEntries = BTreeMap<NodeId, BTreeSet<LogKey>>;

/// Why an entry was not merged. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MergeError {
    /// It names another cluster, or none.
    #[error("it belongs to another cluster")]
    ForeignCluster,
    /// As far as is known here, no possible issuer has admitted its issuer.
    #[error("its issuer is not known to be an admin")]
    IssuerNotAdmitted,
    /// The log rejects it.
    #[error(transparent)]
    Rejected(#[from] ApplyError),
}

/// The logs of a cluster, as known at one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLogs {
    local_node: NodeId,
    cluster: ClusterId,
    grants: Grants,
    members: ClusterMembers,
    authority: Authority,
    entries: BTreeMap<NodeId, EntryArchive>,
}

/// The state follows from the set of known operations.
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
    /// Creates empty logs.
    #[must_use]
    pub(crate) fn new(local_node: NodeId, cluster: ClusterId) -> Self {
        Self {
            local_node,
            cluster,
            grants: Grants::default(),
            members: ClusterMembers::empty(),
            authority: Authority::without_issuers(local_node),
            entries: BTreeMap::new(),
        }
    }

    /// Merges an entry whose signature was verified. In any order, any number of times; an entry whose issuer is not
    /// admitted yet must be merged again later.
    ///
    /// # Errors
    /// [`MergeError`]; then nothing has changed.
    pub(crate) fn merge(&mut self, signed: &SignedOperation) -> Result<ApplyOutcome, MergeError> {
        let mut outdated = false;
        let merged = self.insert(signed, &mut outdated);
        self.update_members(outdated);
        let is_new = matches!(merged, Ok(outcome) if outcome != ApplyOutcome::Duplicate);
        if is_new && self.can_expire_grants(signed) {
            self.grants.prune(&self.authority);
        }
        merged
    }

    /// Merges all entries that can be merged, in whatever order; returns the new ones.
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
                // It is sent again after the missing entries, or belongs to another cluster.
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

    /// Inserts an entry. `outdated` is true while the members do not reflect all inserted entries.
    fn insert(
        &mut self,
        signed: &SignedOperation,
        outdated: &mut bool,
    ) -> Result<ApplyOutcome, MergeError> {
        let encoded = signed.encoded();
        let operation = encoded.operation();
        let is_founding = encoded.id().0 == self.cluster.0;
        if !is_founding && operation.cluster != Some(self.cluster) {
            return Err(MergeError::ForeignCluster);
        }
        let issuer = encoded.issuer();
        // A possible issuer remains one: the members are updated only for others.
        if !is_founding && !self.members.can_possibly_issue(issuer) {
            self.update_members(std::mem::take(outdated));
            if !self.members.can_possibly_issue(issuer) {
                return Err(MergeError::IssuerNotAdmitted);
            }
        }
        let key = (encoded.position().sequence, encoded.id());
        if self.grants.is_known(issuer, key) {
            return Ok(ApplyOutcome::Duplicate);
        }
        let before = self.grants.tip(issuer);
        let outcome = self.grants.apply(encoded)?;
        if outcome != ApplyOutcome::Duplicate {
            let archive = self.entries.entry(issuer).or_default();
            archive.insert(key, signed.entry_bytes(), self.grants.tip(issuer).next);
            *outdated = *outdated || self.affects_members(&operation.change, issuer, before);
        }
        Ok(outcome)
    }

    fn update_members(&mut self, outdated: bool) {
        if outdated {
            self.members = ClusterMembers::from_grants(&self.grants, self.cluster);
            self.authority = self.members.authority(self.local_node);
        }
    }

    /// Whether an entry may change the members: by its content, or because it makes others certain or uncertain.
    fn affects_members(&self, change: &LogChange, issuer: NodeId, before: LogTip) -> bool {
        let has_grown_by_one = self.grants.tip(issuer).next == before.next + 1;
        let is_cut = self
            .members
            .get(issuer)
            .is_some_and(|member| member.cut_at.is_some());
        match change {
            LogChange::Members(MemberChange::Rest {})
            | LogChange::Grants(_)
            | LogChange::Unknown(_) => !has_grown_by_one || is_cut,
            LogChange::Members(_) => true,
        }
    }

    /// The local node.
    #[must_use]
    pub fn local_node(&self) -> NodeId {
        self.local_node
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The grants and revokes of all logs.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// The members, derived from the logs.
    #[must_use]
    pub fn members(&self) -> &ClusterMembers {
        &self.members
    }

    /// The authority by which grants are evaluated here.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// True if the entry is known.
    #[must_use]
    pub fn is_known(&self, issuer: NodeId, key: LogKey) -> bool {
        self.grants.is_known(issuer, key)
    }

    /// The unchanged bytes of an entry.
    #[must_use]
    pub fn entry(&self, issuer: NodeId, key: LogKey) -> Option<Arc<[u8]>> {
        self.is_known(issuer, key)
            .then(|| self.entries.get(&issuer)?.reader().read(key))?
    }

    /// The unchanged bytes of all entries, log by log.
    pub fn entries(&self) -> impl Iterator<Item = (NodeId, LogKey, Arc<[u8]>)> {
        let logs = self.grants.issuers();
        logs.flat_map(move |issuer| {
            let entries = self.entries_from(issuer, 0);
            entries.map(move |(key, entry)| (issuer, key, entry))
        })
    }

    /// The entries of one log from this sequence number on.
    pub fn entries_from(
        &self,
        issuer: NodeId,
        sequence: u64,
    ) -> impl Iterator<Item = (LogKey, Arc<[u8]>)> {
        let mut reader = self.entries.get(&issuer).map(EntryArchive::reader);
        let keys = self.grants.keys_from(issuer, sequence);
        keys.filter_map(move |key| Some((key, reader.as_mut()?.read(key)?)))
    }

    /// The number of entries.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.values().map(EntryArchive::count).sum()
    }

    /// The bytes of all entries, uncompressed.
    #[must_use]
    pub fn entry_bytes(&self) -> u64 {
        self.entries.values().map(EntryArchive::entry_bytes).sum()
    }

    /// The approximate bytes of memory used.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let entries = self.entries.values().map(EntryArchive::memory_bytes);
        self.grants.memory_bytes() + entries.sum::<usize>()
    }

    /// The grant with this id, in force or not; an arbitrary one if a forked log has two.
    #[must_use]
    pub fn find_grant(&self, id: GrantId) -> Option<LoggedGrant> {
        let retained = self.grants.get(id).cloned();
        retained.or_else(|| self.restore_grant(self.grants.pruned_key(id)?))
    }

    /// All grants of a subject, in force or not.
    #[must_use]
    pub(crate) fn grants_for(&self, subject: &Subject) -> Vec<LoggedGrant> {
        let retained = self.grants.for_subject(subject).cloned();
        retained.chain(self.pruned_grants(Some(subject))).collect()
    }

    /// All grants, in force or not.
    #[must_use]
    pub fn all_grants(&self) -> Vec<LoggedGrant> {
        let retained = self.grants.iter().cloned();
        retained.chain(self.pruned_grants(None)).collect()
    }

    /// The pruned grants, read log by log, so that each block is decompressed once.
    fn pruned_grants(&self, subject: Option<&Subject>) -> Vec<LoggedGrant> {
        let mut keys: Vec<GrantKey> = self.grants.pruned_keys(subject).collect();
        keys.sort_unstable_by_key(|(_, position, _)| *position);
        let logs = keys.chunk_by(|(_, a, _), (_, b, _)| a.issuer == b.issuer);
        let granted = logs.flat_map(|keys| {
            let log = keys.first().and_then(|key| self.entries.get(&key.1.issuer));
            let mut reader = log.map(EntryArchive::reader);
            let read = keys.iter().filter_map(move |(_, position, id)| {
                let entry = reader.as_mut()?.read((position.sequence, *id))?;
                parse_grant(&entry)
            });
            read.collect::<Vec<_>>()
        });
        granted.collect()
    }

    fn restore_grant(&self, (_, position, id): GrantKey) -> Option<LoggedGrant> {
        parse_grant(&self.entry(position.issuer, (position.sequence, id))?)
    }

    /// Whether this entry may end grants for good.
    fn can_expire_grants(&self, signed: &SignedOperation) -> bool {
        match &signed.encoded().operation().change {
            LogChange::Grants(change) => self.grants.can_end_grants(change),
            // It may add a possible issuer.
            LogChange::Members(_) => true,
            LogChange::Unknown(_) => false,
        }
    }

    /// The heads of all entries except the unstored ones.
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

fn parse_grant(entry: &[u8]) -> Option<LoggedGrant> {
    let signed = SignedOperation::from_bytes(entry).ok()?;
    LoggedGrant::from_operation(signed.encoded())
}

/// None if there are no operations.
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
