//! What comes from other nodes.

use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::ids::NodeId;

use super::{AnsweredLease, LogMessage, Replica, ReplicaEffect, ReplicaMeans};
use crate::clock::MonotonicTime;
use crate::cluster::clock_offset::MeasuredClock;
use crate::policy::grants::{LogTip, Signed};
use crate::replication::exchange::lacks;
use crate::replication::lease::Nonce;
use crate::replication::lives::LifeHeard;
use crate::replication::logs::{LogHead, LogHeads};

/// How far what a node says is taken into account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Belief {
    /// Not at all.
    None,
    /// Once it has answered a question.
    OnceItAnswers,
    /// In full.
    Full,
}

impl Replica {
    /// A node has said what it has. `from` is whose key the link has proved.
    pub fn hear(
        &mut self,
        from: NodeId,
        message: LogMessage,
        means: &mut ReplicaMeans<'_>,
    ) -> Vec<ReplicaEffect> {
        if !self.is_spoken_with(from) {
            return Vec::new();
        }
        let before = self.lives.is_twice(from);
        let mut effects = match message {
            LogMessage::Ask {
                life,
                nonce,
                heads,
                lease,
            } => self.asked(from, life, nonce, lease, heads, means),
            LogMessage::Answer { life, nonce, heads } => {
                self.answered(from, life, nonce, heads, means)
            }
            LogMessage::Tell { life, heads } => self.told(from, life, heads, means),
            // Their signatures are verified first: `take`.
            LogMessage::Entries(_) => Vec::new(),
        };
        if before != self.lives.is_twice(from) {
            // Its agents may do nothing from now on. Who is in no more needs no mark.
            let speaks_with = self.speaks_with();
            let twice = self.lives.twice();
            let twice = twice.filter(|node| speaks_with.contains(node)).collect();
            effects.push(ReplicaEffect::Twice(from, twice));
            effects.push(ReplicaEffect::Changed);
        }
        effects
    }

    fn asked(
        &mut self,
        from: NodeId,
        life: LifeId,
        nonce: Nonce,
        lease: Option<Duration>,
        theirs: Arc<LogHeads>,
        means: &mut ReplicaMeans<'_>,
    ) -> Vec<ReplicaEffect> {
        let belief = self.believes(from, life, false);
        if belief == Belief::None {
            return Vec::new();
        }
        let answer = LogMessage::Answer {
            life: self.life,
            nonce,
            heads: self.heads(),
        };
        self.note_answered(from, life, lease, means.now);
        let mut effects = vec![ReplicaEffect::Send(from, answer)];
        match belief {
            Belief::None => {}
            Belief::OnceItAnswers => effects.push(self.ask(from, means)),
            Belief::Full => {
                effects.extend(self.compare(from, theirs, means));
            }
        }
        effects
    }

    /// The asker believes this answer for its lease from its question on, so no longer than for as much from now.
    fn note_answered(
        &mut self,
        node: NodeId,
        life: LifeId,
        lease: Option<Duration>,
        now: MonotonicTime,
    ) {
        let peer = self.peers.entry(node).or_default();
        let until = now + lease.unwrap_or_default();
        peer.answered = Some(AnsweredLease {
            until: peer
                .answered
                .map_or(until, |before| before.until.max(until)),
            life,
            is_known: lease.is_some(),
        });
    }

    fn answered(
        &mut self,
        from: NodeId,
        life: LifeId,
        nonce: Nonce,
        theirs: Arc<LogHeads>,
        means: &mut ReplicaMeans<'_>,
    ) -> Vec<ReplicaEffect> {
        let asked_at = self.leases.answered(from, nonce);
        if self.believes(from, life, asked_at.is_some()) != Belief::Full {
            return Vec::new();
        }
        if let Some(asked_at) = asked_at {
            let own = theirs.get(&from).copied().unwrap_or(LogHead::EMPTY);
            self.leases.told(from, asked_at, own.tip);
            self.settle();
        }
        self.compare(from, theirs, means)
    }

    fn told(
        &mut self,
        from: NodeId,
        life: LifeId,
        theirs: Arc<LogHeads>,
        means: &mut ReplicaMeans<'_>,
    ) -> Vec<ReplicaEffect> {
        match self.believes(from, life, false) {
            Belief::None => return Vec::new(),
            Belief::OnceItAnswers => return vec![self.ask(from, means)],
            Belief::Full => {}
        }
        let lacks = lacks(&self.logs, &theirs, &self.heads);
        let mut effects = self.compare(from, theirs, means);
        if lacks {
            effects.push(self.ask(from, means));
        }
        effects
    }

    /// Whether what this life says is taken into account.
    fn believes(&mut self, from: NodeId, life: LifeId, answers: bool) -> Belief {
        let heard = self.lives.heard(from, life, answers);
        if heard == LifeHeard::Begins {
            // What was asked before proves nothing about who lives now.
            self.leases.forget_questions(from);
        }
        if self.lives.is_twice(from) {
            self.leases.end(from);
            return Belief::None;
        }
        match heard {
            LifeHeard::Lives | LifeHeard::Begins => Belief::Full,
            LifeHeard::Unproven => Belief::OnceItAnswers,
            LifeHeard::Left => Belief::None,
        }
    }

    /// Takes into account what the node has, and sends what it lacks.
    fn compare(
        &mut self,
        from: NodeId,
        theirs: Arc<LogHeads>,
        means: &mut ReplicaMeans<'_>,
    ) -> Vec<ReplicaEffect> {
        let here = self.logs.here();
        let of_mine = theirs.get(&here).copied().unwrap_or(LogHead::EMPTY);
        let mine = self.head(here);
        let tip = self.logs.grants().tip_at(here, of_mine.tip.next);
        let knows =
            tip == Some(of_mine.tip) && (of_mine.behind.is_none() || of_mine.behind == mine.behind);
        self.own.told(from, of_mine, mine, knows, means.now);
        self.peers.entry(from).or_default().heads = theirs;
        let mut effects = self.judge(means);
        effects.extend(self.entries_for(from));
        effects
    }

    /// Entries came whose signatures were verified, from whomever.
    pub fn take(&mut self, signed: &[Signed], means: &mut ReplicaMeans<'_>) -> Vec<ReplicaEffect> {
        let here = self.logs.here();
        let before = self.logs.grants().tip(here);
        let new: Vec<Signed> = self.logs.take_all(signed).into_iter().cloned().collect();
        if new.is_empty() {
            return Vec::new();
        }
        if self.logs.grants().tip(here) != before {
            self.own.refilled();
        }
        for issuer in new.iter().map(|signed| signed.written().issuer()) {
            if self.logs.grants().rests(issuer) {
                self.leases.end(issuer);
            }
        }
        self.settle();
        let mut effects: Vec<ReplicaEffect> = self.store(&new, None).into_iter().collect();
        effects.push(ReplicaEffect::Changed);
        effects.extend(self.judge(means));
        effects
    }

    /// The wall clock of another node was measured.
    pub fn clock_measured(
        &mut self,
        node: NodeId,
        clock: MeasuredClock,
        means: &mut ReplicaMeans<'_>,
    ) -> Vec<ReplicaEffect> {
        let mut clocks = std::mem::take(&mut self.clocks);
        if clocks.measured(node, clock, means.now_ms, means.now) {
            clocks.retain(|node| self.is_spoken_with(node));
        }
        self.clocks = clocks;
        self.judge_clocks(means)
    }

    /// Judges anew how far the clocks of those who could take something back are from the one here.
    pub(super) fn judge_clocks(&mut self, means: &ReplicaMeans<'_>) -> Vec<ReplicaEffect> {
        let could = self.logs.members().who_could_revoke();
        let spread = self.clocks.spread(could, means.now_ms, means.now);
        let before = std::mem::replace(&mut self.spread, spread);
        match before == spread {
            true => Vec::new(),
            false => vec![ReplicaEffect::Changed],
        }
    }

    pub(super) fn settle(&mut self) {
        let grants = self.logs.grants();
        let knows = |node, tip: LogTip| grants.tip_at(node, tip.next) == Some(tip);
        self.leases.settle(knows);
        self.held_before.retain(|node, tip| !knows(*node, *tip));
    }
}
