//! The log this node writes itself: when it may write, and what it owes.
//!
//! A node whose disk was lost, or put back from a copy, would sign a second operation for a place that others
//! know already. So it signs nothing after a start until others have shown that they know exactly as much of its
//! log as it does. What it is asked to revoke meanwhile counts here at once, and is signed as soon as it may.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mgp_protocol::ids::NodeId;

use super::logs::LogHead;
use crate::clock::MonotonicTime;
use crate::policy::grants::{CausalContext, Revoke};

/// Revocations owed at most; further ones are refused until these are signed. A person makes one at a time.
pub(crate) const PENDING_REVOKES_MAX: usize = 1024;

/// A revocation that was accepted while nothing could be signed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PendingRevoke {
    /// What it revokes.
    pub revoke: Revoke,
    /// Who asked for it.
    pub author: String,
    /// When, in milliseconds since 1970.
    pub requested_at_ms: u64,
    /// What was known then.
    pub context: CausalContext,
}

/// What is known of this node's own log elsewhere.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct LocalLog {
    confirmed: bool,
    /// The disk was restored from a backup: one node alone may hold what came after it, so each must confirm.
    requires_all: bool,
    confirmed_by: BTreeSet<NodeId>,
    /// Who said to know more of it, and since when.
    claims: BTreeMap<NodeId, MonotonicTime>,
    /// In the order in which they were asked for.
    pending: Vec<PendingRevoke>,
}

impl LocalLog {
    /// After a start, with what was owed before.
    #[must_use]
    pub(crate) fn new(pending: Vec<PendingRevoke>) -> Self {
        Self {
            pending,
            ..Self::default()
        }
    }

    /// From now on, every other node must confirm this log.
    pub(crate) fn require_all_confirmations(&mut self) {
        self.requires_all = true;
        self.confirmed = false;
    }

    /// A node has told what it has of this log; `knows` is true when all of that is known here. Only an equal
    /// head confirms; a shorter one says nothing, it is pushed to.
    pub(crate) fn handle_head(
        &mut self,
        by: NodeId,
        theirs: LogHead,
        mine: LogHead,
        knows: bool,
        now: MonotonicTime,
    ) {
        if theirs == mine {
            self.claims.remove(&by);
            self.confirmed_by.insert(by);
        } else if !knows {
            self.claims.entry(by).or_insert(now);
            // Somebody else writes with this key, or something of it is lost.
            self.confirmed = false;
            self.confirmed_by.clear();
        } else {
            self.claims.remove(&by);
            self.confirmed_by.remove(&by);
        }
    }

    /// The log has grown by what others sent: what was equal to the old end confirms nothing.
    pub(crate) fn reset_confirmations(&mut self) {
        self.confirmed_by.clear();
    }

    /// True when nothing is to be judged: who has confirmed the log stands, and nobody says to know more.
    #[must_use]
    pub(crate) fn is_settled(&self) -> bool {
        self.confirmed && self.claims.is_empty()
    }

    /// Judges anew. `others` are in the cluster now. Half of them must have confirmed, of a restored node
    /// all; a node that is alone needs nobody. Who says to know more and does not send it within a lease is not waited for.
    pub(crate) fn update_confirmation(
        &mut self,
        others: &BTreeSet<NodeId>,
        now: MonotonicTime,
        lease: Duration,
    ) {
        self.claims
            .retain(|by, since| others.contains(by) && now.duration_since(*since) < lease);
        let equal = self.confirmed_by.intersection(others).count();
        let needed = if self.requires_all {
            others.len()
        } else {
            others.len().div_ceil(2)
        };
        if self.claims.is_empty() && equal >= needed {
            self.confirmed = true;
            self.requires_all = false;
        }
    }

    /// True after a restore until every other node has confirmed this log.
    #[must_use]
    pub(crate) fn requires_all(&self) -> bool {
        self.requires_all
    }

    /// True when the node may sign.
    #[must_use]
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Accepts a revocation that cannot be signed now; false when there are [`PENDING_REVOKES_MAX`].
    #[must_use]
    pub(crate) fn defer_revoke(&mut self, owed: PendingRevoke) -> bool {
        let room = self.pending.len() < PENDING_REVOKES_MAX;
        if room {
            self.pending.push(owed);
        }
        room
    }

    /// What is owed, in order.
    #[must_use]
    pub(crate) fn pending(&self) -> &[PendingRevoke] {
        &self.pending
    }

    /// The first of what was owed is signed and on disk.
    pub(crate) fn pop_pending(&mut self) {
        if !self.pending.is_empty() {
            self.pending.remove(0);
        }
    }
}
