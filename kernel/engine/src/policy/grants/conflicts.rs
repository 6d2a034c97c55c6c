//! Conflicts of grants and revocations whose issuers did not know of each other: the revocation wins, whichever came
//! first.
//!
//! A *withdrawal* takes back something that was allowed: a revocation, or a denial that replaces an allowing grant.
//! Its scope is the scope of the grants that it names. It overrides every overlapping grant, unless the issuer of the
//! grant knew the withdrawal, or the issuer of the withdrawal knew the grant and left it.

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::ids::{AgentId, NodeId};
use mgp_protocol::mgp::access::Permission;

use super::keys::{OperationKey, revoke_keys};
use super::log::IssuerLog;
use super::memory::{context_memory, resource_memory, subject_memory, tree_memory};
use super::operation::BRANCHES_NAMED_MAX;
use super::{
    Authority, CausalContext, EncodedOperation, GrantChange, GrantId, GrantResource, GrantStatus,
    Grants, LogChange, LogPosition, LoggedGrant, OperationId, Revoke, Subject,
};
use crate::policy::tool_pattern::ToolPattern;

/// The data of a withdrawal besides its position.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Withdrawal {
    issued_at_ms: u64,
    context: CausalContext,
}

/// All withdrawals, by scope. Nothing here depends on the order in which operations arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Withdrawals {
    by_key: BTreeMap<OperationKey, Withdrawal>,
    /// By subject and resource; without a resource, for everything the subject has.
    by_scope: BTreeMap<Subject, SubjectScopes>,
}

/// The withdrawals of one scope, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ScopeWithdrawals {
    keys: Vec<OperationKey>,
    /// By issuer.
    fronts: Vec<(NodeId, IssuerFronts)>,
}

/// The part of one issuer's withdrawals that is examined for a grant: a few numbers, however many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct IssuerFronts {
    /// The last position.
    last: u64,
    /// For grants in the logs that a withdrawal names as known to its issuer.
    logs: Vec<(NodeId, KnowledgeFront)>,
}

/// Positions of withdrawals, each with the known length of one log: both increase. A withdrawal is left out if a
/// later one knew no more, because the later one overrides whatever the earlier one does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct KnowledgeFront(Vec<(u64, u64)>);

impl ScopeWithdrawals {
    fn memory_bytes(&self) -> usize {
        let fronts = self.fronts.iter().flat_map(|(_, fronts)| {
            let logs = fronts.logs.iter();
            let each = logs.map(|(_, front)| front.0.capacity() * size_of::<(u64, u64)>());
            each.chain([fronts.logs.capacity() * size_of::<(NodeId, KnowledgeFront)>()])
        });
        self.keys.capacity() * size_of::<OperationKey>()
            + self.fronts.capacity() * size_of::<(NodeId, IssuerFronts)>()
            + fronts.sum::<usize>()
    }
}

impl KnowledgeFront {
    fn add(&mut self, place: u64, known: u64) {
        let at = self.0.partition_point(|(other, _)| *other < place);
        if self.0.get(at).is_some_and(|(_, other)| *other <= known) {
            return;
        }
        let same = self.0.get(at).is_some_and(|(other, _)| *other == place);
        let first = self.0[..at].partition_point(|(_, other)| *other < known);
        let end = at + usize::from(same);
        self.0.splice(first..end, [(place, known)]);
    }

    /// The first position from `from` on at which the operation at `sequence` of the log was not known.
    fn unknown_from(&self, from: u64, sequence: u64) -> Option<u64> {
        let at = self.0.partition_point(|(place, _)| *place < from);
        let (place, known) = self.0.get(at)?;
        (*known <= sequence).then_some(*place)
    }
}

/// Reserves space for one: most lists get no second item, and would allocate four.
fn reserve_first<T>(list: &mut Vec<T>) {
    if list.is_empty() {
        list.reserve_exact(1);
    }
}

/// The value of this node in a sorted list, inserted if it is missing.
fn get_or_insert<T: Default>(list: &mut Vec<(NodeId, T)>, node: NodeId) -> &mut T {
    let at = list.partition_point(|(other, _)| *other < node);
    if list.get(at).is_none_or(|(other, _)| *other != node) {
        reserve_first(list);
        list.insert(at, (node, T::default()));
    }
    &mut list[at].1
}

/// The length of a log that an operation at that position names as known; of its own log only where it states so.
fn known_len_in_context(context: &CausalContext, log: NodeId, place: LogPosition) -> Option<u64> {
    let named = context.logs.get(&log);
    if log == place.issuer {
        named.map(|_| context.known_len(log, place))
    } else {
        Some(named.copied().unwrap_or(0))
    }
}

impl Withdrawals {
    fn add_scope(
        &mut self,
        key: OperationKey,
        subject: &Subject,
        resource: Option<&GrantResource>,
    ) {
        let of_subject = self.by_scope.entry(subject.clone()).or_default();
        let scope = of_subject.entry(resource.cloned()).or_default();
        let Err(at) = scope.keys.binary_search(&key) else {
            return;
        };
        reserve_first(&mut scope.keys);
        scope.keys.insert(at, key);
        let (place, _) = key;
        let Some(withdrawal) = self.by_key.get(&key) else {
            return;
        };
        let fronts = get_or_insert(&mut scope.fronts, place.issuer);
        fronts.last = fronts.last.max(place.sequence);
        for log in withdrawal.context.logs.keys() {
            if fronts.logs.iter().all(|(known, _)| known != log) {
                // Earlier ones did not name it.
                let front = get_or_insert(&mut fronts.logs, *log);
                let others = scope
                    .keys
                    .iter()
                    .filter(|(it, _)| it.issuer == place.issuer);
                for (other, id) in others {
                    let context = self.by_key.get(&(*other, *id)).map(|it| &it.context);
                    let known =
                        context.and_then(|context| known_len_in_context(context, *log, *other));
                    known
                        .into_iter()
                        .for_each(|known| front.add(other.sequence, known));
                }
            }
        }
        for (log, front) in &mut fronts.logs {
            let known = known_len_in_context(&withdrawal.context, *log, place);
            known
                .into_iter()
                .for_each(|known| front.add(place.sequence, known));
        }
    }

    /// Withdrawals whose scope overlaps this one. For a single agent three subjects are looked up, and each group; a
    /// pattern and a group are compared with all.
    fn overlapping<'a>(
        &'a self,
        subject: &Subject,
        resource: &'a GrantResource,
    ) -> impl Iterator<Item = &'a ScopeWithdrawals> + use<'a> {
        let subjects = overlapping_subjects(&self.by_scope, subject);
        subjects.flat_map(|(_, about)| overlapping_scopes(about, resource))
    }

    /// The approximate memory use in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let contexts = self.by_key.values().map(|it| context_memory(&it.context));
        let about = self.by_scope.iter().map(|(subject, scopes)| {
            let each = scopes.iter().map(|(about, scope)| {
                about.as_ref().map_or(0, resource_memory) + scope.memory_bytes()
            });
            subject_memory(subject)
                + tree_memory::<(Option<GrantResource>, ScopeWithdrawals)>(scopes.len())
                + each.sum::<usize>()
        });
        tree_memory::<(OperationKey, Withdrawal)>(self.by_key.len())
            + tree_memory::<(Subject, [usize; 3])>(self.by_scope.len())
            + contexts.chain(about).sum::<usize>()
    }

    /// The first one at this position.
    fn first_at(&self, place: LogPosition) -> Option<&Withdrawal> {
        let from = (place, OperationId::START);
        let (key, withdrawal) = self.by_key.range(from..).next()?;
        (key.0 == place).then_some(withdrawal)
    }
}

/// Withdrawals of the same subject, by resource.
type SubjectScopes = BTreeMap<Option<GrantResource>, ScopeWithdrawals>;

/// The values of all subjects that overlap this one.
pub(super) fn overlapping_subjects<'a, T>(
    all: &'a BTreeMap<Subject, T>,
    subject: &Subject,
) -> impl Iterator<Item = (&'a Subject, &'a T)> + use<'a, T> {
    let (one, pattern) = match subject {
        Subject::Agent(agent) if !agent.agent.is_group() => {
            (Subject::subjects_for(agent).to_vec(), None)
        }
        Subject::Server(_) => (vec![subject.clone()], None),
        Subject::Agent(_) | Subject::AgentsAt(_) | Subject::AgentEverywhere(_) => {
            (Vec::new(), Some(subject.clone()))
        }
    };
    // Those of the cluster are adjacent, after all others.
    let first = Subject::AgentEverywhere(AgentId::new(AgentId::GROUP_PREFIX));
    let is_agent = one.len() > 1;
    let groups = is_agent.then(|| all.range(first..));
    let groups = groups.into_iter().flatten();
    let groups = groups.take_while(|(subject, _)| subject.is_group());
    let one = one
        .into_iter()
        .filter_map(|subject| all.get_key_value(&subject));
    let compared = pattern.into_iter().flat_map(|pattern| {
        all.iter()
            .filter(move |(subject, _)| subject.overlaps(&pattern))
    });
    one.chain(groups).chain(compared)
}

/// The withdrawals of a subject whose resource overlaps this one.
fn overlapping_scopes<'a>(
    about: &'a SubjectScopes,
    resource: &'a GrantResource,
) -> impl Iterator<Item = &'a ScopeWithdrawals> + use<'a> {
    let at = |key: Option<GrantResource>| about.get(&key);
    let (on, whole, tools) = match resource {
        GrantResource::Permission(_) | GrantResource::Group(_) => {
            (None, at(Some(resource.clone())), None)
        }
        GrantResource::Server(on) => (Some(on), None, Some(String::new())),
        GrantResource::Tools(on, tools) => {
            let beginning = tools.prefix().unwrap_or_default();
            (Some(on), None, Some(beginning.to_owned()))
        }
        GrantResource::Tool(on, _) => (Some(on), at(Some(resource.clone())), None),
    };
    let server = on.and_then(|on| at(Some(GrantResource::Server(on.clone()))));
    // Single tools, from the first possible match on: names with a common prefix are adjacent.
    let single = on.zip(tools).map(|(on, beginning)| {
        let first = GrantResource::Tool(on.clone(), beginning);
        let all = about.range(Some(first)..);
        all.take_while(|(about, _)| about.as_ref().is_some_and(|it| it.overlaps(resource)))
    });
    let patterns = on.map(|on| {
        let first = GrantResource::Tools(on.clone(), ToolPattern::empty());
        let all = about.range(Some(first)..);
        let all = all.take_while(
            move |(about, _)| matches!(about, Some(GrantResource::Tools(of, _)) if of == on),
        );
        all.filter(|(about, _)| about.as_ref().is_some_and(|it| it.overlaps(resource)))
    });
    let all = at(None).into_iter().chain(whole).chain(server);
    let parts = single.into_iter().flatten();
    let parts = parts.chain(patterns.into_iter().flatten());
    all.chain(parts.map(|(_, scope)| scope))
}

/// Whether it takes back something that was allowed, as far as its grants are known. It may name denials as well:
/// ending a denial takes nothing away.
fn is_withdrawal(change: &GrantChange) -> bool {
    match change {
        GrantChange::Revoke(_) => true,
        GrantChange::Grant(grant) => {
            grant.permission == Permission::Deny && !grant.replaces.is_empty()
        }
    }
}

/// The scope of a withdrawal: a resource of a subject, or everything it has.
type WithdrawnScope = (Subject, Option<GrantResource>);

impl Grants {
    /// Indexes an applied operation of this kind: links withdrawals and the grants that they name.
    pub(super) fn index_withdrawal(&mut self, operation: &EncodedOperation, change: &GrantChange) {
        let key = (operation.position(), operation.id());
        if is_withdrawal(change) {
            let told = operation.operation();
            let withdrawal = Withdrawal {
                issued_at_ms: told.told_at_ms,
                context: told.context.clone(),
            };
            self.withdrawals.by_key.insert(key, withdrawal);
            for (subject, resource) in self.withdrawn_scopes(change) {
                self.withdrawals.add_scope(key, &subject, resource.as_ref());
            }
        }
        let GrantChange::Grant(grant) = change else {
            return;
        };
        if grant.permission == Permission::Allow {
            let withdrawals = &mut self.withdrawals;
            for (_, key) in self.revoked_ids.range(revoke_keys(grant.id)) {
                if withdrawals.by_key.contains_key(key) {
                    withdrawals.add_scope(*key, &grant.subject, Some(&grant.resource));
                }
            }
        }
    }

    /// The scopes that a change takes back, as far as they are known.
    fn withdrawn_scopes(&self, change: &GrantChange) -> BTreeSet<WithdrawnScope> {
        if let GrantChange::Revoke(Revoke::UpTo { subject, .. }) = change {
            return [(subject.clone(), None)].into();
        }
        let named = change.revoked_ids().iter().flat_map(|id| self.scopes(*id));
        let allowed = named.filter(|(.., permission)| *permission == Permission::Allow);
        let scopes = allowed.map(|(subject, about, _)| (subject.clone(), Some(about.clone())));
        scopes.collect()
    }

    /// How many operations of a log were known to the issuer of the operation at `place`, counting only unambiguous
    /// positions.
    fn known_len(&self, context: &CausalContext, log: NodeId, place: LogPosition) -> u64 {
        let fork = self.logs.get(&log).and_then(IssuerLog::fork);
        context.known_len(log, place).min(fork.unwrap_or(u64::MAX))
    }

    /// The first withdrawal that overrides a grant and was not known to its issuer.
    pub(super) fn find_conflict(
        &self,
        granted: &LoggedGrant,
        authority: &Authority,
    ) -> Option<GrantStatus> {
        let grant = &granted.grant;
        let scopes = self
            .withdrawals
            .overlapping(&grant.subject, &grant.resource);
        let found = scopes.flat_map(|scope| {
            let fronts = scope.fronts.iter();
            let may = fronts.filter(|(by, _)| authority.can_revoke(*by));
            may.filter_map(|(by, fronts)| self.first_unknown(granted, *by, fronts, &scope.keys))
        });
        let revoke = found.min()?;
        let at_ms = self.withdrawals.first_at(revoke)?.issued_at_ms;
        Some(GrantStatus::InConflict { revoke, at_ms })
    }

    /// A withdrawal of one issuer, where neither it nor the issuer of the grant knew the other's operation.
    fn first_unknown(
        &self,
        granted: &LoggedGrant,
        by: NodeId,
        fronts: &IssuerFronts,
        keys: &[OperationKey],
    ) -> Option<LogPosition> {
        let (context, place) = (&granted.context, granted.position);
        let from = self.known_len(context, by, place);
        if !context.branches.is_empty() {
            return self.first_unknown_by_branches(granted, by, from, keys);
        }
        let log = fronts.logs.iter().find(|(log, _)| *log == place.issuer);
        let sequence = match log {
            Some((_, front)) => front.unknown_from(from, place.sequence),
            // The issuer of all of them knew the grant, or of none of them.
            None if by == place.issuer => None,
            None => (fronts.last >= from).then_some(fronts.last),
        };
        sequence.map(|sequence| LogPosition {
            issuer: by,
            sequence,
        })
    }

    /// The same, for a grant that names single withdrawals.
    fn first_unknown_by_branches(
        &self,
        granted: &LoggedGrant,
        by: NodeId,
        from: u64,
        keys: &[OperationKey],
    ) -> Option<LogPosition> {
        let first = keys.partition_point(|(it, _)| (it.issuer, it.sequence) < (by, from));
        let mut left = keys[first..].iter().take_while(|(it, _)| it.issuer == by);
        let unknown = left.find(|key @ (place, id)| {
            let withdrawal = self.withdrawals.by_key.get(key);
            let knew_grant = withdrawal.is_some_and(|it| {
                let log = granted.position.issuer;
                granted.position.sequence < it.context.known_len(log, *place)
            });
            !granted.context.branches.contains(id) && !knew_grant
        });
        unknown.map(|(place, _)| *place)
    }

    /// Whether a revocation that is not signed yet overrides a grant that it does not name. `place` is its future
    /// position.
    pub(crate) fn is_overridden_by(
        &self,
        granted: &LoggedGrant,
        (revoke, context): (&Revoke, &CausalContext),
        place: LogPosition,
    ) -> bool {
        let grant = &granted.grant;
        if granted.position.sequence < self.known_len(context, granted.position.issuer, place) {
            return false;
        }
        let about = |id: &GrantId| {
            let mut named = self.scopes(*id);
            named.any(|(subject, resource, permission)| {
                permission == Permission::Allow
                    && subject.overlaps(&grant.subject)
                    && resource.overlaps(&grant.resource)
            })
        };
        match revoke {
            Revoke::Ids(ids) => ids.iter().any(about),
            Revoke::UpTo { subject, .. } => subject.overlaps(&grant.subject),
        }
    }

    /// The known parts of other logs than the issuer's own, as far as conflicts with this change depend on them.
    #[must_use]
    pub(crate) fn causal_context(&self, change: &LogChange, issuer: NodeId) -> CausalContext {
        match change.grants() {
            Some(GrantChange::Grant(grant)) if grant.permission == Permission::Allow => {
                self.known_withdrawals(&grant.subject, &grant.resource, issuer)
            }
            Some(change) if is_withdrawal(change) => self.known_grants(change, issuer),
            Some(_) | None => CausalContext::default(),
        }
    }

    fn known_withdrawals(
        &self,
        subject: &Subject,
        resource: &GrantResource,
        issuer: NodeId,
    ) -> CausalContext {
        let mut context = CausalContext::default();
        let parts = self.withdrawals.overlapping(subject, resource);
        let keys = parts.flat_map(|scope| &scope.keys);
        for (place, id) in keys.filter(|(it, _)| it.issuer != issuer) {
            let certain = self.tip(place.issuer).next;
            if place.sequence < certain {
                context.logs.insert(place.issuer, certain);
            } else if context.branches.len() < BRANCHES_NAMED_MAX && !context.branches.contains(id)
            {
                context.branches.push(*id);
            }
        }
        context
    }

    fn known_grants(&self, change: &GrantChange, issuer: NodeId) -> CausalContext {
        let mut context = CausalContext::default();
        let named: BTreeSet<&GrantId> = change.revoked_ids().iter().collect();
        for (subject, resource) in self.withdrawn_scopes(change) {
            let left = self.overlapping_grants(&subject).filter(|granted| {
                let grant = &granted.grant;
                let overlaps = resource.as_ref();
                let overlaps = overlaps.is_none_or(|about| about.overlaps(&grant.resource));
                overlaps
                    && grant.permission == Permission::Allow
                    && granted.position.issuer != issuer
                    && !named.contains(&grant.id)
                    && self
                        .revoked_ids
                        .range(revoke_keys(grant.id))
                        .next()
                        .is_none()
            });
            for granted in left {
                let certain = self.tip(granted.position.issuer).next;
                if granted.position.sequence < certain {
                    context.logs.insert(granted.position.issuer, certain);
                }
            }
        }
        context
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is left out of a front decides nothing, in whatever order it was made.
        #[test]
        fn a_front_answers_as_all_that_it_was_made_of(
            (all, order) in proptest::collection::vec((0_u64..12, 0_u64..12), 0..12)
                .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
            from in 0_u64..13,
            sequence in 0_u64..13,
        ) {
            let made = |all: &[(u64, u64)]| {
                let mut front = KnowledgeFront::default();
                all.iter().for_each(|(place, known)| front.add(*place, *known));
                front
            };
            let front = made(&all);
            prop_assert_eq!(&front, &made(&order));
            let beats = |(place, known): &(u64, u64)| *place >= from && *known <= sequence;
            let found = front.unknown_from(from, sequence);
            prop_assert_eq!(found.is_some(), all.iter().any(&beats));
            prop_assert!(found.is_none_or(|at| all.iter().any(|it| beats(it) && it.0 == at)));
        }
    }
}
