//! This node's own log: whether it may sign, and the revokes that wait for it.
//!
//! A node whose disk was lost or restored from a backup would sign a second operation for a sequence number that others
//! know already, and fork its log. So after a start it signs nothing until others have confirmed that they know exactly
//! as much of its log. Revokes of that time are in force here at once, and are signed as soon as possible.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mgp_protocol::ids::NodeId;

use super::logs::LogHead;
use crate::clock::MonotonicTime;
use crate::policy::grants::{CausalContext, Revoke};

/// Most pending revokes; more are rejected until these are signed. A person makes one at a time.
pub(crate) const PENDING_REVOKES_MAX: usize = 1024;

/// A revoke that was accepted while nothing could be signed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PendingRevoke {
    /// The revoke.
    pub revoke: Revoke,
    /// The author.
    pub author: String,
    /// The time of the request, in milliseconds since 1970.
    pub requested_at_ms: u64,
    /// The operations known at that time.
    pub context: CausalContext,
}

/// What other nodes report about this node's own log.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct LocalLog {
    confirmed: bool,
    /// The disk was restored from a backup: one node alone may hold what came after it, so each must confirm.
    requires_all: bool,
    confirmed_by: BTreeSet<NodeId>,
    /// The nodes that report unknown entries of it, and since when.
    claims: BTreeMap<NodeId, MonotonicTime>,
    /// In the order of their requests.
    pending: Vec<PendingRevoke>,
}

impl LocalLog {
    /// Restores the pending revokes after a start.
    #[must_use]
    pub(crate) fn new(pending: Vec<PendingRevoke>) -> Self {
        Self {
            pending,
            ..Self::default()
        }
    }

    /// Requires a confirmation from every other node.
    pub(crate) fn require_all_confirmations(&mut self) {
        self.requires_all = true;
        self.confirmed = false;
    }

    /// Records a node's head of this log; `is_known` is true if all of it is known here. Only an equal head confirms. A
    /// node with a shorter one is sent the rest.
    pub(crate) fn handle_head(
        &mut self,
        by: NodeId,
        theirs: LogHead,
        mine: LogHead,
        is_known: bool,
        now: MonotonicTime,
    ) {
        if theirs == mine {
            self.claims.remove(&by);
            self.confirmed_by.insert(by);
        } else if !is_known {
            self.claims.entry(by).or_insert(now);
            // Another node signs with this key, or entries are lost here.
            self.confirmed = false;
            self.confirmed_by.clear();
        } else {
            self.claims.remove(&by);
            self.confirmed_by.remove(&by);
        }
    }

    /// Drops confirmations of the old head after others sent entries of this log.
    pub(crate) fn reset_confirmations(&mut self) {
        self.confirmed_by.clear();
    }

    /// True if the log is confirmed and no node reports unknown entries.
    #[must_use]
    pub(crate) fn is_settled(&self) -> bool {
        self.confirmed && self.claims.is_empty()
    }

    /// Updates the confirmation. `others` are the other active members: half of them must have confirmed, or all after a
    /// restore. A node that reports unknown entries and does not send them within a lease is ignored.
    pub(crate) fn update_confirmation(
        &mut self,
        others: &BTreeSet<NodeId>,
        now: MonotonicTime,
        lease: Duration,
    ) {
        self.claims
            .retain(|by, since| others.contains(by) && now.duration_since(*since) < lease);
        let confirmations = self.confirmed_by.intersection(others).count();
        let required = if self.requires_all {
            others.len()
        } else {
            others.len().div_ceil(2)
        };
        if self.claims.is_empty() && confirmations >= required {
            self.confirmed = true;
            self.requires_all = false;
        }
    }

    #[must_use]
    pub(crate) fn requires_all(&self) -> bool {
        self.requires_all
    }

    #[must_use]
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Adds a revoke that cannot be signed now; false if there are [`PENDING_REVOKES_MAX`].
    #[must_use]
    pub(crate) fn defer_revoke(&mut self, revoke: PendingRevoke) -> bool {
        let has_capacity = self.pending.len() < PENDING_REVOKES_MAX;
        if has_capacity {
            self.pending.push(revoke);
        }
        has_capacity
    }

    /// The pending revokes, in order.
    #[must_use]
    pub(crate) fn pending(&self) -> &[PendingRevoke] {
        &self.pending
    }

    /// Removes the first pending revoke after it was signed.
    pub(crate) fn pop_pending(&mut self) {
        if !self.pending.is_empty() {
            self.pending.remove(0);
        }
    }
}
