//! What comes from other nodes.

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

/// How far what a node says is taken into account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acceptance {
    /// Not at all.
    Reject,
    /// Once it has answered a question.
    AfterResponse,
    /// In full.
    Accept,
}

impl Replica {
    /// A node has said what it has. `from` is whose key the link has proved.
    pub fn handle_message(
        &mut self,
        from: NodeId,
        message: LogMessage,
        means: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        if !self.is_contact(from) {
            return Vec::new();
        }
        let before = self.instances.has_duplicate(from);
        let mut effects = match message {
            LogMessage::Request {
                instance: life,
                nonce,
                heads,
                lease,
            } => self.handle_request(from, life, nonce, lease, heads, means),
            LogMessage::Response {
                instance: life,
                nonce,
                heads,
            } => self.handle_response(from, life, nonce, heads, means),
            LogMessage::Announce {
                instance: life,
                heads,
            } => self.handle_announce(from, life, heads, means),
            // Their signatures are verified first: `take`.
            LogMessage::Entries(_) => Vec::new(),
        };
        if before != self.instances.has_duplicate(from) {
            // Its agents may do nothing from now on. Who is in no more needs no mark.
            let speaks_with = self.contacts();
            let twice = self.instances.duplicates();
            let twice = twice.filter(|node| speaks_with.contains(node)).collect();
            effects.push(ReplicaEffect::DuplicateKey(from, twice));
            effects.push(ReplicaEffect::Changed);
        }
        effects
    }

    fn handle_request(
        &mut self,
        from: NodeId,
        life: LifeId,
        nonce: Nonce,
        lease: Option<Duration>,
        theirs: Arc<LogHeads>,
        means: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        let belief = self.classify_instance(from, life, false);
        if belief == Acceptance::Reject {
            return Vec::new();
        }
        let answer = LogMessage::Response {
            instance: self.instance,
            nonce,
            heads: self.heads(),
        };
        self.record_granted_lease(from, life, lease, means.now);
        let mut effects = vec![ReplicaEffect::Send(from, answer)];
        match belief {
            Acceptance::Reject => {}
            Acceptance::AfterResponse => effects.push(self.request_logs(from, means)),
            Acceptance::Accept => {
                effects.extend(self.compare_heads(from, theirs, means));
            }
        }
        effects
    }

    /// The asker believes this answer for its lease from its question on, so no longer than for as much from now.
    fn record_granted_lease(
        &mut self,
        node: NodeId,
        life: LifeId,
        lease: Option<Duration>,
        now: MonotonicTime,
    ) {
        let peer = self.peers.entry(node).or_default();
        let until = now + lease.unwrap_or_default();
        peer.their_lease = Some(GrantedLease {
            expires_at: peer
                .their_lease
                .map_or(until, |before| before.expires_at.max(until)),
            instance: life,
            is_known: lease.is_some(),
        });
    }

    fn handle_response(
        &mut self,
        from: NodeId,
        life: LifeId,
        nonce: Nonce,
        theirs: Arc<LogHeads>,
        means: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        let asked_at = self.leases.take_request(from, nonce);
        if self.classify_instance(from, life, asked_at.is_some()) != Acceptance::Accept {
            return Vec::new();
        }
        if let Some(asked_at) = asked_at {
            let own = theirs.get(&from).copied().unwrap_or(LogHead::EMPTY);
            self.leases.record_tip(from, asked_at, own.tip);
            self.apply_known_tips();
        }
        self.compare_heads(from, theirs, means)
    }

    fn handle_announce(
        &mut self,
        from: NodeId,
        life: LifeId,
        theirs: Arc<LogHeads>,
        means: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        match self.classify_instance(from, life, false) {
            Acceptance::Reject => return Vec::new(),
            Acceptance::AfterResponse => return vec![self.request_logs(from, means)],
            Acceptance::Accept => {}
        }
        let lacks = has_unknown_entries(&self.logs, &theirs, &self.heads);
        let mut effects = self.compare_heads(from, theirs, means);
        if lacks {
            effects.push(self.request_logs(from, means));
        }
        effects
    }

    /// Whether what this life says is taken into account.
    fn classify_instance(&mut self, from: NodeId, life: LifeId, answers: bool) -> Acceptance {
        let heard = self.instances.observe(from, life, answers);
        if heard == InstanceStatus::New {
            // What was asked before proves nothing about who lives now.
            self.leases.discard_requests(from);
        }
        if self.instances.has_duplicate(from) {
            self.leases.expire(from);
            return Acceptance::Reject;
        }
        match heard {
            InstanceStatus::Current | InstanceStatus::New => Acceptance::Accept,
            InstanceStatus::Unproven => Acceptance::AfterResponse,
            InstanceStatus::Previous => Acceptance::Reject,
        }
    }

    /// Takes into account what the node has, and sends what it lacks.
    fn compare_heads(
        &mut self,
        from: NodeId,
        theirs: Arc<LogHeads>,
        means: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        let here = self.logs.local_node();
        let of_mine = theirs.get(&here).copied().unwrap_or(LogHead::EMPTY);
        let mine = self.head(here);
        let tip = self.logs.grants().tip_at(here, of_mine.tip.next);
        let knows =
            tip == Some(of_mine.tip) && (of_mine.behind.is_none() || of_mine.behind == mine.behind);
        self.local_log
            .handle_head(from, of_mine, mine, knows, means.now);
        self.peers.entry(from).or_default().heads = theirs;
        let mut effects = self.update_local_log(means);
        effects.extend(self.batch_for(from));
        effects
    }

    /// Entries came whose signatures were verified, from whomever.
    pub fn handle_entries(
        &mut self,
        signed: &[SignedOperation],
        means: &mut ReplicaContext<'_>,
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
        effects.extend(self.update_local_log(means));
        effects
    }

    /// The wall clock of another node was measured.
    pub fn record_clock(
        &mut self,
        node: NodeId,
        clock: PeerClock,
        means: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        let mut clocks = std::mem::take(&mut self.clocks);
        if clocks.record(node, clock, means.now_ms, means.now) {
            clocks.retain(|node| self.is_contact(node));
        }
        self.clocks = clocks;
        self.update_skew(means)
    }

    /// Judges anew how far the clocks of those who could take something back are from the one here.
    pub(super) fn update_skew(&mut self, means: &ReplicaContext<'_>) -> Vec<ReplicaEffect> {
        let could = self.logs.members().possible_revokers();
        let spread = self.clocks.skew(could, means.now_ms, means.now);
        let before = std::mem::replace(&mut self.skew, spread);
        if before == spread {
            Vec::new()
        } else {
            vec![ReplicaEffect::Changed]
        }
    }

    pub(super) fn apply_known_tips(&mut self) {
        let grants = self.logs.grants();
        let knows = |node, tip: LogTip| grants.tip_at(node, tip.next) == Some(tip);
        self.leases.apply_known_tips(knows);
        self.lost_tips.retain(|node, tip| !knows(*node, *tip));
    }
}
