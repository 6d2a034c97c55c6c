//! One issuer's log: in its order, without gaps, without two entries for one place.

use std::collections::{BTreeMap, BTreeSet};

use super::{Applied, NotApplied, OperationId, Written};

/// Operations kept while an earlier one is missing; later ones are fetched again. Peers send logs in order,
/// so only operations pushed ahead wait.
pub(super) const AHEAD_MAX: u64 = 1024;
/// Most operations remembered of a forked log, so that repeated ones are recognised. Beyond it they are
/// applied again, which changes nothing.
const ASIDE_MAX: usize = 4096;

#[derive(Clone, Debug, Default)]
pub(super) struct IssuerLog {
    /// Hashes by sequence number, for recognising forks and repetitions.
    appended: Vec<OperationId>,
    held: BTreeMap<u64, Written>,
    fork: Option<BTreeSet<OperationId>>,
}

impl PartialEq for IssuerLog {
    /// Two forked logs are equal: which branch came first decides nothing.
    fn eq(&self, other: &Self) -> bool {
        match (&self.fork, &other.fork) {
            (None, None) => self.appended == other.appended && self.held == other.held,
            (Some(_), Some(_)) => true,
            (None, Some(_)) | (Some(_), None) => false,
        }
    }
}

impl IssuerLog {
    pub(super) fn is_forked(&self) -> bool {
        self.fork.is_some()
    }

    pub(super) fn next(&self) -> (u64, OperationId) {
        let last = self.appended.last().copied();
        (
            self.appended.len() as u64,
            last.unwrap_or(OperationId::START),
        )
    }

    /// Takes an operation; returns the operations that are part of the log now, in order.
    pub(super) fn take(
        &mut self,
        operation: &Written,
    ) -> Result<(Applied, Vec<Written>), NotApplied> {
        let id = operation.id();
        if self.fork.is_some() {
            return Ok((self.aside(id), Vec::new()));
        }
        let (next, head) = self.next();
        let sequence = operation.place().sequence;
        if let Some(known) = self.known(sequence) {
            return Ok(match known == id {
                true => (Applied::Known, Vec::new()),
                false => (self.quarantine(id), Vec::new()),
            });
        }
        if sequence >= next + AHEAD_MAX {
            return Err(NotApplied::Gap { from: next });
        }
        if sequence > next {
            self.held.insert(sequence, operation.clone());
            return Ok((Applied::Held, Vec::new()));
        }
        if operation.operation().previous != head {
            return Ok((self.quarantine(id), Vec::new()));
        }
        Ok(self.append(operation.clone(), id))
    }

    /// Appends it, and all operations that waited for it.
    fn append(&mut self, first: Written, id: OperationId) -> (Applied, Vec<Written>) {
        self.appended.push(id);
        let mut appended = vec![first];
        loop {
            let (next, head) = self.next();
            let Some(waiting) = self.held.remove(&next) else {
                return (Applied::Appended, appended);
            };
            let id = waiting.id();
            if waiting.operation().previous != head {
                return (self.quarantine(id), appended);
            }
            self.appended.push(id);
            appended.push(waiting);
        }
    }

    fn known(&self, sequence: u64) -> Option<OperationId> {
        let appended = usize::try_from(sequence)
            .ok()
            .and_then(|at| self.appended.get(at));
        let held = || self.held.get(&sequence).map(Written::id);
        appended.copied().or_else(held)
    }

    fn quarantine(&mut self, id: OperationId) -> Applied {
        self.held.clear();
        self.fork = Some(BTreeSet::from([id]));
        Applied::Forked
    }

    /// Nothing is appended to a forked log; what an operation takes away is returned once.
    fn aside(&mut self, id: OperationId) -> Applied {
        let Some(aside) = &mut self.fork else {
            return Applied::Known;
        };
        let known = aside.contains(&id) || self.appended.contains(&id);
        if known {
            return Applied::Known;
        }
        if aside.len() < ASIDE_MAX {
            aside.insert(id);
        }
        Applied::Forked
    }
}
