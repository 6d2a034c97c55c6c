//! Grants and revocations as signed operations, and the state that any number of logs of them add up to.
//!
//! Each issuer appends to a log of its own. The state is the union of all logs: a grant is in force if its
//! issuer was authorised, it has not expired, and nobody who may has ever taken it back. So the order between
//! issuers does not matter, repetition is harmless, and no clock decides.
//!
//! Two things are asked of an operation. What takes away (a revocation of something allowed, a denial) counts as
//! soon as it is seen, if its issuer may perhaps issue at all. What gives (something allowed, the end of a
//! denial) counts if its issuer certainly may, at a place of its log that is certain.

mod conflicts;
mod ended;
mod keys;
mod log;
mod memory;
mod operation;
mod rekeyed;
mod signed;
#[cfg(test)]
mod tests;
mod written;

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::{AgentId, NodeAgent, NodeId};
use mgp_protocol::mgp::access::Permission;

use self::conflicts::Withdrawals;
use self::ended::EndedGrants;
pub use self::keys::GrantKey;
use self::keys::{OperationKey, grant_keys, revoke_keys};
use self::log::{GrantTaken, IssuerLog};
pub use self::log::{HELD_MAX, LogKey};
pub use self::operation::{
    BadOperation, CausalContext, ClusterId, Grant, GrantChange, GrantId, GrantResource, IDS_MAX,
    LogChange, LogPosition, LogTip, MemberChange, MemberRole, NAME_MAX, Operation, OperationId,
    ResourceCloseness, Revoke, Subject, TEXT_MAX,
};
pub use self::rekeyed::rekeyed;
pub use self::signed::Signed;
pub use self::written::{OPERATION_MAX, Unreadable, Written};
use crate::node_key::PublicKey;

/// Most issuers whose logs are kept: the admin nodes of a cluster, each admitted by a person. Operations of
/// further issuers are refused.
pub const ISSUERS_MAX: usize = 256;
/// Sequence numbers of an issuer that may hold grants; above, only revocations are accepted, so that a full
/// log can still take rights away. A fixed number, so that every node draws the line at the same operation.
pub const GRANTS_END: u64 = 1_000_000;
/// All sequence numbers of an issuer; after that it needs a new key.
pub const SEQUENCE_END: u64 = GRANTS_END + (1 << 16);

/// Who may issue, and which part of each log may give, as seen at one node: told from outside, by membership.
///
/// Who is in it takes away with all of its log; what it allows counts below its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    here: NodeId,
    ends: BTreeMap<NodeId, u64>,
}

impl Authority {
    /// At this node, nobody is authorised: nothing is granted or revoked.
    #[must_use]
    pub fn nobody(here: NodeId) -> Self {
        let ends = BTreeMap::new();
        Self { here, ends }
    }

    /// A node's own journal counts, at its own servers.
    #[must_use]
    pub fn home(here: NodeId) -> Self {
        Self::nobody(here).with(here)
    }

    /// The node where it is judged.
    #[must_use]
    pub fn here(&self) -> NodeId {
        self.here
    }

    /// Authorises this issuer, with its whole log.
    #[must_use]
    pub fn with(self, issuer: NodeId) -> Self {
        self.with_until(issuer, u64::MAX)
    }

    /// Lets this issuer give with its operations below `end`, and take away with all of them.
    #[must_use]
    pub fn with_until(mut self, issuer: NodeId, end: u64) -> Self {
        self.ends.insert(issuer, end);
        self
    }

    /// True when what this issuer takes away is gone.
    #[must_use]
    pub fn takes(&self, issuer: NodeId) -> bool {
        self.ends.contains_key(&issuer)
    }

    /// True when what the operation at this place gives may count.
    #[must_use]
    pub fn gives(&self, place: LogPosition) -> bool {
        let end = self.ends.get(&place.issuer);
        end.is_some_and(|end| place.sequence < *end)
    }
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is a certain part of its issuer's log, together with those that waited for it.
    Appended,
    /// Earlier operations are missing: what it takes away counts already, what it gives waits for them.
    Held,
    /// It was known.
    Known,
    /// Its issuer signed two operations for one place, this one or earlier. What it gives behind the fork does
    /// not count, nor does anything it allowed; everything it takes away does.
    Forked,
}

/// Why an operation was refused. The state is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotApplied {
    /// It is malformed.
    #[error(transparent)]
    Bad(#[from] BadOperation),
    /// Too many wait for earlier ones already; fetch the log from `from` on.
    #[error("operations from {from} on are missing")]
    Gap {
        /// The first that is missing.
        from: u64,
    },
    /// The log is forked, and too much of its branches is kept already.
    #[error("too much of this issuer's log lies on branches; revoke the node")]
    TooManyBranches,
    /// There are [`ISSUERS_MAX`] logs.
    #[error("there are logs of {ISSUERS_MAX} issuers already; revoke nodes that are gone")]
    TooManyIssuers,
}

/// A grant and its place in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The grant.
    pub grant: Grant,
    /// Its place.
    pub place: LogPosition,
    /// The person or agent that asked for it, as the issuer knew it.
    pub author: String,
    /// When the issuer wrote it by its own clock, in milliseconds since 1970; only shown.
    pub told_at_ms: u64,
    /// What the issuer knew of other logs.
    pub context: CausalContext,
}

/// Whether a grant is in force, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Force {
    /// It is in force.
    InForce,
    /// It expired at this time, in milliseconds since 1970.
    Expired(u64),
    /// It allows until this time, which has come by the clock of another node that may take it back.
    EndedEarly(u64),
    /// It was revoked by the operation named here, and perhaps by others.
    Revoked(LogPosition),
    /// Its issuer did not know of this revoke of the same, nor the issuer of the revoke of this grant: only a grant
    /// that was made with knowledge of it counts.
    InConflict {
        /// The revoke; the first one of several.
        revoke: LogPosition,
        /// When its issuer wrote it by its own clock, in milliseconds since 1970; only shown.
        at_ms: u64,
    },
    /// Its issuer is not authorised, or no longer was at that place.
    NotAuthorised,
    /// Its issuer's log is forked.
    Quarantined,
    /// Operations before it are missing.
    Waits,
    /// Its issuer wrote something that this build does not understand, and that may take it away.
    NotUnderstood,
}

/// A revocation of everything a subject had up to a place in each log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sweep {
    place: LogPosition,
    until: BTreeMap<NodeId, u64>,
}

/// A change of the members, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldChange {
    /// The change.
    pub change: MemberChange,
    /// The person, agent or node that asked for it, as the issuer knew it.
    pub author: String,
    /// When the issuer wrote it by its own clock, in milliseconds since 1970; only shown.
    pub told_at_ms: u64,
    /// Whom it lets in, or says to go on under this key.
    pub lets_in: Option<NodeId>,
}

/// The operation that a change of the members stands in.
type MemberKey = (LogPosition, OperationId);

/// The union of all logs. Quick to read for one subject; bounded by [`ISSUERS_MAX`] times [`SEQUENCE_END`]
/// operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    logs: BTreeMap<NodeId, IssuerLog>,
    granted: BTreeMap<Subject, BTreeMap<GrantKey, Box<Granted>>>,
    /// Whom each of them is about.
    subjects: BTreeSet<(GrantId, Subject)>,
    ended: EndedGrants,
    revoked: BTreeSet<(GrantId, OperationKey)>,
    withdrawals: Withdrawals,
    sweeps: BTreeMap<Subject, BTreeSet<Sweep>>,
    members: BTreeMap<MemberKey, ToldChange>,
    /// Where each issuer last said that it stops.
    rests: BTreeMap<NodeId, u64>,
    /// Issuers of operations of an unknown kind.
    not_understood: BTreeSet<NodeId>,
}

impl Grants {
    /// Applies an operation with a verified signature. In any order, any number of times.
    ///
    /// # Errors
    /// [`NotApplied`]; then nothing has changed.
    pub fn apply(&mut self, operation: &Written) -> Result<Applied, NotApplied> {
        operation.operation().check()?;
        let issuer = operation.issuer();
        if !self.logs.contains_key(&issuer) && self.logs.len() >= ISSUERS_MAX {
            return Err(NotApplied::TooManyIssuers);
        }
        let mut new = IssuerLog::default();
        let log = self.logs.get_mut(&issuer).unwrap_or(&mut new);
        let taken = log.take(operation)?;
        let applied = match taken {
            GrantTaken::Known => Applied::Known,
            GrantTaken::New if log.is_forked() => Applied::Forked,
            GrantTaken::New if operation.place().sequence < log.certain() => Applied::Appended,
            GrantTaken::New => Applied::Held,
        };
        self.logs.entry(issuer).or_insert(new);
        if taken == GrantTaken::New {
            self.note(operation);
        }
        Ok(applied)
    }

    fn note(&mut self, operation: &Written) {
        let (place, told) = (operation.place(), operation.operation());
        match &told.change {
            LogChange::Grants(change) => self.note_change(operation, change),
            LogChange::Members(change) => {
                let key = (place, operation.id());
                let told = ToldChange {
                    change: change.clone(),
                    author: told.author.clone(),
                    told_at_ms: told.told_at_ms,
                    lets_in: change.key().map(PublicKey::node),
                };
                self.members.insert(key, told);
                if *change == (MemberChange::Rest {}) {
                    let last = self.rests.entry(place.issuer).or_default();
                    *last = place.sequence.max(*last);
                }
            }
            LogChange::Unknown(_) => {
                self.not_understood.insert(place.issuer);
            }
        }
    }

    fn note_change(&mut self, operation: &Written, change: &GrantChange) {
        let place = operation.place();
        for id in change.revoked() {
            let key = (place, operation.id());
            self.revoked.insert((*id, key));
        }
        self.note_withdrawal(operation, change);
        match change {
            GrantChange::Grant(grant) => self.keep(operation, grant),
            GrantChange::Revoke(Revoke::UpTo { subject, until }) => {
                let sweep = Sweep {
                    place,
                    until: until.clone(),
                };
                self.sweeps
                    .entry(subject.clone())
                    .or_default()
                    .insert(sweep);
            }
            GrantChange::Revoke(Revoke::Ids(_)) => {}
        }
    }

    fn keep(&mut self, operation: &Written, grant: &Grant) {
        let of_subject = self.granted.entry(grant.subject.clone()).or_default();
        let granted = Granted::new(operation.operation(), grant);
        let key = (grant.id, granted.place, operation.id());
        of_subject.insert(key, Box::new(granted));
        self.subjects.insert((grant.id, grant.subject.clone()));
    }

    /// Every grant of a subject that is not shed, whether it counts or not.
    pub fn of<'a>(&'a self, subject: &Subject) -> impl Iterator<Item = &'a Granted> + use<'a> {
        self.granted
            .get(subject)
            .into_iter()
            .flat_map(BTreeMap::values)
            .map(Box::as_ref)
    }

    /// Every grant of a subject that overlaps this one and is not shed, whether it counts or not.
    pub(crate) fn overlapping(&self, subject: &Subject) -> impl Iterator<Item = &Granted> {
        let all = conflicts::overlapping_subjects(&self.granted, subject);
        all.flat_map(|(_, of_subject)| of_subject.values().map(Box::as_ref))
    }

    /// Every grant that is about this agent, by its name or by a pattern, and is not shed, whether it counts or not.
    pub fn about<'a>(&'a self, agent: &NodeAgent) -> impl Iterator<Item = &'a Granted> + use<'a> {
        Subject::all_for(agent)
            .into_iter()
            .flat_map(|subject| self.of(&subject))
    }

    /// Every grant of everyone that is not shed, whether it counts or not.
    pub fn all(&self) -> impl Iterator<Item = &Granted> {
        let all = self.granted.values().flat_map(BTreeMap::values);
        all.map(Box::as_ref)
    }

    /// The grant of this name, if it is not shed, whether it counts or not; one of them where a forked log has two.
    #[must_use]
    pub fn named(&self, id: GrantId) -> Option<&Granted> {
        self.with_id(id).next()
    }

    /// All grants of this name that are not shed: a forked log has several.
    fn with_id(&self, id: GrantId) -> impl Iterator<Item = &Granted> {
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
        let revoked = change.revoked().iter().flat_map(|id| self.scopes(*id));
        let revoked = revoked.map(|(subject, ..)| subject);
        revoked.chain(told).cloned().collect()
    }

    /// Whether a grant counts, and why not. `now_ms` is in milliseconds since 1970.
    #[must_use]
    pub fn force(&self, granted: &Granted, authority: &Authority, now_ms: u64) -> Force {
        let place = granted.place;
        let denies = granted.grant.permission == Permission::Deny;
        let may = match denies {
            true => authority.takes(place.issuer),
            false => authority.gives(place),
        };
        if !may {
            return Force::NotAuthorised;
        }
        if let Some(place) = self.taken_back(granted, authority) {
            return Force::Revoked(place);
        }
        match granted.grant.not_after_ms {
            Some(end) if now_ms >= end => return Force::Expired(end),
            Some(_) | None => {}
        }
        if !denies && let Some(conflict) = self.conflict(granted, authority) {
            return conflict;
        }
        match self.doubt(place) {
            Some(doubt) if !denies => doubt,
            Some(_) | None => Force::InForce,
        }
    }

    /// Why what the operation at this place gives does not count, whoever its issuer is.
    fn doubt(&self, place: LogPosition) -> Option<Force> {
        let log = self.logs.get(&place.issuer)?;
        if log.is_forked() {
            Some(Force::Quarantined)
        } else if self.not_understood.contains(&place.issuer) {
            Some(Force::NotUnderstood)
        } else {
            (place.sequence >= log.certain()).then_some(Force::Waits)
        }
    }

    /// The first place where somebody who may took the grant back. The end of a denial gives, so that it
    /// needs as much as a grant that allows.
    fn taken_back(&self, granted: &Granted, authority: &Authority) -> Option<LogPosition> {
        let by_id = self.revoked.range(revoke_keys(granted.grant.id));
        let sweeps = self.sweeps.get(&granted.grant.subject);
        let swept = sweeps.into_iter().flatten().filter(|sweep| {
            let until = sweep.until.get(&granted.place.issuer);
            until.is_some_and(|until| granted.place.sequence <= *until)
        });
        let places = by_id.map(|(_, (place, _))| *place);
        let places = places.chain(swept.map(|sweep| sweep.place));
        let counts = |place: &LogPosition| match granted.grant.permission {
            Permission::Allow => authority.takes(place.issuer),
            Permission::Deny => authority.gives(*place) && self.doubt(*place).is_none(),
        };
        places.filter(counts).min()
    }

    /// The grants of exactly this subject and resource that were not revoked, in force or not: those that a
    /// revocation names and a new grant replaces. Expired ones are included, so that no change of the clock
    /// brings them back.
    #[must_use]
    pub fn standing(
        &self,
        subject: &Subject,
        resource: &GrantResource,
        authority: &Authority,
    ) -> Vec<&Granted> {
        let stands = |granted: &&Granted| {
            granted.grant.resource == *resource && !self.is_revoked(granted, authority)
        };
        self.of(subject).filter(stands).collect()
    }

    /// Whether somebody who may has revoked a grant.
    #[must_use]
    pub fn is_revoked(&self, granted: &Granted, authority: &Authority) -> bool {
        self.taken_back(granted, authority).is_some()
    }

    /// The place of this issuer's next operation, and the id of the one before it.
    #[must_use]
    pub fn next(&self, issuer: NodeId) -> (u64, OperationId) {
        let tip = self.tip(issuer);
        (tip.next, tip.id)
    }

    /// The end of the certain part of an issuer's log.
    #[must_use]
    pub fn tip(&self, issuer: NodeId) -> LogTip {
        let log = self.logs.get(&issuer);
        log.map_or(LogTip::EMPTY, IssuerLog::tip)
    }

    /// The end of its first operations; None when not so many are certain.
    #[must_use]
    pub fn tip_at(&self, issuer: NodeId, next: u64) -> Option<LogTip> {
        let log = self.logs.get(&issuer);
        match log.filter(|log| next <= log.certain()) {
            Some(log) => Some(log.tip_at(next)),
            None => (next == 0).then_some(LogTip::EMPTY),
        }
    }

    /// True when this operation is known.
    #[must_use]
    pub fn is_known(&self, issuer: NodeId, key: LogKey) -> bool {
        self.logs.get(&issuer).is_some_and(|log| log.contains(key))
    }

    /// The operations of an issuer from this place on, certain or not.
    pub fn keys(&self, issuer: NodeId, sequence: u64) -> impl Iterator<Item = LogKey> + use<'_> {
        let log = self.logs.get(&issuer);
        log.into_iter().flat_map(move |log| log.from(sequence))
    }

    /// Everyone of whom there is a log.
    pub fn issuers(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.logs.keys().copied()
    }

    /// The changes of who is in, certain or not.
    pub fn member_changes(&self) -> impl Iterator<Item = (LogPosition, OperationId, &ToldChange)> {
        let all = self.members.iter();
        all.map(|((place, id), told)| (*place, *id, told))
    }

    /// True when the last operation of an issuer says that nothing comes after it, and nothing has come.
    #[must_use]
    pub fn rests(&self, issuer: NodeId) -> bool {
        let tip = self.tip(issuer);
        let is_last = self.last_rest(issuer).map(|rest| rest + 1) == Some(tip.next);
        is_last && self.keys(issuer, tip.next).next().is_none()
    }

    /// The place of the last operation by which an issuer said that it stops.
    #[must_use]
    pub fn last_rest(&self, issuer: NodeId) -> Option<u64> {
        self.rests.get(&issuer).copied()
    }

    /// True when the issuer signed two operations for one place.
    #[must_use]
    pub fn is_forked(&self, issuer: NodeId) -> bool {
        self.logs.get(&issuer).is_some_and(IssuerLog::is_forked)
    }

    /// Issuers whose logs are forked.
    pub fn forked(&self) -> impl Iterator<Item = NodeId> {
        let forked = self.logs.iter().filter(|(_, log)| log.is_forked());
        forked.map(|(issuer, _)| *issuer)
    }
}
