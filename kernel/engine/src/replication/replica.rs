//! One node's replica of the cluster's logs. Time, randomness and signatures are passed in; effects come out.
//!
//! An entry is in force when it is merged, and announced to others only once it is on disk, so that a restart loses
//! nothing that was announced.

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

#[cfg(test)]
pub(crate) use self::decisions::RemoteDenial;
pub use self::decisions::{AllowEnd, Confirmation};
pub use self::proposals::{ProposalError, ProposalOutcome};
use super::clocks::{ClockSkew, PeerClocks};
use super::lease::{Leases, Nonce};
use super::local_log::{LocalLog, PendingRevoke};
use super::log_batch::{LocalLogs, UncertainCursor, build_batch};
use super::logs::{ClusterLogs, LogHead, LogHeads, UnstoredEntries};
use super::node_instances::NodeInstances;
use crate::clock::MonotonicTime;
use crate::policy::grants::{ClusterId, LogKey, LogTip, Operation, SignedOperation};

/// Most nodes named by tickets: each ticket names the node that invites.
const HINTS_MAX: usize = 16;

/// A message to another node, over a link that authenticates the sender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogMessage {
    /// Sends the sender's heads and requests those of the receiver at once.
    Request {
        /// The sender's instance.
        instance: LifeId,
        /// Repeated in the response.
        nonce: Nonce,
        /// The sender's heads.
        heads: Arc<LogHeads>,
        /// How long the sender relies on the response. Older versions do not send it.
        lease: Option<Duration>,
    },
    /// The response to a request.
    Response {
        /// The sender's instance.
        instance: LifeId,
        /// The nonce of the request.
        nonce: Nonce,
        /// The sender's heads.
        heads: Arc<LogHeads>,
    },
    /// The sender's new heads. A receiver that lacks entries requests them.
    Announce {
        /// The sender's instance.
        instance: LifeId,
        /// The sender's heads.
        heads: Arc<LogHeads>,
    },
    /// Entries of any logs, unchanged. The signature of each proves its issuer.
    Entries(Vec<Arc<[u8]>>),
}

/// Effects, to be performed in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaEffect {
    /// Write to disk, then call [`Replica::handle_stored`].
    Store {
        /// The argument of that call. Writes are stored in the order of their tickets.
        ticket: u64,
        /// Entries to append.
        entries: Vec<Arc<[u8]>>,
        /// The complete new list of pending revokes; None if it is unchanged.
        pending_revokes: Option<Vec<PendingRevoke>>,
    },
    /// Send a message.
    Send(NodeId, LogMessage),
    /// The grants in force may have changed.
    Changed,
    /// Two running nodes have the key of the first one. Store the second: all nodes with duplicate keys. Only a new
    /// key clears the mark; a restart of this node does not.
    DuplicateKey(NodeId, BTreeSet<NodeId>),
}

/// Time, randomness and signatures for one call.
pub struct ReplicaContext<'a> {
    /// The time of a clock that also runs while the machine sleeps.
    pub now: MonotonicTime,
    /// The wall clock, in milliseconds since 1970.
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

#[derive(Clone, Debug, Default, Hash)]
struct ReplicaPeer {
    heads: Arc<LogHeads>,
    cursor: Option<UncertainCursor>,
    requested_at: Option<MonotonicTime>,
    their_lease: Option<GrantedLease>,
}

/// How long another node relies on the responses of this one.
#[derive(Clone, Copy, Debug, Hash)]
struct GrantedLease {
    /// The latest end over all its requests that carried a lease.
    expires_at: MonotonicTime,
    /// The instance that sent the last request.
    instance: LifeId,
    /// False if the last request carried no lease.
    is_known: bool,
}

#[derive(Clone, Debug, Hash)]
struct PendingWrite {
    ticket: u64,
    keys: Vec<(NodeId, LogKey)>,
}

/// The configuration and stored state of a replica.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// This node.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Random for each config.
    pub instance: LifeId,
    /// How long a response of another node counts.
    pub lease: Duration,
    /// The nodes named by a ticket, contacted before the members are known.
    pub hints: BTreeSet<NodeId>,
    /// Revokes that are not signed yet.
    pub pending_revokes: Vec<PendingRevoke>,
    /// The nodes whose keys were found to run twice.
    pub duplicates: BTreeSet<NodeId>,
}

/// One node's replica of all logs.
#[derive(Clone, Debug, Hash)]
pub struct Replica {
    logs: ClusterLogs,
    instance: LifeId,
    hints: BTreeSet<NodeId>,
    unstored: UnstoredEntries,
    /// The heads of what is on disk; sent with every message.
    heads: Arc<LogHeads>,
    pending_writes: VecDeque<PendingWrite>,
    last_ticket: u64,
    local_log: LocalLog,
    /// True if this node has signed a shutdown since its config.
    has_signed_shutdown: bool,
    leases: Leases,
    instances: NodeInstances,
    clocks: PeerClocks,
    skew: ClockSkew,
    peers: BTreeMap<NodeId, ReplicaPeer>,
    /// Tips that this node had on its disk and has lost.
    lost_tips: BTreeMap<NodeId, LogTip>,
    /// True if data is lost that no other node has.
    has_lost_data: bool,
}

impl Replica {
    /// Restores a replica from the stored entries, in the order in which they were stored.
    #[must_use]
    pub fn new<'a>(
        config: ReplicaConfig,
        stored: impl IntoIterator<Item = &'a SignedOperation>,
    ) -> Self {
        let mut logs = ClusterLogs::new(config.node, config.cluster);
        logs.merge_all(stored);
        Self {
            heads: Arc::new(logs.heads(&UnstoredEntries::new())),
            logs,
            instance: config.instance,
            hints: config.hints,
            unstored: UnstoredEntries::new(),
            pending_writes: VecDeque::new(),
            last_ticket: 0,
            local_log: LocalLog::new(config.pending_revokes),
            has_signed_shutdown: false,
            leases: Leases::new(config.lease),
            instances: NodeInstances::new(&config.duplicates),
            clocks: PeerClocks::default(),
            skew: ClockSkew::default(),
            peers: BTreeMap::new(),
            lost_tips: BTreeMap::new(),
            has_lost_data: false,
        }
    }

    /// Registers tips that this node had on its disk. Until other nodes have sent the missing entries, agents of other
    /// nodes are denied, and this node signs nothing if its own log is incomplete.
    pub fn expect_lost_tips(&mut self, stored_tips: impl IntoIterator<Item = (NodeId, LogTip)>) {
        self.lost_tips.extend(stored_tips);
        self.apply_known_tips();
    }

    /// Records a loss that no other node can repair: agents of other nodes are denied.
    pub fn mark_data_lost(&mut self) {
        self.has_lost_data = true;
    }

    /// Records that the disk was restored from a backup. Until every other node has confirmed this node's log, agents of
    /// other nodes are denied, and this node signs nothing.
    pub fn require_restore_confirmation(&mut self) {
        self.local_log.require_all_confirmations();
    }

    /// True until every other node has confirmed the log of a restored node.
    #[must_use]
    pub fn is_unconfirmed_restore(&self) -> bool {
        self.local_log.requires_all()
    }

    /// True while this node lacks entries that it had.
    #[must_use]
    pub(crate) fn is_missing_entries(&self) -> bool {
        self.has_lost_data || self.is_unconfirmed_restore() || !self.lost_tips.is_empty()
    }

    /// The logs that lack entries which this node had.
    pub fn incomplete_logs(&self) -> impl Iterator<Item = NodeId> {
        self.lost_tips.keys().copied()
    }

    /// The logs, with entries that are not on disk yet.
    #[must_use]
    pub fn logs(&self) -> &ClusterLogs {
        &self.logs
    }

    /// The heads of what is on disk, as announced to others.
    #[must_use]
    pub fn heads(&self) -> Arc<LogHeads> {
        self.heads.clone()
    }

    /// Updates the head after entries of this log were merged or stored.
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

    /// The nodes this node exchanges logs with: all members that are not cut off, and the nodes named by tickets until
    /// the logs mention them.
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

    /// True if the node signed a shutdown and has not answered since.
    #[must_use]
    pub fn is_shut_down(&self, node: NodeId) -> bool {
        self.logs.grants().is_resting(node) && !self.leases.has_responded(node)
    }

    /// Whether [`contacts`](Self::contacts) contains the node.
    fn is_contact(&self, node: NodeId) -> bool {
        let member = self.logs.members().get(node);
        let known = member.map(|member| member.cut_at.is_none());
        node != self.logs.local_node() && known.unwrap_or_else(|| self.hints.contains(&node))
    }

    /// Adds a node named by this node's ticket to the contacts.
    pub fn add_invite_hint(&mut self, node: NodeId) {
        if self.hints.len() < HINTS_MAX {
            self.hints.insert(node);
        }
    }

    /// The active members except this node.
    fn other_members(&self) -> BTreeSet<NodeId> {
        let all = self.logs.members().iter();
        let others =
            all.filter(|(node, member)| *node != self.logs.local_node() && member.is_active());
        others.map(|(node, _)| node).collect()
    }

    /// The contacts that got no request for `interval`.
    fn peers_due_for_request(&self, interval: Duration, now: MonotonicTime) -> BTreeSet<NodeId> {
        let members = self.logs.members().iter().map(|(node, _)| node);
        let all = members.chain(self.hints.iter().copied());
        let due = |node: &NodeId| {
            let requested_at = self.peers.get(node).and_then(|peer| peer.requested_at);
            requested_at.is_none_or(|at| now.duration_since(at) >= interval)
        };
        all.filter(|node| due(node) && self.is_contact(*node))
            .collect()
    }

    /// Sends a request to each contact that got none for a third of the lease.
    pub fn handle_timeout(&mut self, cx: &mut ReplicaContext<'_>) -> Vec<ReplicaEffect> {
        let mut effects = self.update_local_log(cx);
        effects.extend(self.update_skew(cx));
        let due = self.leases.duration() / 3;
        for node in self.peers_due_for_request(due, cx.now) {
            effects.push(self.request_logs(node, cx));
        }
        effects
    }

    /// Requests the heads of a node that was just linked.
    pub fn handle_link_up(
        &mut self,
        node: NodeId,
        cx: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        if self.is_contact(node) {
            vec![self.request_logs(node, cx)]
        } else {
            Vec::new()
        }
    }

    fn request_logs(&mut self, node: NodeId, cx: &mut ReplicaContext<'_>) -> ReplicaEffect {
        let nonce = (cx.nonce)();
        self.leases.record_request(node, nonce, cx.now);
        self.peers.entry(node).or_default().requested_at = Some(cx.now);
        let request = LogMessage::Request {
            instance: self.instance,
            nonce,
            heads: self.heads(),
            lease: Some(self.leases.duration()),
        };
        ReplicaEffect::Send(node, request)
    }

    /// Announces the new heads after everything up to this ticket is on disk.
    pub fn handle_stored(
        &mut self,
        ticket: u64,
        cx: &mut ReplicaContext<'_>,
    ) -> Vec<ReplicaEffect> {
        let mut issuers = BTreeSet::new();
        while let Some(write) = self
            .pending_writes
            .pop_front_if(|first| first.ticket <= ticket)
        {
            for (issuer, key) in write.keys {
                issuers.insert(issuer);
                if let Some(keys) = self.unstored.get_mut(&issuer) {
                    keys.remove(&key);
                }
            }
        }
        self.unstored.retain(|_, keys| !keys.is_empty());
        issuers.iter().for_each(|issuer| self.update_head(*issuer));
        let mut effects = self.update_local_log(cx);
        if !issuers.is_empty() {
            let heads = self.heads();
            for node in self.contacts() {
                effects.extend(self.batch_for(node));
                effects.push(ReplicaEffect::Send(
                    node,
                    LogMessage::Announce {
                        instance: self.instance,
                        heads: heads.clone(),
                    },
                ));
            }
        }
        effects
    }

    /// Returns the next batch for a node after the earlier one was delivered.
    pub fn handle_delivered(&mut self, node: NodeId) -> Option<ReplicaEffect> {
        self.is_contact(node)
            .then(|| self.batch_for(node))
            .flatten()
    }

    /// The next entries that the node lacks according to its last heads.
    fn batch_for(&mut self, node: NodeId) -> Option<ReplicaEffect> {
        let peer = self.peers.get_mut(&node)?;
        let local = LocalLogs {
            logs: &self.logs,
            unstored: &self.unstored,
            heads: &self.heads,
        };
        let batch = build_batch(local, &peer.heads, peer.cursor);
        peer.cursor = batch.cursor;
        let send = LogMessage::Entries(batch.entries);
        (send != LogMessage::Entries(Vec::new())).then_some(ReplicaEffect::Send(node, send))
    }

    /// Returns the effect that stores merged entries and pending revokes.
    fn persist(
        &mut self,
        signed: &[SignedOperation],
        pending_revokes: Option<Vec<PendingRevoke>>,
    ) -> Option<ReplicaEffect> {
        if signed.is_empty() && pending_revokes.is_none() {
            return None;
        }
        self.last_ticket += 1;
        let keys = signed.iter().map(SignedOperation::encoded);
        let keys: Vec<(NodeId, LogKey)> = keys
            .map(|encoded| {
                (
                    encoded.issuer(),
                    (encoded.position().sequence, encoded.id()),
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
            pending_revokes,
        })
    }
}
