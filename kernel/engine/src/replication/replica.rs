//! One node's part in the logs of its cluster: what it holds, says, believes and may write. Told the time, given
//! randomness and a signature where it needs them; what it wants done comes out as effects.
//!
//! An entry is in force when it is taken, and said to be held only once it is on disk. So what another node says
//! to hold is not lost by its restart.

mod decisions;
mod inbound;
mod proposals;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::ids::NodeId;

pub use self::decisions::{AllowEnd, Confirmation, RemoteDenial};
pub use self::proposals::{ProposalError, ProposalOutcome};
use super::clocks::{ClockSkew, PeerClocks};
use super::lease::{Leases, Nonce};
use super::local_log::{LocalLog, PendingRevoke};
use super::log_batch::{LocalLogs, UncertainCursor, build_batch};
use super::logs::{ClusterLogs, LogHead, LogHeads, UnstoredEntries};
use super::node_instances::NodeInstances;
use crate::clock::MonotonicTime;
use crate::policy::grants::{ClusterId, LogKey, LogTip, Operation, SignedOperation};

/// Nodes that tickets name, at most: a node is invited by one.
const HINTS_MAX: usize = 16;

/// A message to another node, by a link that proves who sent it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogMessage {
    /// What the sender has; to be answered at once.
    Request {
        /// The sender's life.
        instance: LifeId,
        /// Comes back with the answer.
        nonce: Nonce,
        /// What it has.
        heads: Arc<LogHeads>,
        /// How long it is going to believe the answer. Older versions do not say it.
        lease: Option<Duration>,
    },
    /// The answer.
    Response {
        /// The sender's life.
        instance: LifeId,
        /// Of the question.
        nonce: Nonce,
        /// What it has.
        heads: Arc<LogHeads>,
    },
    /// What the sender has now; who lacks something asks.
    Announce {
        /// The sender's life.
        instance: LifeId,
        /// What it has.
        heads: Arc<LogHeads>,
    },
    /// Entries of any logs, as they came. Each proves by its signature whose it is.
    Entries(Vec<Arc<[u8]>>),
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaEffect {
    /// Put on disk, then say so with [`Replica::handle_stored`].
    Store {
        /// To be named then. What was asked for earlier is stored earlier.
        ticket: u64,
        /// Entries to append.
        entries: Vec<Arc<[u8]>>,
        /// The revocations that are owed from then on, all of them; None where they stay as they are.
        pending_revokes: Option<Vec<PendingRevoke>>,
    },
    /// Send.
    Send(NodeId, LogMessage),
    /// What is in force may have changed.
    Changed,
    /// Two living nodes have this node's key. These are all of which that is known, to be put on disk: only another
    /// key ends it, no restart of this node does.
    DuplicateKey(NodeId, BTreeSet<NodeId>),
}

/// What the node lends for a moment.
pub struct ReplicaContext<'a> {
    /// The time, by a clock that goes on while the machine sleeps.
    pub now: MonotonicTime,
    /// The time by the clock on the wall, in milliseconds since 1970.
    pub now_ms: u64,
    /// Makes a random number.
    pub nonce: &'a mut dyn FnMut() -> Nonce,
    /// Signs with the node's key.
    pub sign: &'a dyn Fn(Operation) -> SignedOperation,
}

impl std::fmt::Debug for ReplicaContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReplicaContext(at {:?})", self.now)
    }
}

/// What is known of another node.
#[derive(Clone, Debug, Default, Hash)]
struct ReplicaPeer {
    heads: Arc<LogHeads>,
    cursor: Option<UncertainCursor>,
    requested_at: Option<MonotonicTime>,
    their_lease: Option<GrantedLease>,
}

/// How long another node believes what this one has answered it.
#[derive(Clone, Copy, Debug, Hash)]
struct GrantedLease {
    /// By all its questions that said it.
    expires_at: MonotonicTime,
    /// Whose question was the last one.
    instance: LifeId,
    /// False when that one did not say it.
    is_known: bool,
}

/// Something on its way to the disk.
#[derive(Clone, Debug, Hash)]
struct PendingWrite {
    ticket: u64,
    keys: Vec<(NodeId, LogKey)>,
}

/// What a replica is made with.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// The node.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Random, for this start.
    pub instance: LifeId,
    /// How long what others tell is believed.
    pub lease: Duration,
    /// The nodes that a ticket names, spoken with before the members are known.
    pub hints: BTreeSet<NodeId>,
    /// What was owed.
    pub pending_revokes: Vec<PendingRevoke>,
    /// The nodes of which two lives were found.
    pub duplicates: BTreeSet<NodeId>,
}

/// The part of one node.
#[derive(Clone, Debug, Hash)]
pub struct Replica {
    logs: ClusterLogs,
    instance: LifeId,
    hints: BTreeSet<NodeId>,
    unstored: UnstoredEntries,
    /// What is on disk: every message says it.
    heads: Arc<LogHeads>,
    pending_writes: VecDeque<PendingWrite>,
    last_ticket: u64,
    local_log: LocalLog,
    /// True when this node has signed since its start that it stops.
    has_signed_shutdown: bool,
    leases: Leases,
    instances: NodeInstances,
    clocks: PeerClocks,
    skew: ClockSkew,
    peers: BTreeMap<NodeId, ReplicaPeer>,
    /// The ends of logs that this node had on its disk, and does not know any more.
    lost_tips: BTreeMap<NodeId, LogTip>,
    /// Something else that it had is lost for good.
    has_lost_data: bool,
}

impl Replica {
    /// With what is on disk, in the order in which it was stored.
    #[must_use]
    pub fn new<'a>(
        start: ReplicaConfig,
        stored: impl IntoIterator<Item = &'a SignedOperation>,
    ) -> Self {
        let mut logs = ClusterLogs::new(start.node, start.cluster);
        logs.merge_all(stored);
        Self {
            heads: Arc::new(logs.heads(&UnstoredEntries::new())),
            logs,
            instance: start.instance,
            hints: start.hints,
            unstored: UnstoredEntries::new(),
            pending_writes: VecDeque::new(),
            last_ticket: 0,
            local_log: LocalLog::new(start.pending_revokes),
            has_signed_shutdown: false,
            leases: Leases::new(start.lease),
            instances: NodeInstances::new(&start.duplicates),
            clocks: PeerClocks::default(),
            skew: ClockSkew::default(),
            peers: BTreeMap::new(),
            lost_tips: BTreeMap::new(),
            has_lost_data: false,
        }
    }

    /// Names ends of logs that this node had on its disk. As long as one of them is not known, agents of other nodes
    /// may do nothing here, and this node signs nothing if it is of its own log: other nodes bring what is missing.
    pub fn expect_lost_tips(&mut self, held_before: impl IntoIterator<Item = (NodeId, LogTip)>) {
        self.lost_tips.extend(held_before);
        self.apply_known_tips();
    }

    /// Something is lost that no other node has: agents of other nodes may do nothing here.
    pub fn mark_data_lost(&mut self) {
        self.has_lost_data = true;
    }

    /// The disk of this node was restored from a backup: until every other node has confirmed its log, agents of other
    /// nodes may do nothing here, and this node signs nothing.
    pub fn require_restore_confirmation(&mut self) {
        self.local_log.require_all_confirmations();
    }

    /// True while that is so.
    #[must_use]
    pub fn is_unconfirmed_restore(&self) -> bool {
        self.local_log.requires_all()
    }

    /// True while this node lacks something that it had.
    #[must_use]
    pub(crate) fn is_missing_entries(&self) -> bool {
        self.has_lost_data || self.is_unconfirmed_restore() || !self.lost_tips.is_empty()
    }

    /// The logs that lack something that this node had of them.
    pub fn incomplete_logs(&self) -> impl Iterator<Item = NodeId> {
        self.lost_tips.keys().copied()
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
    fn update_head(&mut self, issuer: NodeId) {
        let head = self.logs.head(issuer, self.unstored.get(&issuer));
        let heads = Arc::make_mut(&mut self.heads);
        if head == LogHead::EMPTY {
            heads.remove(&issuer)
        } else {
            heads.insert(issuer, head)
        };
    }

    fn head(&self, issuer: NodeId) -> LogHead {
        self.heads.get(&issuer).copied().unwrap_or(LogHead::EMPTY)
    }

    /// Whom this node speaks with: who is in, and who perhaps is; whom its ticket names, until it is in itself.
    #[must_use]
    pub fn contacts(&self) -> BTreeSet<NodeId> {
        let members = self.logs.members();
        let known = members.iter().filter(|(_, member)| member.cut_at.is_none());
        let known = known.map(|(node, _)| node);
        let hints = self.hints.iter().copied();
        let hints = hints.filter(|node| members.get(*node).is_none());
        let mut all: BTreeSet<NodeId> = known.chain(hints).collect();
        all.remove(&self.logs.local_node());
        all
    }

    /// True when the last that is known of a node is that it shuts down: it wrote so, and has not answered since.
    #[must_use]
    pub fn is_shut_down(&self, node: NodeId) -> bool {
        self.logs.grants().is_resting(node) && !self.leases.has_responded(node)
    }

    /// Whether it is one of those.
    fn is_contact(&self, node: NodeId) -> bool {
        let member = self.logs.members().get(node);
        let known = member.map(|member| member.cut_at.is_none());
        node != self.logs.local_node() && known.unwrap_or_else(|| self.hints.contains(&node))
    }

    /// This node's ticket names another one to speak with.
    pub fn add_invite_hint(&mut self, node: NodeId) {
        if self.hints.len() < HINTS_MAX {
            self.hints.insert(node);
        }
    }

    /// The other nodes that are in now.
    fn other_members(&self) -> BTreeSet<NodeId> {
        let all = self.logs.members().iter();
        let others =
            all.filter(|(node, member)| *node != self.logs.local_node() && member.is_active());
        others.map(|(node, _)| node).collect()
    }

    /// Of those this node speaks with, whoever was not asked for so long.
    fn peers_due_for_request(&self, since: Duration, now: MonotonicTime) -> BTreeSet<NodeId> {
        let members = self.logs.members().iter().map(|(node, _)| node);
        let all = members.chain(self.hints.iter().copied());
        let due = |node: &NodeId| {
            let asked_at = self.peers.get(node).and_then(|peer| peer.requested_at);
            asked_at.is_none_or(|at| now.duration_since(at) >= since)
        };
        all.filter(|node| due(node) && self.is_contact(*node))
            .collect()
    }

    /// Time has passed: asks whoever has not been asked for a third of the lease.
    pub fn handle_timeout(&mut self, means: &mut ReplicaContext<'_>) -> Vec<ReplicaEffect> {
        let mut effects = self.update_local_log(means);
        effects.extend(self.update_skew(means));
        let due = self.leases.duration() / 3;
        for node in self.peers_due_for_request(due, means.now) {
            effects.push(self.request_logs(node, means));
        }
        effects
    }

    /// There is a new link to this node.
    pub fn handle_link_up(
        &mut self,
        node: NodeId,
        means: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        if self.is_contact(node) {
            vec![self.request_logs(node, means)]
        } else {
            Vec::new()
        }
    }

    fn request_logs(&mut self, node: NodeId, means: &mut ReplicaContext<'_>) -> ReplicaEffect {
        let nonce = (means.nonce)();
        self.leases.record_request(node, nonce, means.now);
        self.peers.entry(node).or_default().requested_at = Some(means.now);
        let ask = LogMessage::Request {
            instance: self.instance,
            nonce,
            heads: self.heads(),
            lease: Some(self.leases.duration()),
        };
        ReplicaEffect::Send(node, ask)
    }

    /// Everything up to this ticket is on disk: others are told.
    pub fn handle_stored(
        &mut self,
        ticket: u64,
        means: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        let mut issuers = BTreeSet::new();
        while let Some(storing) = self
            .pending_writes
            .pop_front_if(|first| first.ticket <= ticket)
        {
            for (issuer, key) in storing.keys {
                issuers.insert(issuer);
                if let Some(keys) = self.unstored.get_mut(&issuer) {
                    keys.remove(&key);
                }
            }
        }
        self.unstored.retain(|_, keys| !keys.is_empty());
        issuers.iter().for_each(|issuer| self.update_head(*issuer));
        let mut effects = self.update_local_log(means);
        if !issuers.is_empty() {
            let heads = self.heads();
            for node in self.contacts() {
                let (life, heads) = (self.instance, heads.clone());
                let entries = self.batch_for(node);
                effects.extend(entries);
                effects.push(ReplicaEffect::Send(
                    node,
                    LogMessage::Announce {
                        instance: life,
                        heads,
                    },
                ));
            }
        }
        effects
    }

    /// More of what the node lacks by what it last told: an earlier message of entries is on its way no more.
    pub fn handle_delivered(&mut self, node: NodeId) -> Option<ReplicaEffect> {
        let speaks = self.is_contact(node);
        speaks.then(|| self.batch_for(node)).flatten()
    }

    /// What the node lacks by what it last told.
    fn batch_for(&mut self, node: NodeId) -> Option<ReplicaEffect> {
        let peer = self.peers.get_mut(&node)?;
        let mine = LocalLogs {
            logs: &self.logs,
            unstored: &self.unstored,
            heads: &self.heads,
        };
        let batch = build_batch(mine, &peer.heads, peer.cursor);
        peer.cursor = batch.cursor;
        let send = LogMessage::Entries(batch.entries);
        (send != LogMessage::Entries(Vec::new())).then_some(ReplicaEffect::Send(node, send))
    }

    /// Puts entries that were taken on the way to the disk.
    fn persist(
        &mut self,
        signed: &[SignedOperation],
        owed: Option<Vec<PendingRevoke>>,
    ) -> Option<ReplicaEffect> {
        if signed.is_empty() && owed.is_none() {
            return None;
        }
        self.last_ticket += 1;
        let keys = signed.iter().map(SignedOperation::encoded);
        let keys: Vec<(NodeId, LogKey)> = keys
            .map(|written| {
                (
                    written.issuer(),
                    (written.position().sequence, written.id()),
                )
            })
            .collect();
        for (issuer, key) in &keys {
            self.unstored.entry(*issuer).or_default().insert(*key);
        }
        let issuers: BTreeSet<NodeId> = keys.iter().map(|(issuer, _)| *issuer).collect();
        issuers
            .into_iter()
            .for_each(|issuer| self.update_head(issuer));
        let ticket = self.last_ticket;
        self.pending_writes.push_back(PendingWrite { ticket, keys });
        Some(ReplicaEffect::Store {
            ticket,
            entries: signed.iter().map(SignedOperation::entry_bytes).collect(),
            pending_revokes: owed,
        })
    }
}
