//! What this node writes itself.

use super::{Replica, ReplicaContext, ReplicaEffect};
use crate::policy::grants::{
    BadOperation, CausalContext, GrantChange, LogChange, LogPosition, MemberChange, Operation,
    Revoke, SignedOperation,
};
use crate::replication::local_log::{PENDING_REVOKES_MAX, PendingRevoke};
use crate::replication::logs::GRANTS_BYTES_MAX;

/// What became of a change that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposalOutcome {
    /// It is signed, at this place, and on the way to the disk.
    Signed(LogPosition),
    /// It counts here, and is signed once this node's log is confirmed.
    Deferred,
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposalError {
    /// This node may not issue.
    #[error("this node is no admin of the cluster; ask one that is")]
    NotAdmin,
    /// Nothing may be signed yet.
    #[error(
        "no other node has confirmed the log of this one since its start; it can only revoke until then"
    )]
    NotConfirmed,
    /// Two nodes write with this key.
    #[error(
        "this node's log is forked: another node has, or had, its key; another admin cuts it off, and it comes in again under a new key"
    )]
    Forked,
    /// Too much is owed.
    #[error(
        "{PENDING_REVOKES_MAX} revocations wait for another node to confirm the log of this one; connect it to one"
    )]
    TooManyPending,
    /// The logs leave room only for what takes away.
    #[error(
        "the logs of the cluster have {GRANTS_BYTES_MAX} bytes or more: only revokes fit from now on; found a new cluster for new grants"
    )]
    LogsFull,
    /// Its form.
    #[error(transparent)]
    Invalid(#[from] BadOperation),
}

impl Replica {
    /// Asks for a change. It is acknowledged once it is stored.
    ///
    /// # Errors
    /// [`ProposalError`]; then nothing has changed.
    pub fn propose(
        &mut self,
        change: LogChange,
        author: &str,
        told_at_ms: u64,
        means: &mut ReplicaContext<'_>,
    ) -> Result<(ProposalOutcome, Vec<ReplicaEffect>), ProposalError> {
        change.check()?;
        self.check_permission(&change)?;
        if self.local_log.is_confirmed() {
            let rests = change == Self::shutdown_change();
            let (place, effects) = self.sign_and_store(change, author, told_at_ms, means)?;
            self.has_signed_shutdown |= rests;
            return Ok((ProposalOutcome::Signed(place), effects));
        }
        let LogChange::Grants(GrantChange::Revoke(revoke)) = change else {
            return Err(ProposalError::NotConfirmed);
        };
        let owed = PendingRevoke {
            context: self.context_for_deferred(&revoke),
            revoke,
            author: author.to_owned(),
            requested_at_ms: told_at_ms,
        };
        if !self.local_log.defer_revoke(owed) {
            return Err(ProposalError::TooManyPending);
        }
        let owed = self.local_log.pending().to_vec();
        let mut effects: Vec<ReplicaEffect> = self.persist(&[], Some(owed)).into_iter().collect();
        effects.push(ReplicaEffect::Changed);
        Ok((ProposalOutcome::Deferred, effects))
    }

    /// What is known now: by the time a revoke is signed this node may have heard of grants that whoever asked for it
    /// knew nothing of.
    fn context_for_deferred(&self, revoke: &Revoke) -> CausalContext {
        let (here, grants) = (self.logs.local_node(), self.logs.grants());
        let change = LogChange::Grants(GrantChange::Revoke(revoke.clone()));
        let mut context = grants.causal_context(&change, here);
        context.logs.insert(here, grants.tip(here).next);
        context
    }

    /// Who certainly is an admin writes everything; who perhaps is one, what takes away.
    fn check_permission(&self, change: &LogChange) -> Result<(), ProposalError> {
        let here = self.logs.local_node();
        let members = self.logs.members();
        let perhaps = members
            .get(here)
            .is_some_and(|it| it.can_revoke && it.cut_at.is_none() && it.demoted_at.is_none());
        if !members.is_admin(here) && (change.is_granting() || !perhaps) {
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
        told_at_ms: u64,
        means: &mut ReplicaContext<'_>,
    ) -> Result<(LogPosition, Vec<ReplicaEffect>), ProposalError> {
        let context = self
            .logs
            .grants()
            .causal_context(&change, self.logs.local_node());
        let signed = self.sign_next((change, context), author, told_at_ms, means)?;
        let place = signed.encoded().position();
        let mut effects: Vec<ReplicaEffect> = self.persist(&[signed], None).into_iter().collect();
        effects.push(ReplicaEffect::Changed);
        Ok((place, effects))
    }

    /// The next operation, taken here.
    fn sign_next(
        &mut self,
        (change, context): (LogChange, CausalContext),
        author: &str,
        told_at_ms: u64,
        means: &mut ReplicaContext<'_>,
    ) -> Result<SignedOperation, ProposalError> {
        let issuer = self.logs.local_node();
        let (sequence, previous) = self.logs.grants().next_position(issuer);
        let operation = Operation {
            cluster: Some(self.logs.cluster()),
            place: LogPosition { issuer, sequence },
            previous,
            author: author.to_owned(),
            told_at_ms,
            change,
            context,
        };
        operation.check()?;
        let signed = (means.sign)(operation);
        // It is this node's next one, of a form that was checked.
        let taken = self.logs.merge(&signed);
        debug_assert!(taken.is_ok(), "{taken:?}");
        Ok(signed)
    }

    /// Judges whether this node may write, and signs what it owes when it may, or that it is at work again.
    pub(super) fn update_local_log(
        &mut self,
        means: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        let here = self.logs.local_node();
        // What is lost of its log would be signed a second time.
        if !self.local_log.is_settled() && !self.lost_tips.contains_key(&here) {
            // Of whom two live, neither is believed, and neither can confirm anything: it is not waited for either, or
            // nobody could write down that it goes on under another key.
            let mut others = self.other_members();
            others.retain(|node| !self.instances.has_duplicate(*node));
            self.local_log
                .update_confirmation(&others, means.now, self.leases.duration());
        }
        let resumes =
            !self.has_signed_shutdown && self.logs.grants().is_resting(self.logs.local_node());
        if !self.local_log.is_confirmed() || (self.local_log.pending().is_empty() && !resumes) {
            return Vec::new();
        }
        let mut signed = self.sign_pending(means);
        // The entries are on disk before the debt is struck out: a crash between pays twice, which is harmless.
        let owed = (!signed.is_empty()).then(|| self.local_log.pending().to_vec());
        if resumes && signed.is_empty() {
            signed.extend(self.sign_resume(means));
        }
        if signed.is_empty() {
            return Vec::new();
        }
        let mut effects: Vec<ReplicaEffect> = self.persist(&signed, owed).into_iter().collect();
        effects.push(ReplicaEffect::Changed);
        effects
    }

    /// What was owed, as far as it may be signed.
    fn sign_pending(&mut self, means: &mut ReplicaContext<'_>) -> Vec<SignedOperation> {
        let mut signed = Vec::new();
        while let Some(owed) = self.local_log.pending().first().cloned() {
            let change = LogChange::Grants(GrantChange::Revoke(owed.revoke));
            if self.check_permission(&change).is_err() {
                break;
            }
            let change = (change, owed.context);
            match self.sign_next(change, &owed.author, owed.requested_at_ms, means) {
                Ok(next) => signed.push(next),
                // Its form was checked when it was accepted; a full log needs a new key.
                Err(_) => break,
            }
            self.local_log.pop_pending();
        }
        signed
    }

    /// This node was shut down, and is at work again: others wait for its word from then on.
    fn sign_resume(&mut self, means: &mut ReplicaContext<'_>) -> Option<SignedOperation> {
        let change = LogChange::Grants(GrantChange::Revoke(Revoke::resume()));
        self.check_permission(&change).ok()?;
        let author = self.logs.local_node().to_string();
        // Its form is right; a full log needs a new key.
        let change = (change, CausalContext::default());
        self.sign_next(change, &author, means.now_ms, means).ok()
    }

    /// The change a node makes when it stops in good order.
    #[must_use]
    pub fn shutdown_change() -> LogChange {
        LogChange::Members(MemberChange::Rest {})
    }
}
