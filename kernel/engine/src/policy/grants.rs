//! Grants and revocations as signed operations, and the state that any number of their logs add up to.
//!
//! Each issuer appends to a log of its own. The state is the union of all logs: a grant is in force if its issuer was
//! authorised, it has not expired, and no authorised node has ever revoked it. So the order between issuers does not
//! matter, repetition is harmless, and no clock decides.
//!
//! Two kinds of operations have different conditions. One that takes access away (a revocation of something allowed,
//! a denial) counts as soon as it is known, if its issuer may be authorised. One that gives access (something
//! allowed, the end of a denial) counts if its issuer is certainly authorised, at a position of its log that is
//! certain.

mod compiled_condition;
mod conflicts;
mod encoded_operation;
mod keys;
mod log;
mod memory;
mod operation;
mod pruned_grants;
mod rekey;
mod signed_operation;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::{AgentId, NodeAgent, NodeId};
use mgp_protocol::mgp::access::Permission;

use self::compiled_condition::CompiledCondition;
use self::conflicts::Withdrawals;
pub use self::encoded_operation::EncodedOperation;
pub(crate) use self::encoded_operation::{OPERATION_MAX, OperationDecodeError};
pub(crate) use self::keys::GrantKey;
use self::keys::{OperationKey, grant_keys, revoke_keys};
#[cfg(test)]
pub(crate) use self::log::BUFFERED_MAX;
pub use self::log::LogKey;
use self::log::{IssuerLog, LogInsertion};
pub(crate) use self::operation::{BadOperation, IDS_MAX, Specificity};
pub use self::operation::{
    CausalContext, ClusterId, Grant, GrantChange, GrantId, GrantResource, LogChange, LogPosition,
    LogTip, MemberChange, MemberRole, Operation, OperationId, Revoke, Subject,
};
#[cfg(test)]
pub(crate) use self::operation::{NAME_MAX, TEXT_MAX};
use self::pruned_grants::PrunedGrants;
pub use self::rekey::rekey;
pub use self::signed_operation::SignedOperation;
use crate::node_key::PublicKey;

/// Most issuers whose logs are stored: the admin nodes of a cluster, each admitted by a person. Operations of further
/// issuers are rejected.
pub const ISSUERS_MAX: usize = 256;
/// Sequence numbers of an issuer that may carry grants; above, only revocations are accepted, so that a full log can
/// still revoke. A fixed number, so that every node draws the line at the same operation.
pub(crate) const GRANTS_END: u64 = 1_000_000;
/// All sequence numbers of an issuer; after that it needs a new key.
pub(crate) const SEQUENCE_END: u64 = GRANTS_END + (1 << 16);

/// Which nodes may issue, and which part of each log may grant, as known at one node. It is determined by membership.
///
/// A listed issuer can revoke with all of its log; what it allows counts only below its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    local_node: NodeId,
    ends: BTreeMap<NodeId, u64>,
}

impl Authority {
    /// No issuer is authorised at this node: nothing is granted or revoked.
    #[must_use]
    pub fn without_issuers(local_node: NodeId) -> Self {
        let ends = BTreeMap::new();
        Self { local_node, ends }
    }

    /// Authorises a node's own journal, for its own servers.
    #[must_use]
    pub fn with_local_issuer(here: NodeId) -> Self {
        Self::without_issuers(here).with_issuer(here)
    }

    /// The node that evaluates the grants.
    #[must_use]
    pub(crate) fn local_node(&self) -> NodeId {
        self.local_node
    }

    /// Authorises this issuer, with its whole log.
    #[must_use]
    pub(crate) fn with_issuer(self, issuer: NodeId) -> Self {
        self.with_issuer_until(issuer, u64::MAX)
    }

    /// Authorises this issuer to grant with its operations below `end`, and to revoke with all of them.
    #[must_use]
    pub(crate) fn with_issuer_until(mut self, issuer: NodeId, end: u64) -> Self {
        self.ends.insert(issuer, end);
        self
    }

    /// True when revocations of this issuer count.
    #[must_use]
    pub(crate) fn can_revoke(&self, issuer: NodeId) -> bool {
        self.ends.contains_key(&issuer)
    }

    /// True when grants of the operation at this position may count.
    #[must_use]
    pub(crate) fn can_grant(&self, place: LogPosition) -> bool {
        let end = self.ends.get(&place.issuer);
        end.is_some_and(|end| place.sequence < *end)
    }
}

/// The result of applying an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// It was appended to the certain part of its issuer's log, together with buffered successors.
    Appended,
    /// Earlier operations are missing: its revocations count already, its grants wait for them.
    Buffered,
    /// It was known already.
    Duplicate,
    /// Its issuer signed two operations for one position, this one or an earlier one. What it gives after the fork
    /// does not count, nor does anything it allowed; all its revocations do.
    Forked,
}

/// Why an operation was rejected. The state is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// It is malformed.
    #[error(transparent)]
    Invalid(#[from] BadOperation),
    /// Too many operations wait for earlier ones already; fetch the log from `from` on.
    #[error("operations from {from} on are missing")]
    Gap {
        /// The first missing one.
        from: u64,
    },
    /// The log is forked, and too much of its branches is stored already.
    #[error("too much of this issuer's log lies on branches; revoke the node")]
    TooManyBranches,
    /// There are [`ISSUERS_MAX`] logs already.
    #[error("there are logs of {ISSUERS_MAX} issuers already; revoke nodes that are gone")]
    TooManyIssuers,
}

/// A grant and its position in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedGrant {
    /// The grant.
    pub grant: Grant,
    /// Its position.
    pub position: LogPosition,
    /// The person or agent that requested it, as known to the issuer.
    pub(crate) author: String,
    /// When the issuer wrote it by its own clock, in milliseconds since 1970; for display only.
    pub(crate) issued_at_ms: u64,
    /// What the issuer knew of other logs.
    pub(crate) context: CausalContext,
    /// Its condition, compiled when it is first used.
    condition: CompiledCondition,
}

/// Whether a grant is in force, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantStatus {
    /// It is in force.
    InForce,
    /// It expired at this time, in milliseconds since 1970.
    Expired(u64),
    /// It allows until this time, which has passed by the clock of another node that may revoke it.
    ExpiredEarly(u64),
    /// It was revoked by the operation named here, and perhaps by others.
    Revoked(LogPosition),
    /// Its issuer did not know of this revocation of the same, nor the issuer of the revocation of this grant: only a
    /// grant made with knowledge of it counts.
    InConflict {
        /// The revocation; the first one of several.
        revoke: LogPosition,
        /// When its issuer wrote it by its own clock, in milliseconds since 1970; for display only.
        at_ms: u64,
    },
    /// Its issuer is not authorised, or not at that position.
    NotAuthorised,
    /// Its issuer's log is forked.
    Quarantined,
    /// Operations before it are missing.
    Pending,
    /// Its issuer wrote something unknown to this build that may revoke it.
    UnknownOperation,
}

/// A revocation of all grants of a subject up to a position in each log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BulkRevoke {
    position: LogPosition,
    until: BTreeMap<NodeId, u64>,
}

/// A change of the members, as logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedMemberChange {
    /// The change.
    pub change: MemberChange,
    /// The person, agent or node that requested it, as known to the issuer.
    pub(crate) author: String,
    /// When the issuer wrote it by its own clock, in milliseconds since 1970; for display only.
    pub(crate) issued_at_ms: u64,
    /// The node that it admits, or that continues under this key.
    pub(crate) admitted_node: Option<NodeId>,
}

/// The operation that contains a change of the members.
type MemberKey = (LogPosition, OperationId);

/// The union of all logs. Lookups of one subject are fast; the size is bounded by [`ISSUERS_MAX`] times
/// [`SEQUENCE_END`] operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    logs: BTreeMap<NodeId, IssuerLog>,
    granted: BTreeMap<Subject, BTreeMap<GrantKey, Box<LoggedGrant>>>,
    /// The subject of each grant.
    subjects: BTreeSet<(GrantId, Subject)>,
    pruned: PrunedGrants,
    revoked_ids: BTreeSet<(GrantId, OperationKey)>,
    withdrawals: Withdrawals,
    bulk_revokes: BTreeMap<Subject, BTreeSet<BulkRevoke>>,
    members: BTreeMap<MemberKey, LoggedMemberChange>,
    /// The position where each issuer last announced that it stops.
    rest_positions: BTreeMap<NodeId, u64>,
    /// Issuers of operations of an unknown kind.
    unknown_issuers: BTreeSet<NodeId>,
}

impl Grants {
    /// Applies an operation with a verified signature, in any order and any number of times.
    ///
    /// # Errors
    /// [`ApplyError`]; then nothing has changed.
    pub fn apply(&mut self, operation: &EncodedOperation) -> Result<ApplyOutcome, ApplyError> {
        operation.operation().check()?;
        let issuer = operation.issuer();
        if !self.logs.contains_key(&issuer) && self.logs.len() >= ISSUERS_MAX {
            return Err(ApplyError::TooManyIssuers);
        }
        let mut new = IssuerLog::default();
        let log = self.logs.get_mut(&issuer).unwrap_or(&mut new);
        let taken = log.insert(operation)?;
        let applied = match taken {
            LogInsertion::Duplicate => ApplyOutcome::Duplicate,
            LogInsertion::New if log.is_forked() => ApplyOutcome::Forked,
            LogInsertion::New if operation.position().sequence < log.certain_len() => {
                ApplyOutcome::Appended
            }
            LogInsertion::New => ApplyOutcome::Buffered,
        };
        self.logs.entry(issuer).or_insert(new);
        if taken == LogInsertion::New {
            self.index_operation(operation);
        }
        Ok(applied)
    }

    fn index_operation(&mut self, operation: &EncodedOperation) {
        let (place, told) = (operation.position(), operation.operation());
        match &told.change {
            LogChange::Grants(change) => self.index_change(operation, change),
            LogChange::Members(change) => {
                let key = (place, operation.id());
                let told = LoggedMemberChange {
                    change: change.clone(),
                    author: told.author.clone(),
                    issued_at_ms: told.told_at_ms,
                    admitted_node: change.admitted_key().map(PublicKey::node_id),
                };
                self.members.insert(key, told);
                if *change == (MemberChange::Rest {}) {
                    let last = self.rest_positions.entry(place.issuer).or_default();
                    *last = place.sequence.max(*last);
                }
            }
            LogChange::Unknown(_) => {
                self.unknown_issuers.insert(place.issuer);
            }
        }
    }

    fn index_change(&mut self, operation: &EncodedOperation, change: &GrantChange) {
        let place = operation.position();
        for id in change.revoked_ids() {
            let key = (place, operation.id());
            self.revoked_ids.insert((*id, key));
        }
        self.index_withdrawal(operation, change);
        match change {
            GrantChange::Grant(grant) => self.insert_grant(operation, grant),
            GrantChange::Revoke(Revoke::UpTo { subject, until }) => {
                let sweep = BulkRevoke {
                    position: place,
                    until: until.clone(),
                };
                self.bulk_revokes
                    .entry(subject.clone())
                    .or_default()
                    .insert(sweep);
            }
            GrantChange::Revoke(Revoke::Ids(_)) => {}
        }
    }

    fn insert_grant(&mut self, operation: &EncodedOperation, grant: &Grant) {
        let of_subject = self.granted.entry(grant.subject.clone()).or_default();
        let granted = LoggedGrant::new(operation.operation(), grant);
        let key = (grant.id, granted.position, operation.id());
        of_subject.insert(key, Box::new(granted));
        self.subjects.insert((grant.id, grant.subject.clone()));
    }

    /// All grants of a subject that are not pruned, in force or not.
    pub(crate) fn for_subject<'a>(
        &'a self,
        subject: &Subject,
    ) -> impl Iterator<Item = &'a LoggedGrant> + use<'a> {
        self.granted
            .get(subject)
            .into_iter()
            .flat_map(BTreeMap::values)
            .map(Box::as_ref)
    }

    /// All grants of subjects that overlap this one and that are not pruned, in force or not.
    pub(crate) fn overlapping_grants(
        &self,
        subject: &Subject,
    ) -> impl Iterator<Item = &LoggedGrant> {
        let all = conflicts::overlapping_subjects(&self.granted, subject);
        all.flat_map(|(_, of_subject)| of_subject.values().map(Box::as_ref))
    }

    /// All grants that apply to this agent, by its name or by a pattern, and that are not pruned, in force or not.
    pub(crate) fn for_agent<'a>(
        &'a self,
        agent: &NodeAgent,
    ) -> impl Iterator<Item = &'a LoggedGrant> + use<'a> {
        Subject::subjects_for(agent)
            .into_iter()
            .flat_map(|subject| self.for_subject(&subject))
    }

    /// All grants of all subjects that are not pruned, in force or not.
    pub fn iter(&self) -> impl Iterator<Item = &LoggedGrant> {
        let all = self.granted.values().flat_map(BTreeMap::values);
        all.map(Box::as_ref)
    }

    /// The grant with this id, if it is not pruned, in force or not; one of them where a forked log has two.
    #[must_use]
    pub fn get(&self, id: GrantId) -> Option<&LoggedGrant> {
        self.with_id(id).next()
    }

    /// All grants with this id that are not pruned: a forked log has several.
    fn with_id(&self, id: GrantId) -> impl Iterator<Item = &LoggedGrant> {
        let first = Subject::Agent(NodeId([0; 32]).agent(AgentId::new("")));
        let subjects = self.subjects.range((id, first)..);
        let subjects = subjects.take_while(move |(of, _)| *of == id);
        subjects.flat_map(move |(_, subject)| {
            let of_subject = self.granted.get(subject).into_iter();
            let found = of_subject.flat_map(move |all| all.range(grant_keys(id)));
            found.map(|(_, granted)| &**granted)
        })
    }

    /// The agents that a change concerns.
    #[must_use]
    pub fn subjects(&self, change: &GrantChange) -> BTreeSet<Subject> {
        let told = match change {
            GrantChange::Grant(grant) => Some(&grant.subject),
            GrantChange::Revoke(Revoke::UpTo { subject, .. }) => Some(subject),
            GrantChange::Revoke(Revoke::Ids(_)) => None,
        };
        let revoked = change.revoked_ids().iter().flat_map(|id| self.scopes(*id));
        let revoked = revoked.map(|(subject, ..)| subject);
        revoked.chain(told).cloned().collect()
    }

    /// Whether a grant is in force, and why not. `now_ms` is in milliseconds since 1970.
    #[must_use]
    pub(crate) fn status(
        &self,
        granted: &LoggedGrant,
        authority: &Authority,
        now_ms: u64,
    ) -> GrantStatus {
        self.status_as(granted, granted.grant.permission, authority, now_ms)
    }

    /// Whether a grant closes what it does not allow, by a condition or by the denials of a group. That takes access away,
    /// so it counts as a denial does: also while it is not certain that its issuer may allow something.
    #[must_use]
    pub(crate) fn is_closing(
        &self,
        granted: &LoggedGrant,
        authority: &Authority,
        now_ms: u64,
    ) -> bool {
        granted.grant.can_close()
            && self.status_as(granted, Permission::Deny, authority, now_ms) == GrantStatus::InForce
    }

    /// The status of what it allows, or of what it denies.
    fn status_as(
        &self,
        granted: &LoggedGrant,
        permission: Permission,
        authority: &Authority,
        now_ms: u64,
    ) -> GrantStatus {
        let place = granted.position;
        let denies = permission == Permission::Deny;
        let may = if denies {
            authority.can_revoke(place.issuer)
        } else {
            authority.can_grant(place)
        };
        if !may {
            return GrantStatus::NotAuthorised;
        }
        if let Some(place) = self.first_revoke(granted, permission, authority) {
            return GrantStatus::Revoked(place);
        }
        match granted.grant.not_after_ms {
            Some(end) if now_ms >= end => return GrantStatus::Expired(end),
            Some(_) | None => {}
        }
        if !denies && let Some(conflict) = self.find_conflict(granted, authority) {
            return conflict;
        }
        match self.log_problem(place) {
            Some(doubt) if !denies => doubt,
            Some(_) | None => GrantStatus::InForce,
        }
    }

    /// Why what the operation at this position gives does not count, whoever its issuer is.
    fn log_problem(&self, place: LogPosition) -> Option<GrantStatus> {
        let log = self.logs.get(&place.issuer)?;
        if log.is_forked() {
            Some(GrantStatus::Quarantined)
        } else if self.unknown_issuers.contains(&place.issuer) {
            Some(GrantStatus::UnknownOperation)
        } else {
            (place.sequence >= log.certain_len()).then_some(GrantStatus::Pending)
        }
    }

    /// The first position where an authorised node revoked the grant. The end of a denial gives access, so it has the
    /// same conditions as a grant that allows.
    fn first_revoke(
        &self,
        granted: &LoggedGrant,
        permission: Permission,
        authority: &Authority,
    ) -> Option<LogPosition> {
        let by_id = self.revoked_ids.range(revoke_keys(granted.grant.id));
        let sweeps = self.bulk_revokes.get(&granted.grant.subject);
        let swept = sweeps.into_iter().flatten().filter(|sweep| {
            let until = sweep.until.get(&granted.position.issuer);
            until.is_some_and(|until| granted.position.sequence <= *until)
        });
        let places = by_id.map(|(_, (place, _))| *place);
        let places = places.chain(swept.map(|sweep| sweep.position));
        let counts = |place: &LogPosition| match permission {
            Permission::Allow => authority.can_revoke(place.issuer),
            Permission::Deny => authority.can_grant(*place) && self.log_problem(*place).is_none(),
        };
        places.filter(counts).min()
    }

    /// The unrevoked grants of exactly this subject and resource, in force or not: those that a revocation names and
    /// a new grant replaces. Expired ones are included, so that no change of the clock restores them.
    #[must_use]
    pub(crate) fn unrevoked(
        &self,
        subject: &Subject,
        resource: &GrantResource,
        authority: &Authority,
    ) -> Vec<&LoggedGrant> {
        let stands = |granted: &&LoggedGrant| {
            granted.grant.resource == *resource && !self.is_revoked(granted, authority)
        };
        self.for_subject(subject).filter(stands).collect()
    }

    /// Whether an authorised node has revoked a grant: all of it.
    #[must_use]
    pub(crate) fn is_revoked(&self, granted: &LoggedGrant, authority: &Authority) -> bool {
        let permission = if granted.grant.can_close() {
            Permission::Deny
        } else {
            granted.grant.permission
        };
        self.first_revoke(granted, permission, authority).is_some()
    }

    /// The position of this issuer's next operation, and the id of the one before it.
    #[must_use]
    pub fn next_position(&self, issuer: NodeId) -> (u64, OperationId) {
        let tip = self.tip(issuer);
        (tip.next, tip.id)
    }

    /// The end of the certain part of an issuer's log.
    #[must_use]
    pub fn tip(&self, issuer: NodeId) -> LogTip {
        let log = self.logs.get(&issuer);
        log.map_or(LogTip::EMPTY, IssuerLog::tip)
    }

    /// The end of its first `next` operations; `None` when fewer are certain.
    #[must_use]
    pub(crate) fn tip_at(&self, issuer: NodeId, next: u64) -> Option<LogTip> {
        let log = self.logs.get(&issuer);
        match log.filter(|log| next <= log.certain_len()) {
            Some(log) => Some(log.tip_at(next)),
            None => (next == 0).then_some(LogTip::EMPTY),
        }
    }

    /// True when this operation is known.
    #[must_use]
    pub(crate) fn is_known(&self, issuer: NodeId, key: LogKey) -> bool {
        self.logs.get(&issuer).is_some_and(|log| log.contains(key))
    }

    /// The operations of an issuer from this position on, certain or not.
    pub(crate) fn keys_from(
        &self,
        issuer: NodeId,
        sequence: u64,
    ) -> impl Iterator<Item = LogKey> + use<'_> {
        let log = self.logs.get(&issuer);
        log.into_iter().flat_map(move |log| log.keys_from(sequence))
    }

    /// All nodes that have a log here.
    pub fn issuers(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.logs.keys().copied()
    }

    /// The changes of the members, certain or not.
    pub fn member_changes(
        &self,
    ) -> impl Iterator<Item = (LogPosition, OperationId, &LoggedMemberChange)> {
        let all = self.members.iter();
        all.map(|((place, id), told)| (*place, *id, told))
    }

    /// True when the last operation of an issuer announces that it stops, and nothing followed.
    #[must_use]
    pub fn is_resting(&self, issuer: NodeId) -> bool {
        let tip = self.tip(issuer);
        let is_last = self.last_rest(issuer).map(|rest| rest + 1) == Some(tip.next);
        is_last && self.keys_from(issuer, tip.next).next().is_none()
    }

    /// The position of the last operation by which an issuer announced that it stops.
    #[must_use]
    pub(crate) fn last_rest(&self, issuer: NodeId) -> Option<u64> {
        self.rest_positions.get(&issuer).copied()
    }

    /// True when the issuer signed two operations for one position.
    #[must_use]
    pub fn is_forked(&self, issuer: NodeId) -> bool {
        self.logs.get(&issuer).is_some_and(IssuerLog::is_forked)
    }

    /// Issuers whose logs are forked.
    pub fn forked_issuers(&self) -> impl Iterator<Item = NodeId> {
        let forked = self.logs.iter().filter(|(_, log)| log.is_forked());
        forked.map(|(issuer, _)| *issuer)
    }
}
