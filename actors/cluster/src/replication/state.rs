//! The state of the replication actor: the replica, while this node is in a cluster, and pending replies.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::clock_offset::PeerClock;
use mgp_engine::node_key::{NodeKey, PublicKey};
use mgp_engine::policy::access::{ForeignLease, ForeignRules};
use mgp_engine::policy::grants::{ClusterId, GrantId, SignedOperation};
use mgp_engine::replication::lease::Nonce;
use mgp_engine::replication::remote_rules::{LocalServers, foreign_rules};
use mgp_engine::replication::replica::{
    Confirmation, LogMessage, Replica, ReplicaConfig, ReplicaContext, ReplicaEffect,
};
use mgp_policy::AccessHandle;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::federation::logs::LogsDigest;
use mgp_protocol::ids::NodeId;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::unix_ms;
use mgp_runtime::{EventSink, Mailbox, randomness, task};
use mgp_store::Witness;
use mgp_store::audit::{AuditHandle, state_damaged_event};
use mgp_store::backup::RESTORED_LOGS;
use mgp_sync::Snapshot;
use tokio::sync::{oneshot, watch};

use super::disk::{LOGS_WITNESS, LoadedLogs, LogJournals, LogWriter, OpenedLogs};
use super::pending::PendingProposal;
use super::view::ClusterView;
use super::wire::{WireMessage, parse_digest};
use super::{
    ClusterSnapshot, ReadLogs, ReplicationEvent, ReplicationMsg, ReplicationStart, TransferPermit,
    events, members, not_in_cluster,
};

/// The most queued writes; above it nothing of other nodes is accepted. They send it again.
pub(super) const STORES_MAX: usize = 64;
/// The most watched proposals; the oldest is dropped. A person waits for one.
const WATCHED_MAX: usize = 64;
/// The tick interval, and the fraction of a lease that limits it.
const TICK: Duration = Duration::from_secs(1);
const TICKS: u32 = 12;
/// The fraction of a lease by which its end must have grown before it is published.
const LEASE_GROWTH: u32 = 4;

/// A membership in a cluster, from joining until leaving.
pub(super) struct ClusterSession {
    pub(super) replica: Replica,
    pub(super) cluster: ClusterId,
    inviter: Option<PublicKey>,
    pub(super) journals: LogJournals,
    writer: LogWriter,
    number: u64,
    /// Tickets of writes that are not on disk yet.
    pub(super) storing: BTreeSet<u64>,
    /// Nodes to which entries are being sent.
    transfers: BTreeSet<NodeId>,
    /// Nodes of these that need another transfer.
    pending_transfers: BTreeSet<NodeId>,
    pub(super) pending_proposals: Vec<PendingProposal>,
    watchers: Vec<(u64, watch::Sender<Confirmation>)>,
    rules: Arc<ForeignRules>,
    /// Descriptions of losses that no other node can repair.
    lost: Vec<String>,
    /// The time of the backup that this node was restored from, until its log is confirmed.
    restored: Option<String>,
}

/// The state of the actor.
pub struct ReplicationState {
    pub(super) key: NodeKey,
    instance: LifeId,
    pub(super) folder: PathBuf,
    pub(super) witness: Witness,
    /// Set if a witness exists without logs.
    pub(super) missing: Option<Arc<str>>,
    lease: Duration,
    clock: fn() -> MonotonicTime,
    view: Arc<Snapshot<ClusterView>>,
    pub(super) access: AccessHandle,
    events: EventSink<ReplicationEvent>,
    pub(super) audit: AuditHandle,
    mailbox: Mailbox<ReplicationMsg>,
    servers: LocalServers,
    linked: BTreeSet<NodeId>,
    /// The number of the last session.
    last_session: u64,
    pub(super) session: Option<ClusterSession>,
    _ticks: SupervisedTask<()>,
}

impl std::fmt::Debug for ReplicationState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cluster = self.session.as_ref().map(|session| session.cluster);
        f.debug_struct("ReplicationState")
            .field("cluster", &cluster)
            .finish_non_exhaustive()
    }
}

/// Sends timer ticks to the actor. A tick lost in a full queue does no harm.
async fn send_ticks(me: Mailbox<ReplicationMsg>, each: Duration) {
    let mut interval = tokio::time::interval(each);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while me.is_open() {
        interval.tick().await;
        let _ = me.send(ReplicationMsg::Tick);
    }
}

impl ReplicationState {
    pub(super) fn new(
        start: ReplicationStart,
        found: LoadedLogs,
        me: Mailbox<ReplicationMsg>,
    ) -> Self {
        let each = (start.lease / TICKS).min(TICK);
        let mut state = Self {
            key: start.key,
            instance: start.instance,
            folder: start.folder,
            witness: start.witness,
            missing: found.missing.map(Into::into),
            lease: start.lease,
            clock: start.clock,
            view: start.view,
            access: start.access,
            events: start.events,
            audit: start.audit,
            _ticks: task::spawn_supervised("replication.ticks", send_ticks(me.clone(), each)),
            mailbox: me,
            servers: LocalServers::default(),
            linked: BTreeSet::new(),
            last_session: 0,
            session: None,
        };
        match found.opened {
            Some(found) => state.begin_session(found),
            None => state.publish_view(true),
        }
        if let Some(why) = &state.view.load().loss {
            tracing::error!("{why}");
            state.audit.record(state_damaged_event(why));
        }
        state
    }

    pub(super) fn begin_session(&mut self, found: OpenedLogs) {
        let OpenedLogs {
            owner, journals, ..
        } = found;
        self.last_session += 1;
        let inviter = owner.inviter();
        let start = ReplicaConfig {
            node: self.key.node_id(),
            cluster: owner.cluster,
            instance: self.instance,
            lease: self.lease,
            hints: inviter.map(|key| key.node_id()).into_iter().collect(),
            pending_revokes: found.owed,
            duplicates: found.duplicates,
        };
        let mut replica = Replica::new(start, &found.signed);
        replica.expect_lost_tips(found.tips);
        if found.lost.is_empty() {
            journals.witness_cluster(&owner)
        } else {
            replica.mark_data_lost()
        }
        if found.restored.is_some() {
            replica.require_restore_confirmation();
        }
        let rules = foreign_rules(&replica, &self.servers, unix_ms(), (self.clock)());
        let rules = Arc::new(rules);
        drop(self.access.set_foreign_rules(Some(rules.clone())));
        self.session = Some(ClusterSession {
            replica,
            cluster: owner.cluster,
            inviter,
            writer: LogWriter::start(journals.clone(), self.mailbox.clone(), self.last_session),
            journals,
            number: self.last_session,
            storing: BTreeSet::new(),
            transfers: BTreeSet::new(),
            pending_transfers: BTreeSet::new(),
            pending_proposals: Vec::new(),
            watchers: Vec::new(),
            rules,
            lost: found.lost,
            restored: found.restored,
        });
        self.missing = None;
        self.witness_tips();
        // A lone node confirms its own log; nodes that are linked already are asked.
        self.tick();
    }

    /// Runs a step of the replica and applies its effects. The returned receiver resolves when changed
    /// rules are in force.
    pub(super) fn run(
        &mut self,
        act: impl FnOnce(&mut Replica, &mut ReplicaContext<'_>) -> Vec<ReplicaEffect>,
    ) -> Option<oneshot::Receiver<()>> {
        let effects = self.with_replica(act)?;
        self.apply_effects(effects)
    }

    pub(super) fn with_replica<T>(
        &mut self,
        act: impl FnOnce(&mut Replica, &mut ReplicaContext<'_>) -> T,
    ) -> Option<T> {
        let session = self.session.as_mut()?;
        let key = &self.key;
        let mut means = ReplicaContext {
            now: (self.clock)(),
            now_ms: unix_ms(),
            nonce: &mut || Nonce(randomness::random_bytes()),
            sign: &|operation| SignedOperation::new(operation, key),
        };
        Some(act(&mut session.replica, &mut means))
    }

    pub(super) fn apply_effects(
        &mut self,
        effects: Vec<ReplicaEffect>,
    ) -> Option<oneshot::Receiver<()>> {
        let mut changed = false;
        for effect in effects {
            match effect {
                ReplicaEffect::Store {
                    ticket,
                    entries,
                    pending_revokes: owed,
                } => {
                    if let Some(session) = &mut self.session {
                        session.storing.insert(ticket);
                        session.writer.store(ticket, &entries, owed.as_deref());
                    }
                }
                ReplicaEffect::Send(node, message) => self.send(node, message),
                ReplicaEffect::Changed => changed = true,
                ReplicaEffect::DuplicateKey(node, all) => self.record_duplicate_key(node, &all),
            }
        }
        let in_force = self.update_rules(changed);
        self.publish_view(changed);
        self.update_watchers();
        in_force
    }

    /// Records and reports that two live nodes have this node's key.
    fn record_duplicate_key(&self, node: NodeId, all: &BTreeSet<NodeId>) {
        let Some(session) = &self.session else { return };
        session.writer.store_duplicates(all);
        let logs = session.replica.logs();
        self.audit
            .record(events::duplicate_key_event(node, logs.cluster()));
        let name = logs.members().get(node).map(|member| &*member.name);
        tracing::warn!(
            node = name.unwrap_or("?"),
            id = node.short_id(),
            "two living nodes have this key, and neither is let in any more: stop the copy, then `mgp nodes rekey` on the one that stays; or cut it off with `mgp nodes remove`"
        );
    }

    fn send(&mut self, node: NodeId, message: LogMessage) {
        let Some(session) = self
            .session
            .as_mut()
            .filter(|_| self.linked.contains(&node))
        else {
            return;
        };
        match WireMessage::from_message(message) {
            WireMessage::Held(digest) => {
                let message = Control::Logs(digest);
                self.events.send(ReplicationEvent::Send(node, message));
            }
            WireMessage::Entries(_) if session.transfers.contains(&node) => {
                session.pending_transfers.insert(node);
            }
            WireMessage::Entries(entries) => {
                session.transfers.insert(node);
                let turn = TransferPermit::new(node, self.mailbox.clone());
                self.events
                    .send(ReplicationEvent::Transfer(node, entries, turn));
            }
        }
    }

    /// Sends access control the rules of the logs, if they changed.
    fn update_rules(&mut self, changed: bool) -> Option<oneshot::Receiver<()>> {
        let now = (self.clock)();
        let session = self.session.as_mut()?;
        let lease = session.replica.lease(now);
        let next = match changed {
            true => foreign_rules(&session.replica, &self.servers, unix_ms(), now),
            false if has_lease_changed(session.rules.lease(), lease, self.lease) => {
                session.rules.with_lease(lease)
            }
            false => return None,
        };
        session.rules = Arc::new(next);
        Some(self.access.set_foreign_rules(Some(session.rules.clone())))
    }

    /// Publishes the view of the cluster, if it changed.
    pub(super) fn publish_view(&mut self, changed: bool) {
        let before = self.view.load();
        let local = self.key.node_id();
        let mut next = ClusterView::standalone(local, self.lease);
        next.loss = self.describe_loss();
        if before.loss.is_some() && next.loss.is_none() {
            tracing::info!("the logs of the cluster are complete again");
        }
        self.finish_restore();
        if let Some(session) = &self.session {
            let replica = &session.replica;
            let grants = replica.logs().grants();
            next.cluster = Some(session.cluster);
            let in_it = replica.logs().members().get(local);
            next.role = in_it
                .filter(|member| member.is_active())
                .and_then(|member| member.role);
            let (members, speaks_with) = if changed || before.cluster != next.cluster {
                (
                    members::member_views(replica),
                    members::link_peers(replica, session.inviter),
                )
            } else {
                (before.members.clone(), before.link_peers.clone())
            };
            next.members = members;
            next.link_peers = speaks_with;
            next.is_confirmed = replica.is_confirmed();
            next.owed_revokes = replica.pending_revokes();
            let now = (self.clock)();
            next.silent_node = replica.expired_peer(now);
            next.next_silent = replica.overdue_peer(now);
            next.forked = grants.forked_issuers().collect();
            next.failure = session.writer.failure();
        }
        if next.is_same(&before) {
            return;
        }
        let next = Arc::new(next);
        self.view.store(next.clone());
        before.replaced.cancel();
        self.events.send(ReplicationEvent::Changed(next));
    }

    fn update_watchers(&mut self) {
        let Some(session) = &mut self.session else {
            return;
        };
        let replica = &session.replica;
        session.watchers.retain(|(number, published)| {
            let now = replica.confirmation(*number);
            published.send_if_modified(|before| {
                let differs = *before != now;
                *before = now;
                differs
            });
            !published.is_closed()
        });
    }

    /// Handles a timer tick.
    pub(super) fn tick(&mut self) {
        let linked = self.linked.clone();
        let _in_force = self.run(|replica, means| {
            let mut effects = replica.handle_timeout(means);
            // A node that is linked and was not asked before it was known.
            effects.retain(|effect| match effect {
                ReplicaEffect::Send(node, _) => linked.contains(node),
                ReplicaEffect::Store { .. }
                | ReplicaEffect::Changed
                | ReplicaEffect::DuplicateKey(..) => true,
            });
            effects
        });
        self.publish_view(true);
    }

    pub(super) fn link_up(&mut self, node: NodeId) {
        self.linked.insert(node);
        let _in_force = self.run(|replica, means| replica.handle_link_up(node, means));
    }

    pub(super) fn link_down(&mut self, node: NodeId) {
        self.linked.remove(&node);
    }

    pub(super) fn receive_heads(&mut self, node: NodeId, digest: LogsDigest) {
        if let Some(message) = parse_digest(digest) {
            let _in_force = self.run(|replica, means| replica.handle_message(node, message, means));
        }
    }

    pub(super) fn record_clock(&mut self, node: NodeId, clock: PeerClock) {
        let _in_force = self.run(|replica, means| replica.record_clock(node, clock, means));
    }

    pub(super) fn handle_stored(&mut self, number: u64, ticket: u64) {
        let Some(session) = self
            .session
            .as_mut()
            .filter(|session| session.number == number)
        else {
            return;
        };
        session.storing.retain(|stored| *stored > ticket);
        let _in_force = self.run(|replica, means| replica.handle_stored(ticket, means));
        self.witness_tips();
        self.answer_stored(ticket);
    }

    /// Witnesses the ends of complete logs on disk.
    fn witness_tips(&self) {
        let Some(session) = &self.session else { return };
        let shortened: BTreeSet<NodeId> = session.replica.incomplete_logs().collect();
        let heads = session.replica.heads();
        let whole = heads.iter().filter(|(node, _)| !shortened.contains(node));
        session
            .writer
            .witness_tips(whole.map(|(node, head)| (*node, head.tip)).collect());
    }

    /// Ends the restore mode once the log of a restored node is confirmed.
    fn finish_restore(&mut self) {
        let Some(session) = &mut self.session else {
            return;
        };
        if session.replica.is_unconfirmed_restore() || session.restored.take().is_none() {
            return;
        }
        tracing::info!("every other node has confirmed the log of this restored one");
        let record = self.witness.sibling(RESTORED_LOGS);
        let forget = task::run_blocking("replication.restored", move || record.forget());
        task::spawn_detached("replication.restored", async move {
            if let Ok(Err(error)) = forget.await {
                tracing::warn!(%error, "the record of the restore could not be removed; it stays until the next start");
            }
        });
    }

    /// Describes what is missing from the logs, and what to do.
    fn describe_loss(&self) -> Option<Arc<str>> {
        let Some(session) = self.session.as_ref() else {
            return self.missing.clone();
        };
        let members = session.replica.logs().members();
        let name = |node| {
            members
                .get(node)
                .map_or_else(|| node.short_id(), |it| it.name.to_string())
        };
        let incomplete: Vec<String> = session.replica.incomplete_logs().map(name).collect();
        let incomplete = (!incomplete.is_empty()).then(|| {
            format!(
                "{} has been shortened: it held more of what was written at {}, and agents of other nodes may do nothing here until other nodes have brought that; if none has it, put a copy of the file back and start the kernel again, or run `mgp down`, then `mgp accept {LOGS_WITNESS}`",
                session.journals.path().display(),
                incomplete.join(", ")
            )
        });
        let unconfirmed = session.replica.is_unconfirmed_restore();
        let restored = session.restored.as_ref().filter(|_| unconfirmed).map(|at| {
            format!(
                "this node was restored from a backup of {at}, and does not know what happened later: agents of other nodes may do nothing here and it signs nothing, until every other node has confirmed its log; cut nodes that are gone for good on another node, or run `mgp down`, then `mgp accept {RESTORED_LOGS}`"
            )
        });
        let all = incomplete.into_iter().chain(session.lost.clone());
        let all: Vec<String> = all.chain(restored).collect();
        (!all.is_empty()).then(|| all.join("; ").into())
    }

    pub(super) fn handle_transfer_done(&mut self, node: NodeId) {
        let Some(session) = &mut self.session else {
            return;
        };
        session.transfers.remove(&node);
        if session.pending_transfers.remove(&node) {
            let _in_force =
                self.run(|replica, _| replica.handle_delivered(node).into_iter().collect());
        }
    }

    pub(super) fn is_flushed(&self) -> bool {
        let session = self.session.as_ref();
        session.is_none_or(|session| session.storing.is_empty() && session.transfers.is_empty())
    }

    pub(super) fn set_servers(&mut self, servers: LocalServers) {
        if self.servers != servers {
            self.servers = servers;
            let _in_force = self.update_rules(true);
        }
    }

    pub(super) fn now(&self) -> MonotonicTime {
        (self.clock)()
    }

    pub(super) fn public(&self) -> PublicKey {
        self.key.public_key()
    }

    pub(super) fn records(&self) -> Option<ClusterSnapshot<'_>> {
        let session = self.session.as_ref()?;
        Some(ClusterSnapshot {
            replica: &session.replica,
            servers: &self.servers,
            now: (self.clock)(),
            now_ms: unix_ms(),
            new_grant_id: GrantId(randomness::random_bytes()),
        })
    }

    pub(super) fn read_logs(&self, look: ReadLogs) {
        look(self.records().as_ref());
    }

    pub(super) fn watch_confirmations(
        &mut self,
        number: u64,
    ) -> Result<watch::Receiver<Confirmation>, Refusal> {
        let session = self.session.as_mut().ok_or_else(not_in_cluster)?;
        if session.watchers.len() >= WATCHED_MAX {
            session.watchers.remove(0);
        }
        let (published, followed) = watch::channel(session.replica.confirmation(number));
        session.watchers.push((number, published));
        Ok(followed)
    }
}

/// True if the end of the lease is to be published again: it begins or ends, or has grown enough.
fn has_lease_changed(published: ForeignLease, now: ForeignLease, length: Duration) -> bool {
    match (published, now) {
        (ForeignLease::Valid(Some((before, _))), ForeignLease::Valid(Some((after, _)))) => {
            after < before || after.duration_since(before) >= length / LEASE_GROWTH
        }
        (ForeignLease::Valid(_) | ForeignLease::Expired(_) | ForeignLease::LogsIncomplete, _) => {
            published != now
        }
    }
}
