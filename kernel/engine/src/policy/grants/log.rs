//! The known part of one issuer's log: the certain part, and operations beyond it, because an earlier one is missing
//! or the issuer signed two for one position.
//!
//! All of it depends only on the set of known operations, not on the order in which they arrived.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::memory::tree_memory;
use super::{ApplyError, EncodedOperation, LogTip, OperationId};

/// Operations of one log buffered while earlier ones are missing; more are rejected, and arrive again with those
/// before them. Peers send logs in order, so only operations pushed ahead wait.
pub(crate) const BUFFERED_MAX: usize = 4096;
/// Operations stored of the branches of a forked log besides the longest one. A node that signed two branches by
/// mistake is noticed long before.
pub(super) const BRANCHES_MAX: u64 = 65_536;

/// An operation's sequence number and id: a forked log has several for one number.
pub type LogKey = (u64, OperationId);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IssuerLog {
    /// The certain part: one operation for each position, each naming the one before. Nothing but their order is
    /// stored.
    chain: Vec<OperationId>,
    /// The operations beyond it.
    items: BTreeMap<LogKey, GrantLogItem>,
    /// The first position with two operations.
    fork: Option<u64>,
    /// How many have no unbroken chain to the start.
    unattached: usize,
    /// The length of the longest chain from the start.
    longest_chain: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GrantLogItem {
    previous: OperationId,
    attached: bool,
}

/// The result of adding an operation to its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogInsertion {
    Duplicate,
    New,
}

impl IssuerLog {
    pub(super) fn is_forked(&self) -> bool {
        self.fork.is_some()
    }

    /// The first position with two operations.
    pub(super) fn fork(&self) -> Option<u64> {
        self.fork
    }

    /// The length of the certain part.
    pub(super) fn certain_len(&self) -> u64 {
        self.chain.len() as u64
    }

    /// The end of the certain part.
    pub(super) fn tip(&self) -> LogTip {
        self.tip_at(self.certain_len())
    }

    /// The end of the first `next` operations, which must be certain.
    pub(super) fn tip_at(&self, next: u64) -> LogTip {
        LogTip {
            next,
            id: self.id_before(next),
        }
    }

    /// The id of the operation before this position, which must be certain.
    fn id_before(&self, sequence: u64) -> OperationId {
        let before = sequence.checked_sub(1).and_then(|at| self.certain_at(at));
        before.unwrap_or(OperationId::START)
    }

    /// The certain operation at this position.
    fn certain_at(&self, sequence: u64) -> Option<OperationId> {
        let at = usize::try_from(sequence).ok()?;
        self.chain.get(at).copied()
    }

    /// True when this operation is known.
    pub(super) fn contains(&self, key: LogKey) -> bool {
        self.certain_at(key.0) == Some(key.1) || self.items.contains_key(&key)
    }

    /// All operations from this position on. Uncertain ones come after all certain ones.
    pub(super) fn keys_from(&self, sequence: u64) -> impl Iterator<Item = LogKey> + use<'_> {
        let first = usize::try_from(sequence).unwrap_or(usize::MAX);
        let first = first.min(self.chain.len());
        let certain = (first as u64..).zip(self.chain[first..].iter().copied());
        let behind = self.items.range((sequence, OperationId::START)..);
        certain.chain(behind.map(|(key, _)| *key))
    }

    /// The known operations at this position, each with the predecessor that it names.
    fn entries_at(&self, sequence: u64) -> impl Iterator<Item = (OperationId, OperationId)> {
        let certain = self.certain_at(sequence);
        let certain = certain.map(|id| (id, self.id_before(sequence)));
        let behind = self.items.range(keys_at(sequence));
        certain
            .into_iter()
            .chain(behind.map(|(key, item)| (key.1, item.previous)))
    }

    /// Adds an operation.
    pub(super) fn insert(
        &mut self,
        written: &EncodedOperation,
    ) -> Result<LogInsertion, ApplyError> {
        let key @ (sequence, id) = (written.position().sequence, written.id());
        let previous = written.operation().previous;
        if self.is_next(sequence, previous) {
            self.chain.push(id);
            self.longest_chain = self.longest_chain.max(self.certain_len());
            return Ok(LogInsertion::New);
        }
        if self.contains(key) {
            return Ok(LogInsertion::Duplicate);
        }
        let attached = self.is_attached(sequence, previous);
        self.check_capacity(attached)?;
        let contested = self.find_fork(sequence, id, previous);
        self.fork = self.fork.into_iter().chain(contested).min();
        self.items.insert(key, GrantLogItem { previous, attached });
        if attached {
            self.attach(key)
        } else {
            self.unattached += 1
        }
        self.update_certain();
        Ok(LogInsertion::New)
    }

    /// True for the usual case: the next operation of a log without uncertain ones.
    fn is_next(&self, sequence: u64, previous: OperationId) -> bool {
        let whole = self.items.is_empty() && self.fork.is_none();
        whole && sequence == self.certain_len() && previous == self.tip().id
    }

    fn is_attached(&self, sequence: u64, previous: OperationId) -> bool {
        match sequence.checked_sub(1) {
            None => true,
            Some(before) => {
                let item = self.items.get(&(before, previous));
                self.certain_at(before) == Some(previous) || item.is_some_and(|item| item.attached)
            }
        }
    }

    fn check_capacity(&self, attached: bool) -> Result<(), ApplyError> {
        let from = self.certain_len();
        if !attached {
            return if self.unattached < BUFFERED_MAX {
                Ok(())
            } else {
                Err(ApplyError::Gap { from })
            };
        }
        let attached = (self.chain.len() + self.items.len() - self.unattached) as u64;
        if attached - self.longest_chain < BRANCHES_MAX {
            Ok(())
        } else {
            Err(ApplyError::TooManyBranches)
        }
    }

    /// The first position that this operation reveals to have two.
    fn find_fork(&self, sequence: u64, id: OperationId, previous: OperationId) -> Option<u64> {
        let before = sequence.checked_sub(1);
        let other_before = before.filter(|before| {
            self.entries_at(*before).any(|(known, _)| known != previous)
                || self
                    .entries_at(sequence)
                    .any(|(_, named)| named != previous)
        });
        let other_here = || {
            let mut named = self.entries_at(sequence + 1).map(|(_, named)| named);
            self.entries_at(sequence).next().is_some() || named.any(|named| named != id)
        };
        other_before.or_else(|| other_here().then_some(sequence))
    }

    /// Attaches the operations that waited for this one.
    fn attach(&mut self, key: LogKey) {
        let mut reached = vec![key];
        while let Some((sequence, id)) = reached.pop() {
            self.longest_chain = self.longest_chain.max(sequence + 1);
            for (key, item) in self.items.range_mut(keys_at(sequence + 1)) {
                if item.previous == id && !item.attached {
                    item.attached = true;
                    self.unattached -= 1;
                    reached.push(*key);
                }
            }
        }
    }

    /// Extends or shortens the certain part.
    fn update_certain(&mut self) {
        let end = self.fork.unwrap_or(u64::MAX);
        while self.certain_len() > end
            && let Some(id) = self.chain.pop()
        {
            let (sequence, previous) = (self.certain_len(), self.tip().id);
            let attached = true;
            let item = GrantLogItem { previous, attached };
            self.items.insert((sequence, id), item);
        }
        while self.certain_len() < end {
            // Before the fork there is one for each position, and it names the one before.
            let next = self.items.range(keys_at(self.certain_len())).next();
            let Some(key) = next.map(|(key, _)| *key) else {
                return;
            };
            self.items.remove(&key);
            self.chain.push(key.1);
        }
    }

    /// The approximate memory use in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.chain.capacity() * size_of::<OperationId>()
            + tree_memory::<(LogKey, GrantLogItem)>(self.items.len())
    }
}

/// All operations at this position.
fn keys_at(sequence: u64) -> RangeInclusive<LogKey> {
    (sequence, OperationId::START)..=(sequence, OperationId([0xff; 32]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> OperationId {
        let mut id = [0xee; 32];
        id[..8].copy_from_slice(&n.to_be_bytes());
        OperationId(id)
    }

    /// A log of which so many operations claim the place after the first, and others wait for earlier ones.
    fn forked(branches: u64, held: usize) -> IssuerLog {
        let item = |attached| GrantLogItem {
            previous: id(0),
            attached,
        };
        let attached = (1..=branches).map(|n| ((1, id(n)), item(true)));
        let waiting = (0..held as u64).map(|n| ((9, id(n)), item(false)));
        IssuerLog {
            chain: vec![id(0)],
            items: attached.chain(waiting).collect(),
            fork: Some(1),
            unattached: held,
            longest_chain: 2,
        }
    }

    /// Besides the longest branch there is room for so many operations; those that wait have room of their own.
    #[test]
    fn branches_of_a_forked_log_are_bounded() {
        let full = Err(ApplyError::TooManyBranches);
        for held in [0, 1, BUFFERED_MAX - 1] {
            assert_eq!(forked(BRANCHES_MAX, held).check_capacity(true), Ok(()));
            assert_eq!(forked(BRANCHES_MAX + 1, held).check_capacity(true), full);
            assert_eq!(forked(BRANCHES_MAX + 1, held).check_capacity(false), Ok(()));
        }
        let gap = Err(ApplyError::Gap { from: 1 });
        assert_eq!(forked(2, BUFFERED_MAX).check_capacity(false), gap);
        assert_eq!(forked(2, BUFFERED_MAX).check_capacity(true), Ok(()));
    }
}
