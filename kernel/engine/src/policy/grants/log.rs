//! What is known of one issuer's log: the part that is certain, and what lies behind its end because an
//! operation before it is missing or the issuer signed two for one place.
//!
//! All of it depends on the set of known operations alone, not on the order in which they came.

use std::collections::BTreeMap;

use super::{LogTip, NotApplied, OperationId, Written};

/// Operations kept of one log while earlier ones are missing; more are refused, and come again with those
/// before them. Peers send logs in order, so only what was pushed ahead waits.
pub const HELD_MAX: usize = 4096;
/// Operations kept of the branches of a forked log besides the longest one. A node that signed two branches by
/// mistake is noticed long before.
pub(super) const BRANCHES_MAX: u64 = 65_536;

/// An operation's place and id: a forked log has several in one place.
pub type LogKey = (u64, OperationId);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IssuerLog {
    items: BTreeMap<LogKey, GrantLogItem>,
    /// How many operations from the first on are certain: one for each place, each naming the one before.
    certain: u64,
    /// The last of them.
    last: Option<OperationId>,
    /// The first place that is claimed by two.
    fork: Option<u64>,
    /// How many have no unbroken chain to the start.
    held: usize,
    /// The length of the longest chain from the start.
    longest: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GrantLogItem {
    previous: OperationId,
    attached: bool,
}

/// What became of an operation in its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrantTaken {
    Known,
    New,
}

impl IssuerLog {
    pub(super) fn is_forked(&self) -> bool {
        self.fork.is_some()
    }

    /// The first place that is claimed by two.
    pub(super) fn fork(&self) -> Option<u64> {
        self.fork
    }

    pub(super) fn certain(&self) -> u64 {
        self.certain
    }

    /// The certain part's end.
    pub(super) fn tip(&self) -> LogTip {
        LogTip {
            next: self.certain,
            id: self.last.unwrap_or(OperationId::START),
        }
    }

    /// The end of the first `next` operations, which must be certain.
    pub(super) fn tip_at(&self, next: u64) -> LogTip {
        if next == self.certain {
            return self.tip();
        }
        LogTip {
            next,
            id: self.id_before(next).unwrap_or(OperationId::START),
        }
    }

    /// The id of the operation before this place, which must be certain.
    fn id_before(&self, sequence: u64) -> Option<OperationId> {
        let before = sequence.checked_sub(1)?;
        self.ids(before).next()
    }

    /// Everything from this place on.
    pub(super) fn from(&self, sequence: u64) -> impl Iterator<Item = LogKey> + use<'_> {
        let from = (sequence, OperationId::START);
        self.items.range(from..).map(|(key, _)| *key)
    }

    fn ids(&self, sequence: u64) -> impl Iterator<Item = OperationId> + use<'_> {
        self.at(sequence).map(|(key, _)| key.1)
    }

    fn at(&self, sequence: u64) -> impl Iterator<Item = (&LogKey, &GrantLogItem)> {
        let (first, last) = (OperationId::START, OperationId([0xff; 32]));
        self.items.range((sequence, first)..=(sequence, last))
    }

    /// Takes an operation.
    pub(super) fn take(&mut self, written: &Written) -> Result<GrantTaken, NotApplied> {
        let key @ (sequence, id) = (written.place().sequence, written.id());
        let previous = written.operation().previous;
        if self.goes_on_with(sequence, previous) {
            self.items.insert(
                key,
                GrantLogItem {
                    previous,
                    attached: true,
                },
            );
            (self.certain, self.last) = (sequence + 1, Some(id));
            self.longest = self.longest.max(self.certain);
            return Ok(GrantTaken::New);
        }
        if self.items.contains_key(&key) {
            return Ok(GrantTaken::Known);
        }
        let attached = self.attaches(sequence, previous);
        self.has_room(attached)?;
        let contested = self.contested(sequence, id, previous);
        self.fork = self.fork.into_iter().chain(contested).min();
        self.items.insert(key, GrantLogItem { previous, attached });
        match attached {
            true => self.attach(key),
            false => self.held += 1,
        }
        self.settle();
        Ok(GrantTaken::New)
    }

    /// True for the usual case: the next one of a log that is certain as far as it is known.
    fn goes_on_with(&self, sequence: u64, previous: OperationId) -> bool {
        let whole = self.items.len() as u64 == self.certain && self.fork.is_none();
        whole && sequence == self.certain && previous == self.tip().id
    }

    fn attaches(&self, sequence: u64, previous: OperationId) -> bool {
        match sequence.checked_sub(1) {
            None => true,
            Some(before) => {
                let before = self.items.get(&(before, previous));
                before.is_some_and(|item| item.attached)
            }
        }
    }

    fn has_room(&self, attached: bool) -> Result<(), NotApplied> {
        let from = self.certain;
        if !attached {
            return match self.held < HELD_MAX {
                true => Ok(()),
                false => Err(NotApplied::Gap { from }),
            };
        }
        let attached = (self.items.len() - self.held) as u64;
        match attached - self.longest < BRANCHES_MAX {
            true => Ok(()),
            false => Err(NotApplied::TooManyBranches),
        }
    }

    /// The first place that this operation shows to be claimed by two.
    fn contested(&self, sequence: u64, id: OperationId, previous: OperationId) -> Option<u64> {
        let before = sequence.checked_sub(1);
        let other_before = before.filter(|before| {
            self.ids(*before).any(|known| known != previous)
                || self.at(sequence).any(|(_, item)| item.previous != previous)
        });
        let other_here = || {
            let mut named = self.at(sequence + 1).map(|(_, item)| item.previous);
            self.ids(sequence).next().is_some() || named.any(|named| named != id)
        };
        other_before.or_else(|| other_here().then_some(sequence))
    }

    /// What waited for this one has its chain now.
    fn attach(&mut self, key: LogKey) {
        let mut reached = vec![key];
        while let Some((sequence, id)) = reached.pop() {
            self.longest = self.longest.max(sequence + 1);
            let last = OperationId([0xff; 32]);
            let behind = (sequence + 1, OperationId::START)..=(sequence + 1, last);
            for (key, item) in self.items.range_mut(behind) {
                if item.previous == id && !item.attached {
                    item.attached = true;
                    self.held -= 1;
                    reached.push(*key);
                }
            }
        }
    }

    fn settle(&mut self) {
        let end = self.fork.unwrap_or(u64::MAX);
        let before = self.certain;
        self.certain = self.certain.min(end);
        while self.certain < end && self.ids(self.certain).next().is_some() {
            self.certain += 1;
        }
        if self.certain != before {
            self.last = self.id_before(self.certain);
        }
    }
}
