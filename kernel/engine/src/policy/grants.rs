//! Grants and revocations as signed operations, and the state that any number of logs of them add up to.
//!
//! Each issuer appends to a log of its own. The state is the union of all logs: a grant is in force if its
//! issuer was authorised, it has not expired, and nobody authorised has revoked it. So the order between
//! issuers does not matter, repetition is harmless, and no clock decides. What takes rights away
//! (revocations, and grants that deny) counts as soon as it is seen; what allows counts only as part of a
//! log without gaps.

mod log;
mod operation;
mod signed;
#[cfg(test)]
mod tests;
mod written;

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::access::Permission;

use self::log::IssuerLog;
pub use self::operation::{
    BadOperation, ClusterId, Grant, GrantChange, GrantId, GrantResource, IDS_MAX, LogChange,
    LogPosition, LogTip, MemberChange, NAME_MAX, Operation, OperationId, Revoke, Role, Subject,
    TEXT_MAX,
};
pub use self::signed::Signed;
pub use self::written::{OPERATION_MAX, Unreadable, Written};

/// Most issuers whose logs are kept: the admin nodes of a cluster, each admitted by a person. Operations of
/// further issuers are refused.
pub const ISSUERS_MAX: usize = 256;
/// Sequence numbers of an issuer that may hold grants; above, only revocations are accepted, so that a full
/// log can still take rights away. A fixed number, so that every node draws the line at the same operation.
pub const GRANTS_END: u64 = 1_000_000;
/// All sequence numbers of an issuer; after that it needs a new key.
pub const SEQUENCE_END: u64 = GRANTS_END + (1 << 16);

/// Who may issue, and which part of each log counts, as seen at one node: told from outside, by membership.
///
/// An issuer whose authority ended keeps the operations below its end.
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

    /// Authorises this issuer for its operations with a sequence number below `end`.
    #[must_use]
    pub fn with_until(mut self, issuer: NodeId, end: u64) -> Self {
        self.ends.insert(issuer, end);
        self
    }

    /// True when the operation at this place of a log counts.
    #[must_use]
    pub fn covers(&self, place: LogPosition) -> bool {
        self.ends
            .get(&place.issuer)
            .is_some_and(|end| place.sequence < *end)
    }
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is part of its issuer's log, together with those that waited for it.
    Appended,
    /// Earlier operations are missing: what it takes away counts already, what it allows waits for them.
    Held,
    /// It was known.
    Known,
    /// Its issuer signed two operations for one place. Nothing that this issuer allowed counts any more;
    /// everything it took away still does.
    Forked,
}

/// Why an operation was refused. The state is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotApplied {
    /// It is malformed.
    #[error(transparent)]
    Bad(#[from] BadOperation),
    /// It is too far ahead of the known log; fetch the log from `from` on.
    #[error("operations from {from} on are missing")]
    Gap {
        /// The first that is missing.
        from: u64,
    },
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
}

/// Whether a grant is in force, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Force {
    /// It is in force.
    InForce,
    /// It expired at this time, in milliseconds since 1970.
    Expired(u64),
    /// It was revoked by the operation named here, and perhaps by others.
    Revoked(LogPosition),
    /// Its issuer is not authorised, or no longer was at that place.
    NotAuthorised,
    /// Its issuer's log is forked.
    Quarantined,
}

/// A revocation of everything a subject had up to a place in each log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sweep {
    place: LogPosition,
    subject: Subject,
    until: BTreeMap<NodeId, u64>,
}

/// The union of all logs. Quick to read for one subject; bounded by [`ISSUERS_MAX`] times [`SEQUENCE_END`]
/// operations.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    logs: BTreeMap<NodeId, IssuerLog>,
    /// By operation as well: a forked log has two for one place.
    granted: BTreeMap<Subject, BTreeMap<(GrantId, LogPosition, OperationId), Granted>>,
    revoked: BTreeMap<GrantId, BTreeSet<LogPosition>>,
    sweeps: BTreeMap<Subject, Vec<Sweep>>,
}

impl PartialEq for Grants {
    /// Equal when they decide the same and hold the same of every log. What a forked log allows decides
    /// nothing.
    fn eq(&self, other: &Self) -> bool {
        self.all()
            .filter(|g| self.may_count(g))
            .eq(other.all().filter(|g| other.may_count(g)))
            && self.revoked == other.revoked
            && self.sweeps == other.sweeps
            && self.logs == other.logs
    }
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
        let (applied, appended) = log.take(operation)?;
        self.logs.entry(issuer).or_insert(new);
        if applied != Applied::Known {
            self.take_away(operation);
        }
        for operation in appended {
            self.allow(&operation);
        }
        Ok(applied)
    }

    /// What counts as soon as it is seen.
    fn take_away(&mut self, operation: &Written) {
        let place = operation.place();
        let Some(change) = operation.operation().change.grants() else {
            return;
        };
        for id in change.revoked() {
            self.revoked.entry(*id).or_default().insert(place);
        }
        match change {
            GrantChange::Grant(grant) if grant.permission == Permission::Deny => {
                self.keep(operation, grant)
            }
            GrantChange::Revoke(Revoke::UpTo { subject, until }) => {
                let sweeps = self.sweeps.entry(subject.clone()).or_default();
                let sweep = Sweep {
                    place,
                    subject: subject.clone(),
                    until: until.clone(),
                };
                // Sorted, so that the order of arrival leaves no trace.
                if let Err(at) = sweeps.binary_search(&sweep) {
                    sweeps.insert(at, sweep);
                }
            }
            GrantChange::Grant(_) | GrantChange::Revoke(Revoke::Ids(_)) => {}
        }
    }

    /// What counts once its log has no gap before it.
    fn allow(&mut self, operation: &Written) {
        if let Some(GrantChange::Grant(grant)) = operation.operation().change.grants() {
            self.keep(operation, grant);
        }
    }

    fn keep(&mut self, operation: &Written, grant: &Grant) {
        let told = operation.operation();
        let of_subject = self.granted.entry(grant.subject.clone()).or_default();
        let granted = Granted {
            grant: grant.clone(),
            place: told.place,
            author: told.author.clone(),
            told_at_ms: told.told_at_ms,
        };
        of_subject.insert((grant.id, told.place, operation.id()), granted);
    }

    /// Every grant of a subject, whether it counts or not.
    pub fn of<'a>(&'a self, subject: &Subject) -> impl Iterator<Item = &'a Granted> + use<'a> {
        self.granted
            .get(subject)
            .into_iter()
            .flat_map(BTreeMap::values)
    }

    /// Every grant of everyone, whether it counts or not.
    pub fn all(&self) -> impl Iterator<Item = &Granted> {
        self.granted.values().flat_map(BTreeMap::values)
    }

    /// The grant of this name, whether it counts or not; one of them where a forked log has two.
    #[must_use]
    pub fn named(&self, id: GrantId) -> Option<&Granted> {
        let first = LogPosition {
            issuer: NodeId([0; 32]),
            sequence: 0,
        };
        let from = (id, first, OperationId([0; 32]));
        let mut all = self.granted.values();
        all.find_map(|of_subject| {
            let (key, granted) = of_subject.range(from..).next()?;
            (key.0 == id).then_some(granted)
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
        let revoked = change.revoked().iter().filter_map(|id| self.named(*id));
        let revoked = revoked.map(|granted| &granted.grant.subject);
        revoked.chain(told).cloned().collect()
    }

    /// Whether a grant counts, and why not. `now_ms` is in milliseconds since 1970.
    #[must_use]
    pub fn force(&self, granted: &Granted, authority: &Authority, now_ms: u64) -> Force {
        if !authority.covers(granted.place) {
            return Force::NotAuthorised;
        }
        if let Some(place) = self.revoker(granted, authority) {
            return Force::Revoked(place);
        }
        match granted.grant.not_after_ms {
            Some(end) if now_ms >= end => return Force::Expired(end),
            Some(_) | None => {}
        }
        if self.may_count(granted) {
            Force::InForce
        } else {
            Force::Quarantined
        }
    }

    /// A forked log denies and revokes, but allows nothing.
    fn may_count(&self, granted: &Granted) -> bool {
        let forked = self
            .logs
            .get(&granted.place.issuer)
            .is_some_and(IssuerLog::is_forked);
        !forked || granted.grant.permission == Permission::Deny
    }

    /// The first place where somebody authorised revoked the grant.
    fn revoker(&self, granted: &Granted, authority: &Authority) -> Option<LogPosition> {
        let by_id = self
            .revoked
            .get(&granted.grant.id)
            .into_iter()
            .flatten()
            .copied();
        let sweeps = self
            .sweeps
            .get(&granted.grant.subject)
            .into_iter()
            .flatten();
        let swept = sweeps.filter(|sweep| {
            let until = sweep.until.get(&granted.place.issuer);
            until.is_some_and(|until| granted.place.sequence <= *until)
        });
        let places = by_id.chain(swept.map(|sweep| sweep.place));
        places.filter(|place| authority.covers(*place)).min()
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

    /// Whether somebody authorised revoked a grant.
    #[must_use]
    pub fn is_revoked(&self, granted: &Granted, authority: &Authority) -> bool {
        self.revoker(granted, authority).is_some()
    }

    /// The place of this issuer's next operation, and the id of the one before it.
    #[must_use]
    pub fn next(&self, issuer: NodeId) -> (u64, OperationId) {
        self.logs
            .get(&issuer)
            .map_or((0, OperationId::START), IssuerLog::next)
    }

    /// For each log, the first missing sequence number, for asking other nodes for the rest.
    #[must_use]
    pub fn known(&self) -> BTreeMap<NodeId, u64> {
        self.logs
            .iter()
            .map(|(issuer, log)| (*issuer, log.next().0))
            .collect()
    }

    /// Issuers whose logs are forked.
    pub fn forked(&self) -> impl Iterator<Item = NodeId> {
        let forked = self.logs.iter().filter(|(_, log)| log.is_forked());
        forked.map(|(issuer, _)| *issuer)
    }
}
