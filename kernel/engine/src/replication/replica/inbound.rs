//! Messages from other nodes.

use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::ids::NodeId;

use super::{GrantedLease, LogMessage, Replica, ReplicaContext, ReplicaEffect};
use crate::clock::MonotonicTime;
use crate::cluster::clock_offset::PeerClock;
use crate::policy::grants::{LogTip, SignedOperation};
use crate::replication::lease::Nonce;
use crate::replication::log_batch::has_unknown_entries;
use crate::replication::logs::{LogHead, LogHeads};
use crate::replication::node_instances::InstanceStatus;

/// How a message of an instance is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acceptance {
    Reject,
    /// Only once the instance has answered a request.
    AfterResponse,
    Accept,
}

impl Replica {
    /// Handles a message. The link has authenticated `from`.
    pub fn handle_message(
        &mut self,
        from: NodeId,
        message: LogMessage,
        cx: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        if !self.is_contact(from) {
            return Vec::new();
        }
        let before = self.instances.has_duplicate(from);
        let mut effects = match message {
            LogMessage::Request {
                instance,
                nonce,
                heads,
                lease,
            } => self.handle_request(from, instance, nonce, lease, heads, cx),
            LogMessage::Response {
                instance,
                nonce,
                heads,
            } => self.handle_response(from, instance, nonce, heads, cx),
            LogMessage::Announce { instance, heads } => {
                self.handle_announce(from, instance, heads, cx)
            }
            // The caller verifies signatures and calls `handle_entries`.
            LogMessage::Entries(_) => Vec::new(),
        };
        if before != self.instances.has_duplicate(from) {
            // Its agents are denied from now on. Nodes that are no contacts need no mark.
            let contacts = self.contacts();
            let duplicates = self.instances.duplicates();
            let duplicates = duplicates.filter(|node| contacts.contains(node)).collect();
            effects.push(ReplicaEffect::DuplicateKey(from, duplicates));
            effects.push(ReplicaEffect::Changed);
        }
        effects
    }

    fn handle_request(
        &mut self,
        from: NodeId,
        instance: LifeId,
        nonce: Nonce,
        lease: Option<Duration>,
        theirs: Arc<LogHeads>,
        cx: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        let acceptance = self.classify_instance(from, instance, false);
        if acceptance == Acceptance::Reject {
            return Vec::new();
        }
        let answer = LogMessage::Response {
            instance: self.instance,
            nonce,
            heads: self.heads(),
        };
        self.record_granted_lease(from, instance, lease, cx.now);
        let mut effects = vec![ReplicaEffect::Send(from, answer)];
        match acceptance {
            Acceptance::Reject => {}
            Acceptance::AfterResponse => effects.push(self.request_logs(from, cx)),
            Acceptance::Accept => {
                effects.extend(self.compare_heads(from, theirs, cx));
            }
        }
        effects
    }

    /// The requester's lease runs from the sending of its request, so it ends at most one lease from now.
    fn record_granted_lease(
        &mut self,
        node: NodeId,
        instance: LifeId,
        lease: Option<Duration>,
        now: MonotonicTime,
    ) {
        let peer = self.peers.entry(node).or_default();
        let until = now + lease.unwrap_or_default();
        peer.their_lease = Some(GrantedLease {
            expires_at: peer
                .their_lease
                .map_or(until, |before| before.expires_at.max(until)),
            instance,
            is_known: lease.is_some(),
        });
    }

    fn handle_response(
        &mut self,
        from: NodeId,
        instance: LifeId,
        nonce: Nonce,
        theirs: Arc<LogHeads>,
        cx: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        let asked_at = self.leases.take_request(from, nonce);
        if self.classify_instance(from, instance, asked_at.is_some()) != Acceptance::Accept {
            return Vec::new();
        }
        if let Some(asked_at) = asked_at {
            let head = theirs.get(&from).copied().unwrap_or(LogHead::EMPTY);
            self.leases.record_tip(from, asked_at, head.tip);
            self.apply_known_tips();
        }
        self.compare_heads(from, theirs, cx)
    }

    fn handle_announce(
        &mut self,
        from: NodeId,
        instance: LifeId,
        theirs: Arc<LogHeads>,
        cx: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        match self.classify_instance(from, instance, false) {
            Acceptance::Reject => return Vec::new(),
            Acceptance::AfterResponse => return vec![self.request_logs(from, cx)],
            Acceptance::Accept => {}
        }
        let has_unknown = has_unknown_entries(&self.logs, &theirs, &self.heads);
        let mut effects = self.compare_heads(from, theirs, cx);
        if has_unknown {
            effects.push(self.request_logs(from, cx));
        }
        effects
    }

    /// Decides how a message of this instance is treated.
    fn classify_instance(
        &mut self,
        from: NodeId,
        instance: LifeId,
        is_response: bool,
    ) -> Acceptance {
        let status = self.instances.observe(from, instance, is_response);
        if status == InstanceStatus::New {
            // A response to an earlier request proves nothing about the running instance.
            self.leases.discard_requests(from);
        }
        if self.instances.has_duplicate(from) {
            self.leases.expire(from);
            return Acceptance::Reject;
        }
        match status {
            InstanceStatus::Current | InstanceStatus::New => Acceptance::Accept,
            InstanceStatus::Unproven => Acceptance::AfterResponse,
            InstanceStatus::Previous => Acceptance::Reject,
        }
    }

    /// Records the node's heads, and sends the entries that it lacks.
    fn compare_heads(
        &mut self,
        from: NodeId,
        theirs: Arc<LogHeads>,
        cx: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        let here = self.logs.local_node();
        let reported_head = theirs.get(&here).copied().unwrap_or(LogHead::EMPTY);
        let local_head = self.head(here);
        let tip = self.logs.grants().tip_at(here, reported_head.tip.next);
        let is_known = tip == Some(reported_head.tip)
            && (reported_head.behind.is_none() || reported_head.behind == local_head.behind);
        self.local_log
            .handle_head(from, reported_head, local_head, is_known, cx.now);
        self.peers.entry(from).or_default().heads = theirs;
        let mut effects = self.update_local_log(cx);
        effects.extend(self.batch_for(from));
        effects
    }

    /// Merges entries whose signatures were verified, from any node.
    pub fn handle_entries(
        &mut self,
        signed: &[SignedOperation],
        cx: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        let here = self.logs.local_node();
        let before = self.logs.grants().tip(here);
        let new: Vec<SignedOperation> = self.logs.merge_all(signed).into_iter().cloned().collect();
        if new.is_empty() {
            return Vec::new();
        }
        if self.logs.grants().tip(here) != before {
            self.local_log.reset_confirmations();
        }
        for issuer in new.iter().map(|signed| signed.encoded().issuer()) {
            if self.logs.grants().is_resting(issuer) {
                self.leases.expire(issuer);
            }
        }
        self.apply_known_tips();
        let mut effects: Vec<ReplicaEffect> = self.persist(&new, None).into_iter().collect();
        effects.push(ReplicaEffect::Changed);
        effects.extend(self.update_local_log(cx));
        effects
    }

    /// Records a measurement of another node's wall clock.
    pub fn record_clock(
        &mut self,
        node: NodeId,
        clock: PeerClock,
        cx: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        let mut clocks = std::mem::take(&mut self.clocks);
        if clocks.record(node, clock, cx.now_ms, cx.now) {
            clocks.retain(|node| self.is_contact(node));
        }
        self.clocks = clocks;
        self.update_skew(cx)
    }

    /// Recomputes the skew to the clocks of the nodes that could revoke grants.
    pub(super) fn update_skew(&mut self, cx: &ReplicaContext<'_>) -> Vec<ReplicaEffect> {
        let revokers = self.logs.members().possible_revokers();
        let skew = self.clocks.skew(revokers, cx.now_ms, cx.now);
        let before = std::mem::replace(&mut self.skew, skew);
        if before == skew {
            Vec::new()
        } else {
            vec![ReplicaEffect::Changed]
        }
    }

    pub(super) fn apply_known_tips(&mut self) {
        let grants = self.logs.grants();
        let is_known = |node, tip: LogTip| grants.tip_at(node, tip.next) == Some(tip);
        self.leases.apply_known_tips(is_known);
        self.lost_tips.retain(|node, tip| !is_known(*node, *tip));
    }
}
