//! One node's part in the logs of its cluster: what it holds, says, believes and may write. Told the time, given
//! randomness and a signature where it needs them; what it wants done comes out as effects.
//!
//! An entry is in force when it is taken, and said to be held only once it is on disk. So what another node says
//! to hold is not lost by its restart.

mod deciding;
mod hearing;
#[cfg(test)]
mod tests;
mod writing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::ids::NodeId;

pub use self::deciding::{AllowEnd, Confirmation, RemoteDenial};
pub use self::writing::{NotProposed, Proposed};
use super::clocks::{ClockSpread, SeenClocks};
use super::exchange::{BehindCursor, Mine, batch};
use super::lease::{Leases, Nonce};
use super::lives::NodeLives;
use super::logs::{ClusterLogs, LogHead, LogHeads, Unstored};
use super::own_log::{OwedRevoke, OwnLog};
use crate::clock::MonotonicTime;
use crate::policy::grants::{ClusterId, LogKey, LogTip, Operation, Signed};

/// Nodes that tickets name, at most: a node is invited by one.
const HINTS_MAX: usize = 16;

/// A message to another node, by a link that proves who sent it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogMessage {
    /// What the sender has; to be answered at once.
    Ask {
        /// The sender's life.
        life: LifeId,
        /// Comes back with the answer.
        nonce: Nonce,
        /// What it has.
        heads: Arc<LogHeads>,
        /// How long it is going to believe the answer. Older versions do not say it.
        lease: Option<Duration>,
    },
    /// The answer.
    Answer {
        /// The sender's life.
        life: LifeId,
        /// Of the question.
        nonce: Nonce,
        /// What it has.
        heads: Arc<LogHeads>,
    },
    /// What the sender has now; who lacks something asks.
    Tell {
        /// The sender's life.
        life: LifeId,
        /// What it has.
        heads: Arc<LogHeads>,
    },
    /// Entries of any logs, as they came. Each proves by its signature whose it is.
    Entries(Vec<Arc<[u8]>>),
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaEffect {
    /// Put on disk, then say so with [`Replica::stored`].
    Store {
        /// To be named then. What was asked for earlier is stored earlier.
        ticket: u64,
        /// Entries to append.
        entries: Vec<Arc<[u8]>>,
        /// The revocations that are owed from then on, all of them; None where they stay as they are.
        owed: Option<Vec<OwedRevoke>>,
    },
    /// Send.
    Send(NodeId, LogMessage),
    /// What is in force may have changed.
    Changed,
    /// Two living nodes have this node's key. These are all of which that is known, to be put on disk: only another
    /// key ends it, no restart of this node does.
    Twice(NodeId, BTreeSet<NodeId>),
}

/// What the node lends for a moment.
pub struct ReplicaMeans<'a> {
    /// The time, by a clock that goes on while the machine sleeps.
    pub now: MonotonicTime,
    /// The time by the clock on the wall, in milliseconds since 1970.
    pub now_ms: u64,
    /// Makes a random number.
    pub nonce: &'a mut dyn FnMut() -> Nonce,
    /// Signs with the node's key.
    pub sign: &'a dyn Fn(Operation) -> Signed,
}

impl std::fmt::Debug for ReplicaMeans<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReplicaMeans(at {:?})", self.now)
    }
}

/// What is known of another node.
#[derive(Clone, Debug, Default, Hash)]
struct ReplicaPeer {
    heads: Arc<LogHeads>,
    cursor: Option<BehindCursor>,
    asked_at: Option<MonotonicTime>,
    answered: Option<AnsweredLease>,
}

/// How long another node believes what this one has answered it.
#[derive(Clone, Copy, Debug, Hash)]
struct AnsweredLease {
    /// By all its questions that said it.
    until: MonotonicTime,
    /// Whose question was the last one.
    life: LifeId,
    /// False when that one did not say it.
    is_known: bool,
}

/// Something on its way to the disk.
#[derive(Clone, Debug, Hash)]
struct Storing {
    ticket: u64,
    keys: Vec<(NodeId, LogKey)>,
}

/// What a replica is made with.
#[derive(Clone, Debug)]
pub struct ReplicaStart {
    /// The node.
    pub here: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Random, for this start.
    pub life: LifeId,
    /// How long what others tell is believed.
    pub lease: Duration,
    /// The nodes that a ticket names, spoken with before the members are known.
    pub hints: BTreeSet<NodeId>,
    /// What was owed.
    pub owed: Vec<OwedRevoke>,
    /// The nodes of which two lives were found.
    pub twice: BTreeSet<NodeId>,
}

/// The part of one node.
#[derive(Clone, Debug, Hash)]
pub struct Replica {
    logs: ClusterLogs,
    life: LifeId,
    hints: BTreeSet<NodeId>,
    unstored: Unstored,
    /// What is on disk: every message says it.
    heads: Arc<LogHeads>,
    storing: VecDeque<Storing>,
    tickets: u64,
    own: OwnLog,
    /// True when this node has signed since its start that it stops.
    rested: bool,
    leases: Leases,
    lives: NodeLives,
    clocks: SeenClocks,
    spread: ClockSpread,
    peers: BTreeMap<NodeId, ReplicaPeer>,
    /// The ends of logs that this node had on its disk, and does not know any more.
    held_before: BTreeMap<NodeId, LogTip>,
    /// Something else that it had is lost for good.
    is_closed: bool,
}

impl Replica {
    /// With what is on disk, in the order in which it was stored.
    #[must_use]
    pub fn new<'a>(start: ReplicaStart, stored: impl IntoIterator<Item = &'a Signed>) -> Self {
        let mut logs = ClusterLogs::new(start.here, start.cluster);
        logs.take_all(stored);
        Self {
            heads: Arc::new(logs.heads(&Unstored::new())),
            logs,
            life: start.life,
            hints: start.hints,
            unstored: Unstored::new(),
            storing: VecDeque::new(),
            tickets: 0,
            own: OwnLog::new(start.owed),
            rested: false,
            leases: Leases::new(start.lease),
            lives: NodeLives::new(&start.twice),
            clocks: SeenClocks::default(),
            spread: ClockSpread::default(),
            peers: BTreeMap::new(),
            held_before: BTreeMap::new(),
            is_closed: false,
        }
    }

    /// Names ends of logs that this node had on its disk. As long as one of them is not known, agents of other nodes
    /// may do nothing here, and this node signs nothing if it is of its own log: other nodes bring what is missing.
    pub fn expect(&mut self, held_before: impl IntoIterator<Item = (NodeId, LogTip)>) {
        self.held_before.extend(held_before);
        self.settle();
    }

    /// Something is lost that no other node has: agents of other nodes may do nothing here.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// The disk of this node was restored from a backup: until every other node has confirmed its log, agents of other
    /// nodes may do nothing here, and this node signs nothing.
    pub fn declare_restored(&mut self) {
        self.own.require_all();
    }

    /// True while that is so.
    #[must_use]
    pub fn is_unconfirmed_restore(&self) -> bool {
        self.own.needs_all()
    }

    /// True while this node lacks something that it had.
    #[must_use]
    pub fn is_shortened(&self) -> bool {
        self.is_closed || self.is_unconfirmed_restore() || !self.held_before.is_empty()
    }

    /// The logs that lack something that this node had of them.
    pub fn shortened(&self) -> impl Iterator<Item = NodeId> {
        self.held_before.keys().copied()
    }

    /// What is known of the logs.
    #[must_use]
    pub fn logs(&self) -> &ClusterLogs {
        &self.logs
    }

    /// What this node says to hold: what is on its disk.
    #[must_use]
    pub fn heads(&self) -> Arc<LogHeads> {
        self.heads.clone()
    }

    /// Something of this log was taken or stored.
    fn judge_head(&mut self, issuer: NodeId) {
        let head = self.logs.head(issuer, self.unstored.get(&issuer));
        let heads = Arc::make_mut(&mut self.heads);
        match head == LogHead::EMPTY {
            true => heads.remove(&issuer),
            false => heads.insert(issuer, head),
        };
    }

    fn head(&self, issuer: NodeId) -> LogHead {
        self.heads.get(&issuer).copied().unwrap_or(LogHead::EMPTY)
    }

    /// Whom this node speaks with: who is in, and who perhaps is; whom its ticket names, until it is in itself.
    #[must_use]
    pub fn speaks_with(&self) -> BTreeSet<NodeId> {
        let members = self.logs.members();
        let known = members.all().filter(|(_, member)| member.cut.is_none());
        let known = known.map(|(node, _)| node);
        let hints = self.hints.iter().copied();
        let hints = hints.filter(|node| members.get(*node).is_none());
        let mut all: BTreeSet<NodeId> = known.chain(hints).collect();
        all.remove(&self.logs.here());
        all
    }

    /// True when the last that is known of a node is that it shuts down: it wrote so, and has not answered since.
    #[must_use]
    pub fn is_resting(&self, node: NodeId) -> bool {
        self.logs.grants().rests(node) && !self.leases.was_heard(node)
    }

    /// Whether it is one of those.
    fn is_spoken_with(&self, node: NodeId) -> bool {
        let member = self.logs.members().get(node);
        let known = member.map(|member| member.cut.is_none());
        node != self.logs.here() && known.unwrap_or_else(|| self.hints.contains(&node))
    }

    /// This node's ticket names another one to speak with.
    pub fn invited_by(&mut self, node: NodeId) {
        if self.hints.len() < HINTS_MAX {
            self.hints.insert(node);
        }
    }

    /// The other nodes that are in now.
    fn others(&self) -> BTreeSet<NodeId> {
        let all = self.logs.members().all();
        let others = all.filter(|(node, member)| *node != self.logs.here() && member.is_in());
        others.map(|(node, _)| node).collect()
    }

    /// Of those this node speaks with, whoever was not asked for so long.
    fn not_asked(&self, since: Duration, now: MonotonicTime) -> BTreeSet<NodeId> {
        let members = self.logs.members().all().map(|(node, _)| node);
        let all = members.chain(self.hints.iter().copied());
        let due = |node: &NodeId| {
            let asked_at = self.peers.get(node).and_then(|peer| peer.asked_at);
            asked_at.is_none_or(|at| now.since(at) >= since)
        };
        all.filter(|node| due(node) && self.is_spoken_with(*node))
            .collect()
    }

    /// Time has passed: asks whoever has not been asked for a third of the lease.
    pub fn tick(&mut self, means: &mut ReplicaMeans<'_>) -> Vec<ReplicaEffect> {
        let mut effects = self.judge(means);
        effects.extend(self.judge_clocks(means));
        let due = self.leases.length() / 3;
        for node in self.not_asked(due, means.now) {
            effects.push(self.ask(node, means));
        }
        effects
    }

    /// There is a new link to this node.
    pub fn linked(&mut self, node: NodeId, means: &mut ReplicaMeans<'_>) -> Vec<ReplicaEffect> {
        match self.is_spoken_with(node) {
            true => vec![self.ask(node, means)],
            false => Vec::new(),
        }
    }

    fn ask(&mut self, node: NodeId, means: &mut ReplicaMeans<'_>) -> ReplicaEffect {
        let nonce = (means.nonce)();
        self.leases.asked(node, nonce, means.now);
        self.peers.entry(node).or_default().asked_at = Some(means.now);
        let ask = LogMessage::Ask {
            life: self.life,
            nonce,
            heads: self.heads(),
            lease: Some(self.leases.length()),
        };
        ReplicaEffect::Send(node, ask)
    }

    /// Everything up to this ticket is on disk: others are told.
    pub fn stored(&mut self, ticket: u64, means: &mut ReplicaMeans<'_>) -> Vec<ReplicaEffect> {
        let mut issuers = BTreeSet::new();
        while let Some(storing) = self.storing.pop_front_if(|first| first.ticket <= ticket) {
            for (issuer, key) in storing.keys {
                issuers.insert(issuer);
                if let Some(keys) = self.unstored.get_mut(&issuer) {
                    keys.remove(&key);
                }
            }
        }
        self.unstored.retain(|_, keys| !keys.is_empty());
        issuers.iter().for_each(|issuer| self.judge_head(*issuer));
        let mut effects = self.judge(means);
        if !issuers.is_empty() {
            let heads = self.heads();
            for node in self.speaks_with() {
                let (life, heads) = (self.life, heads.clone());
                let entries = self.entries_for(node);
                effects.extend(entries);
                effects.push(ReplicaEffect::Send(node, LogMessage::Tell { life, heads }));
            }
        }
        effects
    }

    /// More of what the node lacks by what it last told: an earlier message of entries is on its way no more.
    pub fn brought(&mut self, node: NodeId) -> Option<ReplicaEffect> {
        let speaks = self.is_spoken_with(node);
        speaks.then(|| self.entries_for(node)).flatten()
    }

    /// What the node lacks by what it last told.
    fn entries_for(&mut self, node: NodeId) -> Option<ReplicaEffect> {
        let peer = self.peers.get_mut(&node)?;
        let mine = Mine {
            logs: &self.logs,
            unstored: &self.unstored,
            heads: &self.heads,
        };
        let batch = batch(mine, &peer.heads, peer.cursor);
        peer.cursor = batch.cursor;
        let send = LogMessage::Entries(batch.entries);
        (send != LogMessage::Entries(Vec::new())).then_some(ReplicaEffect::Send(node, send))
    }

    /// Puts entries that were taken on the way to the disk.
    fn store(&mut self, signed: &[Signed], owed: Option<Vec<OwedRevoke>>) -> Option<ReplicaEffect> {
        if signed.is_empty() && owed.is_none() {
            return None;
        }
        self.tickets += 1;
        let keys = signed.iter().map(Signed::written);
        let keys: Vec<(NodeId, LogKey)> = keys
            .map(|written| (written.issuer(), (written.place().sequence, written.id())))
            .collect();
        for (issuer, key) in &keys {
            self.unstored.entry(*issuer).or_default().insert(*key);
        }
        let issuers: BTreeSet<NodeId> = keys.iter().map(|(issuer, _)| *issuer).collect();
        issuers
            .into_iter()
            .for_each(|issuer| self.judge_head(issuer));
        let ticket = self.tickets;
        self.storing.push_back(Storing { ticket, keys });
        Some(ReplicaEffect::Store {
            ticket,
            entries: signed.iter().map(Signed::entry).collect(),
            owed,
        })
    }
}
