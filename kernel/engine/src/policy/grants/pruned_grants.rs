//! Grants that ended permanently, and the part of them that stays in memory.
//!
//! A grant that allowed something and was revoked by an authorised node never counts again: a revocation wins in any
//! order, and the authority to revoke is permanent. Of such a grant only the subject and the resource stay, because
//! they are the scope of a revocation that names it. The rest is in the entry of its operation. Denials are never
//! pruned: ending one gives access, and may turn out not to count. Neither are expired grants: the clock may be set
//! back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::access::Permission;

use super::compiled_condition::CompiledCondition;
use super::keys::{GrantKey, OperationKey, grant_keys, revoke_keys};
use super::memory::{SHARED_COUNTS, granted_memory, resource_memory, subject_memory, tree_memory};
use super::{
    Authority, EncodedOperation, Grant, GrantChange, GrantId, GrantResource, Grants, LogChange,
    LoggedGrant, Operation, Subject,
};

/// The pruned grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PrunedGrants {
    grants: BTreeMap<GrantKey, (Arc<Subject>, Arc<GrantResource>)>,
    /// Each subject once.
    subjects: BTreeSet<Arc<Subject>>,
    resources: BTreeSet<Arc<GrantResource>>,
}

impl PrunedGrants {
    fn add(&mut self, key: GrantKey, grant: &Grant) {
        let subject = intern(&mut self.subjects, &grant.subject);
        let resource = intern(&mut self.resources, &grant.resource);
        self.grants.insert(key, (subject, resource));
    }

    fn memory_bytes(&self) -> usize {
        let subjects = self.subjects.iter().map(|subject| subject_memory(subject));
        let resources = self.resources.iter();
        let resources = resources.map(|resource| resource_memory(resource));
        let each = SHARED_COUNTS + size_of::<Subject>().max(size_of::<GrantResource>());
        tree_memory::<(GrantKey, [usize; 2])>(self.grants.len())
            + tree_memory::<usize>(self.subjects.len() + self.resources.len())
            + each * (self.subjects.len() + self.resources.len())
            + subjects.chain(resources).sum::<usize>()
    }
}

fn intern<T: Clone + Ord>(all: &mut BTreeSet<Arc<T>>, one: &T) -> Arc<T> {
    if let Some(shared) = all.get(one) {
        return shared.clone();
    }
    let new = Arc::new(one.clone());
    all.insert(new.clone());
    new
}

impl LoggedGrant {
    /// Creates the logged grant of this operation.
    pub(super) fn new(operation: &Operation, grant: &Grant) -> Self {
        Self {
            grant: grant.clone(),
            position: operation.place,
            author: operation.author.clone(),
            issued_at_ms: operation.told_at_ms,
            context: operation.context.clone(),
            condition: CompiledCondition::for_grant(grant),
        }
    }

    /// The grant in an operation; `None` for an operation of another kind.
    #[must_use]
    pub(crate) fn from_operation(written: &EncodedOperation) -> Option<Self> {
        let operation = written.operation();
        match &operation.change {
            LogChange::Grants(GrantChange::Grant(grant)) => Some(Self::new(operation, grant)),
            LogChange::Grants(GrantChange::Revoke(_))
            | LogChange::Members(_)
            | LogChange::Unknown(_) => None,
        }
    }
}

impl Grants {
    /// Prunes the grants that ended permanently under this authority and every later one: the authority to revoke is
    /// permanent. Only for owners that store the entries of the logs, and can load pruned grants from them.
    pub(crate) fn prune(&mut self, authority: &Authority) {
        let mut granted = std::mem::take(&mut self.granted);
        let mut ended = std::mem::take(&mut self.pruned);
        let mut subjects = std::mem::take(&mut self.subjects);
        for (subject, of_subject) in &mut granted {
            let mut shed = BTreeSet::new();
            of_subject.retain(|key, granted| {
                // What closes something as well is like a denial.
                let allows =
                    granted.grant.permission == Permission::Allow && !granted.grant.can_close();
                let ends = allows && self.is_revoked(granted, authority);
                if ends {
                    ended.add(*key, &granted.grant);
                    shed.insert(key.0);
                }
                !ends
            });
            // A forked log has several with one id.
            shed.retain(|id| of_subject.range(grant_keys(*id)).next().is_none());
            for id in shed {
                subjects.remove(&(id, subject.clone()));
            }
        }
        granted.retain(|_, of_subject| !of_subject.is_empty());
        (self.granted, self.subjects, self.pruned) = (granted, subjects, ended);
    }

    /// Whether a change that was applied may have ended grants.
    #[must_use]
    pub(crate) fn can_end_grants(&self, change: &GrantChange) -> bool {
        match change {
            GrantChange::Revoke(_) => true,
            GrantChange::Grant(grant) => {
                let revoked = self
                    .revoked_ids
                    .range(revoke_keys(grant.id))
                    .next()
                    .is_some();
                revoked
                    || !grant.replaces.is_empty()
                    || self.bulk_revokes.contains_key(&grant.subject)
            }
        }
    }

    /// The operations of pruned grants: of one subject, or of all.
    pub(crate) fn pruned_keys<'a>(
        &'a self,
        of: Option<&'a Subject>,
    ) -> impl Iterator<Item = GrantKey> + use<'a> {
        let all = self.pruned.grants.iter();
        let wanted = all.filter(move |(_, (subject, _))| of.is_none_or(|of| **subject == *of));
        wanted.map(|(key, _)| *key)
    }

    /// The operation of the grant with this id, if it was pruned.
    #[must_use]
    pub(crate) fn pruned_key(&self, id: GrantId) -> Option<GrantKey> {
        let mut all = self.pruned.grants.range(grant_keys(id));
        all.next().map(|(key, _)| *key)
    }

    /// The subjects and resources of the grants with this id, and whether they allow: pruned ones included, all of
    /// which did. A forked log has several.
    pub fn scopes(
        &self,
        id: GrantId,
    ) -> impl Iterator<Item = (&Subject, &GrantResource, Permission)> {
        let whole = self.with_id(id).map(|granted| &granted.grant);
        let whole = whole.map(|grant| (&grant.subject, &grant.resource, grant.permission));
        let shed = self.pruned.grants.range(grant_keys(id));
        let shed = shed.map(|(_, (subject, resource))| (&**subject, &**resource));
        whole.chain(shed.map(|(subject, resource)| (subject, resource, Permission::Allow)))
    }

    /// The approximate memory use in bytes.
    #[must_use]
    pub(crate) fn memory_bytes(&self) -> usize {
        let logs = self.logs.values().map(super::IssuerLog::memory_bytes);
        let granted = self.granted.iter().map(|(subject, of_subject)| {
            let texts = of_subject.values().map(|granted| granted_memory(granted));
            subject_memory(subject)
                + tree_memory::<(GrantKey, usize)>(of_subject.len())
                + of_subject.len() * size_of::<LoggedGrant>()
                + texts.sum::<usize>()
        });
        let sweeps = self.bulk_revokes.iter().map(|(subject, sweeps)| {
            let until = sweeps.iter();
            let until = until.map(|sweep| tree_memory::<(NodeId, u64)>(sweep.until.len()));
            subject_memory(subject)
                + tree_memory::<super::BulkRevoke>(sweeps.len())
                + until.sum::<usize>()
        });
        logs.chain(granted).chain(sweeps).sum::<usize>()
            + tree_memory::<(GrantId, OperationKey)>(self.revoked_ids.len())
            + tree_memory::<(GrantId, Subject)>(self.subjects.len())
            + self.withdrawals.memory_bytes()
            + tree_memory::<(super::MemberKey, super::LoggedMemberChange)>(self.members.len())
            + self.pruned.memory_bytes()
    }
}
