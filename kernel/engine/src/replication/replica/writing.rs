//! What this node writes itself.

use super::{Replica, ReplicaEffect, ReplicaMeans};
use crate::policy::grants::{
    BadOperation, CausalContext, GrantChange, LogChange, LogPosition, MemberChange, Operation,
    Revoke, Signed,
};
use crate::replication::logs::GRANTING_BYTES_MAX;
use crate::replication::own_log::{OWED_MAX, OwedRevoke};

/// What became of a change that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposed {
    /// It is signed, at this place, and on the way to the disk.
    Signed(LogPosition),
    /// It counts here, and is signed once this node's log is confirmed.
    Owed,
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotProposed {
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
        "{OWED_MAX} revocations wait for another node to confirm the log of this one; connect it to one"
    )]
    TooMuchOwed,
    /// The logs leave room only for what takes away.
    #[error(
        "the logs of the cluster have {GRANTING_BYTES_MAX} bytes or more: only revokes fit from now on; found a new cluster for new grants"
    )]
    LogsFull,
    /// Its form.
    #[error(transparent)]
    Bad(#[from] BadOperation),
}

impl Replica {
    /// Asks for a change. It is acknowledged once it is stored.
    ///
    /// # Errors
    /// [`NotProposed`]; then nothing has changed.
    pub fn propose(
        &mut self,
        change: LogChange,
        author: &str,
        told_at_ms: u64,
        means: &mut ReplicaMeans<'_>,
    ) -> Result<(Proposed, Vec<ReplicaEffect>), NotProposed> {
        change.check()?;
        self.may_write(&change)?;
        if self.own.is_confirmed() {
            let rests = change == Self::rest();
            let (place, effects) = self.write(change, author, told_at_ms, means)?;
            self.rested |= rests;
            return Ok((Proposed::Signed(place), effects));
        }
        let LogChange::Grants(GrantChange::Revoke(revoke)) = change else {
            return Err(NotProposed::NotConfirmed);
        };
        let owed = OwedRevoke {
            context: self.context_of_owed(&revoke),
            revoke,
            author: author.to_owned(),
            told_at_ms,
        };
        if !self.own.owe(owed) {
            return Err(NotProposed::TooMuchOwed);
        }
        let owed = self.own.owed().to_vec();
        let mut effects: Vec<ReplicaEffect> = self.store(&[], Some(owed)).into_iter().collect();
        effects.push(ReplicaEffect::Changed);
        Ok((Proposed::Owed, effects))
    }

    /// What is known now: by the time a revoke is signed this node may have heard of grants that whoever asked for it
    /// knew nothing of.
    fn context_of_owed(&self, revoke: &Revoke) -> CausalContext {
        let (here, grants) = (self.logs.here(), self.logs.grants());
        let change = LogChange::Grants(GrantChange::Revoke(revoke.clone()));
        let mut context = grants.context(&change, here);
        context.logs.insert(here, grants.tip(here).next);
        context
    }

    /// Who certainly is an admin writes everything; who perhaps is one, what takes away.
    fn may_write(&self, change: &LogChange) -> Result<(), NotProposed> {
        let here = self.logs.here();
        let members = self.logs.members();
        let perhaps = members
            .get(here)
            .is_some_and(|it| it.may_take && it.cut.is_none() && it.demoted.is_none());
        if !members.is_admin(here) && (change.gives() || !perhaps) {
            return Err(NotProposed::NotAdmin);
        }
        if self.logs.grants().is_forked(here) {
            return Err(NotProposed::Forked);
        }
        match change.gives() && self.logs.entry_bytes() >= GRANTING_BYTES_MAX {
            true => Err(NotProposed::LogsFull),
            false => Ok(()),
        }
    }

    fn write(
        &mut self,
        change: LogChange,
        author: &str,
        told_at_ms: u64,
        means: &mut ReplicaMeans<'_>,
    ) -> Result<(LogPosition, Vec<ReplicaEffect>), NotProposed> {
        let context = self.logs.grants().context(&change, self.logs.here());
        let signed = self.signed((change, context), author, told_at_ms, means)?;
        let place = signed.written().place();
        let mut effects: Vec<ReplicaEffect> = self.store(&[signed], None).into_iter().collect();
        effects.push(ReplicaEffect::Changed);
        Ok((place, effects))
    }

    /// The next operation, taken here.
    fn signed(
        &mut self,
        (change, context): (LogChange, CausalContext),
        author: &str,
        told_at_ms: u64,
        means: &mut ReplicaMeans<'_>,
    ) -> Result<Signed, NotProposed> {
        let issuer = self.logs.here();
        let (sequence, previous) = self.logs.grants().next(issuer);
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
        let taken = self.logs.take(&signed);
        debug_assert!(taken.is_ok(), "{taken:?}");
        Ok(signed)
    }

    /// Judges whether this node may write, and signs what it owes when it may, or that it is at work again.
    pub(super) fn judge(&mut self, means: &mut ReplicaMeans<'_>) -> Vec<ReplicaEffect> {
        let here = self.logs.here();
        // What is lost of its log would be signed a second time.
        if !self.own.is_settled() && !self.held_before.contains_key(&here) {
            // Of whom two live, neither is believed, and neither can confirm anything: it is not waited for either, or
            // nobody could write down that it goes on under another key.
            let mut others = self.others();
            others.retain(|node| !self.lives.is_twice(*node));
            self.own.judge(&others, means.now, self.leases.length());
        }
        let resumes = !self.rested && self.logs.grants().rests(self.logs.here());
        if !self.own.is_confirmed() || (self.own.owed().is_empty() && !resumes) {
            return Vec::new();
        }
        let mut signed = self.signed_debts(means);
        // The entries are on disk before the debt is struck out: a crash between pays twice, which is harmless.
        let owed = (!signed.is_empty()).then(|| self.own.owed().to_vec());
        if resumes && signed.is_empty() {
            signed.extend(self.signed_resume(means));
        }
        if signed.is_empty() {
            return Vec::new();
        }
        let mut effects: Vec<ReplicaEffect> = self.store(&signed, owed).into_iter().collect();
        effects.push(ReplicaEffect::Changed);
        effects
    }

    /// What was owed, as far as it may be signed.
    fn signed_debts(&mut self, means: &mut ReplicaMeans<'_>) -> Vec<Signed> {
        let mut signed = Vec::new();
        while let Some(owed) = self.own.owed().first().cloned() {
            let change = LogChange::Grants(GrantChange::Revoke(owed.revoke));
            if self.may_write(&change).is_err() {
                break;
            }
            let change = (change, owed.context);
            match self.signed(change, &owed.author, owed.told_at_ms, means) {
                Ok(next) => signed.push(next),
                // Its form was checked when it was accepted; a full log needs a new key.
                Err(_) => break,
            }
            self.own.paid();
        }
        signed
    }

    /// This node was shut down, and is at work again: others wait for its word from then on.
    fn signed_resume(&mut self, means: &mut ReplicaMeans<'_>) -> Option<Signed> {
        let change = LogChange::Grants(GrantChange::Revoke(Revoke::resume()));
        self.may_write(&change).ok()?;
        let author = self.logs.here().to_string();
        // Its form is right; a full log needs a new key.
        let change = (change, CausalContext::default());
        self.signed(change, &author, means.now_ms, means).ok()
    }

    /// The change a node makes when it stops in good order.
    #[must_use]
    pub fn rest() -> LogChange {
        LogChange::Members(MemberChange::Rest {})
    }
}
