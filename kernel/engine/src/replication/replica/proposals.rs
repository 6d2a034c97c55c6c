//! Operations that this node signs.

use super::{Replica, ReplicaContext, ReplicaEffect};
use crate::policy::grants::{
    BadOperation, CausalContext, GrantChange, LogChange, LogPosition, MemberChange, Operation,
    Revoke, SignedOperation,
};
use crate::replication::local_log::{PENDING_REVOKES_MAX, PendingRevoke};
use crate::replication::logs::GRANTS_BYTES_MAX;

/// The result of a proposed change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposalOutcome {
    /// It is signed, at this position, and being stored.
    Signed(LogPosition),
    /// It is in force here, and is signed once this node's log is confirmed.
    Deferred,
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposalError {
    /// This node may not issue.
    #[error("this node is no admin of the cluster; ask one that is")]
    NotAdmin,
    /// This node's log is not confirmed yet.
    #[error(
        "no other node has confirmed the log of this one since its start; it can only revoke until then"
    )]
    NotConfirmed,
    /// Two nodes write with this key.
    #[error(
        "this node's log is forked: another node has, or had, its key; another admin cuts it off, and it comes in again under a new key"
    )]
    Forked,
    /// Too many revokes are pending.
    #[error(
        "{PENDING_REVOKES_MAX} revocations wait for another node to confirm the log of this one; connect it to one"
    )]
    TooManyPending,
    /// Only revokes and denials fit into the logs.
    #[error(
        "the logs of the cluster have {GRANTS_BYTES_MAX} bytes or more: only revokes fit from now on; found a new cluster for new grants"
    )]
    LogsFull,
    /// The operation is not valid.
    #[error(transparent)]
    Invalid(#[from] BadOperation),
}

impl Replica {
    /// Proposes a change. It may be acknowledged once it is stored.
    ///
    /// # Errors
    /// [`ProposalError`]; then nothing has changed.
    pub fn propose(
        &mut self,
        change: LogChange,
        author: &str,
        requested_at_ms: u64,
        cx: &mut ReplicaContext<'_>,
    ) -> Result<(ProposalOutcome, Vec<ReplicaEffect>), ProposalError> {
        change.check()?;
        self.check_permission(&change)?;
        if self.local_log.is_confirmed() {
            let is_shutdown = change == Self::shutdown_change();
            let (position, effects) = self.sign_and_store(change, author, requested_at_ms, cx)?;
            self.has_signed_shutdown |= is_shutdown;
            return Ok((ProposalOutcome::Signed(position), effects));
        }
        let LogChange::Grants(GrantChange::Revoke(revoke)) = change else {
            return Err(ProposalError::NotConfirmed);
        };
        let pending = PendingRevoke {
            context: self.context_for_deferred(&revoke),
            revoke,
            author: author.to_owned(),
            requested_at_ms,
        };
        if !self.local_log.defer_revoke(pending) {
            return Err(ProposalError::TooManyPending);
        }
        let pending = self.local_log.pending().to_vec();
        let mut effects: Vec<ReplicaEffect> =
            self.persist(&[], Some(pending)).into_iter().collect();
        effects.push(ReplicaEffect::Changed);
        Ok((ProposalOutcome::Deferred, effects))
    }

    /// The context at the time of the request: when the revoke is signed, this node may know of grants that its author
    /// did not.
    fn context_for_deferred(&self, revoke: &Revoke) -> CausalContext {
        let (here, grants) = (self.logs.local_node(), self.logs.grants());
        let change = LogChange::Grants(GrantChange::Revoke(revoke.clone()));
        let mut context = grants.causal_context(&change, here);
        context.logs.insert(here, grants.tip(here).next);
        context
    }

    /// A certain admin may sign every change; a possible one may not sign what grants.
    fn check_permission(&self, change: &LogChange) -> Result<(), ProposalError> {
        let here = self.logs.local_node();
        let members = self.logs.members();
        let is_possible_admin = members
            .get(here)
            .is_some_and(|it| it.can_revoke && it.cut_at.is_none() && it.demoted_at.is_none());
        if !members.is_admin(here) && (change.is_granting() || !is_possible_admin) {
            return Err(ProposalError::NotAdmin);
        }
        if self.logs.grants().is_forked(here) {
            return Err(ProposalError::Forked);
        }
        if change.is_granting() && self.logs.entry_bytes() >= GRANTS_BYTES_MAX {
            Err(ProposalError::LogsFull)
        } else {
            Ok(())
        }
    }

    fn sign_and_store(
        &mut self,
        change: LogChange,
        author: &str,
        requested_at_ms: u64,
        cx: &mut ReplicaContext<'_>,
    ) -> Result<(LogPosition, Vec<ReplicaEffect>), ProposalError> {
        let context = self
            .logs
            .grants()
            .causal_context(&change, self.logs.local_node());
        let signed = self.sign_next((change, context), author, requested_at_ms, cx)?;
        let position = signed.encoded().position();
        let mut effects: Vec<ReplicaEffect> = self.persist(&[signed], None).into_iter().collect();
        effects.push(ReplicaEffect::Changed);
        Ok((position, effects))
    }

    /// Signs and merges the next operation.
    fn sign_next(
        &mut self,
        (change, context): (LogChange, CausalContext),
        author: &str,
        requested_at_ms: u64,
        cx: &mut ReplicaContext<'_>,
    ) -> Result<SignedOperation, ProposalError> {
        let issuer = self.logs.local_node();
        let (sequence, previous) = self.logs.grants().next_position(issuer);
        let operation = Operation {
            cluster: Some(self.logs.cluster()),
            place: LogPosition { issuer, sequence },
            previous,
            author: author.to_owned(),
            told_at_ms: requested_at_ms,
            change,
            context,
        };
        operation.check()?;
        let signed = (cx.sign)(operation);
        // It is this node's next operation, and was checked.
        let merged = self.logs.merge(&signed);
        debug_assert!(merged.is_ok(), "{merged:?}");
        Ok(signed)
    }

    /// Updates the confirmation. Once confirmed, signs the pending revokes, or else that this node resumed.
    pub(super) fn update_local_log(&mut self, cx: &mut ReplicaContext<'_>) -> Vec<ReplicaEffect> {
        let here = self.logs.local_node();
        // Signing on an incomplete log would fork it.
        if !self.local_log.is_settled() && !self.lost_tips.contains_key(&here) {
            // A node whose key runs twice cannot confirm, and is not waited for: otherwise nobody could sign that it gets
            // a new key.
            let mut others = self.other_members();
            others.retain(|node| !self.instances.has_duplicate(*node));
            self.local_log
                .update_confirmation(&others, cx.now, self.leases.duration());
        }
        let resumes = !self.has_signed_shutdown && self.logs.grants().is_resting(here);
        if !self.local_log.is_confirmed() || (self.local_log.pending().is_empty() && !resumes) {
            return Vec::new();
        }
        let mut signed = self.sign_pending(cx);
        // The entries are stored before the pending list: a crash in between signs them twice, which is harmless.
        let pending = (!signed.is_empty()).then(|| self.local_log.pending().to_vec());
        if resumes && signed.is_empty() {
            signed.extend(self.sign_resume(cx));
        }
        if signed.is_empty() {
            return Vec::new();
        }
        let mut effects: Vec<ReplicaEffect> = self.persist(&signed, pending).into_iter().collect();
        effects.push(ReplicaEffect::Changed);
        effects
    }

    /// Signs the pending revokes, in order, as far as this node may.
    fn sign_pending(&mut self, cx: &mut ReplicaContext<'_>) -> Vec<SignedOperation> {
        let mut signed = Vec::new();
        while let Some(pending) = self.local_log.pending().first().cloned() {
            let change = LogChange::Grants(GrantChange::Revoke(pending.revoke));
            if self.check_permission(&change).is_err() {
                break;
            }
            let change = (change, pending.context);
            match self.sign_next(change, &pending.author, pending.requested_at_ms, cx) {
                Ok(next) => signed.push(next),
                // It was checked when it was accepted. A full log needs a new key.
                Err(_) => break,
            }
            self.local_log.pop_pending();
        }
        signed
    }

    /// Signs that this node resumed after a shutdown: grants depend on its answers again.
    fn sign_resume(&mut self, cx: &mut ReplicaContext<'_>) -> Option<SignedOperation> {
        let change = LogChange::Grants(GrantChange::Revoke(Revoke::resume()));
        self.check_permission(&change).ok()?;
        let author = self.logs.local_node().to_string();
        // Fails only if the log is full, which needs a new key.
        let change = (change, CausalContext::default());
        self.sign_next(change, &author, cx.now_ms, cx).ok()
    }

    /// The change that a node signs when it shuts down gracefully.
    #[must_use]
    pub fn shutdown_change() -> LogChange {
        LogChange::Members(MemberChange::Rest {})
    }
}
