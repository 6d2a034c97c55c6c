//! The state of the actor: the replica, while this node is in a cluster, and what others wait for.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::clock_offset::MeasuredClock;
use mgp_engine::node_key::{NodeKey, PublicKey};
use mgp_engine::policy::access::{ForeignLease, ForeignRules};
use mgp_engine::policy::grants::{ClusterId, GrantId, Signed};
use mgp_engine::replication::lease::Nonce;
use mgp_engine::replication::replica::{
    Confirmation, LogMessage, Replica, ReplicaEffect, ReplicaMeans, ReplicaStart,
};
use mgp_engine::replication::rules::{KnownServers, foreign_rules};
use mgp_policy::access::AccessHandle;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::federation::logs::LogsHeld;
use mgp_protocol::ids::NodeId;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::randomness;
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::unix_ms;
use mgp_store::audit::{AuditHandle, state_damaged};
use mgp_store::backup::RESTORED_LOGS;
use mgp_store::witnesses::Witness;
use mgp_sync::snapshot::Snapshot;
use tokio::sync::{oneshot, watch};

use super::disk::{FoundLogs, LOGS_WITNESS, LogJournals, LogWriter, OpenedLogs};
use super::pending::PendingProposal;
use super::view::ClusterView;
use super::wire::{LogWords, message};
use super::{
    BringTurn, ClusterRecords, LookAtLogs, ReplicationEvent, ReplicationMsg, ReplicationStart,
    events, in_none, members,
};

/// Writes on their way to the disk; while there are as many, nothing of others is taken. It comes again.
pub(super) const STORES_MAX: usize = 64;
/// Proposals that are followed at a time; the oldest is followed no further. A person waits for one.
const FOLLOWED_MAX: usize = 64;
/// The longest time between two looks at the clock, and the parts of a lease that it is.
const TICK: Duration = Duration::from_secs(1);
const TICKS: u32 = 12;
/// The part of a lease by which it must have grown before its new end is published.
const GROWN: u32 = 4;

/// A stay in a cluster.
pub(super) struct ClusterStay {
    pub(super) replica: Replica,
    pub(super) cluster: ClusterId,
    inviter: Option<PublicKey>,
    pub(super) journals: LogJournals,
    writer: LogWriter,
    number: u64,
    /// Tickets that were given, and are not stored.
    pub(super) storing: BTreeSet<u64>,
    /// Nodes to which entries are being brought.
    bringing: BTreeSet<NodeId>,
    /// Those of them to which more is to be brought.
    more_for: BTreeSet<NodeId>,
    pub(super) waiting: Vec<PendingProposal>,
    followed: Vec<(u64, watch::Sender<Confirmation>)>,
    rules: Arc<ForeignRules>,
    /// What is lost that no other node has: in words.
    lost: Vec<String>,
    /// The time of the backup that this node was restored from, until its log is confirmed.
    restored: Option<String>,
}

/// The state of the actor.
pub struct ReplicationState {
    pub(super) key: NodeKey,
    life: LifeId,
    pub(super) folder: PathBuf,
    pub(super) witness: Witness,
    /// There are no logs, and a witness says that there were.
    pub(super) missing: Option<Arc<str>>,
    lease: Duration,
    clock: fn() -> MonotonicTime,
    view: Arc<Snapshot<ClusterView>>,
    pub(super) access: AccessHandle,
    events: EventSink<ReplicationEvent>,
    pub(super) audit: AuditHandle,
    me: Mailbox<ReplicationMsg>,
    known: KnownServers,
    linked: BTreeSet<NodeId>,
    /// How many stays there were.
    stays: u64,
    pub(super) stay: Option<ClusterStay>,
    _ticks: SupervisedTask<()>,
}

impl std::fmt::Debug for ReplicationState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cluster = self.stay.as_ref().map(|stay| stay.cluster);
        f.debug_struct("ReplicationState")
            .field("cluster", &cluster)
            .finish_non_exhaustive()
    }
}

/// Reminds the actor of the time. A reminder that finds no room is not missed.
async fn ticks(me: Mailbox<ReplicationMsg>, each: Duration) {
    let mut interval = tokio::time::interval(each);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while me.is_open() {
        interval.tick().await;
        let _ = me.tell(ReplicationMsg::Tick);
    }
}

impl ReplicationState {
    pub(super) fn new(
        start: ReplicationStart,
        found: FoundLogs,
        me: Mailbox<ReplicationMsg>,
    ) -> Self {
        let each = (start.lease / TICKS).min(TICK);
        let mut state = Self {
            key: start.key,
            life: start.life,
            folder: start.folder,
            witness: start.witness,
            missing: found.missing.map(Into::into),
            lease: start.lease,
            clock: start.clock,
            view: start.view,
            access: start.access,
            events: start.events,
            audit: start.audit,
            _ticks: task::supervised("replication.ticks", ticks(me.clone(), each)),
            me,
            known: KnownServers::default(),
            linked: BTreeSet::new(),
            stays: 0,
            stay: None,
        };
        match found.opened {
            Some(found) => state.begin(found),
            None => state.show(true),
        }
        if let Some(why) = &state.view.load().shortened {
            tracing::error!("{why}");
            state.audit.tell(state_damaged(why));
        }
        state
    }

    pub(super) fn begin(&mut self, found: OpenedLogs) {
        let OpenedLogs {
            owner, journals, ..
        } = found;
        self.stays += 1;
        let inviter = owner.inviter();
        let start = ReplicaStart {
            here: self.key.node(),
            cluster: owner.cluster,
            life: self.life,
            lease: self.lease,
            hints: inviter.map(|key| key.node()).into_iter().collect(),
            owed: found.owed,
            twice: found.twice,
        };
        let mut replica = Replica::new(start, &found.signed);
        replica.expect(found.tips);
        match found.lost.is_empty() {
            true => journals.witness_cluster(&owner),
            false => replica.close(),
        }
        if found.restored.is_some() {
            replica.declare_restored();
        }
        let rules = foreign_rules(&replica, &self.known, unix_ms(), (self.clock)());
        let rules = Arc::new(rules);
        drop(self.access.set_foreign(Some(rules.clone())));
        self.stay = Some(ClusterStay {
            replica,
            cluster: owner.cluster,
            inviter,
            writer: LogWriter::start(journals.clone(), self.me.clone(), self.stays),
            journals,
            number: self.stays,
            storing: BTreeSet::new(),
            bringing: BTreeSet::new(),
            more_for: BTreeSet::new(),
            waiting: Vec::new(),
            followed: Vec::new(),
            rules,
            lost: found.lost,
            restored: found.restored,
        });
        self.missing = None;
        self.witness_tips();
        // Who is alone confirms its own log; who is linked already is asked.
        self.tick();
    }

    /// Lets the replica do something, and carries out what it wants done. What comes back tells when changed
    /// rules are in force.
    pub(super) fn act(
        &mut self,
        act: impl FnOnce(&mut Replica, &mut ReplicaMeans<'_>) -> Vec<ReplicaEffect>,
    ) -> Option<oneshot::Receiver<()>> {
        let effects = self.with_means(act)?;
        self.perform(effects)
    }

    pub(super) fn with_means<T>(
        &mut self,
        act: impl FnOnce(&mut Replica, &mut ReplicaMeans<'_>) -> T,
    ) -> Option<T> {
        let stay = self.stay.as_mut()?;
        let key = &self.key;
        let mut means = ReplicaMeans {
            now: (self.clock)(),
            now_ms: unix_ms(),
            nonce: &mut || Nonce(randomness::bytes()),
            sign: &|operation| Signed::new(operation, key),
        };
        Some(act(&mut stay.replica, &mut means))
    }

    pub(super) fn perform(&mut self, effects: Vec<ReplicaEffect>) -> Option<oneshot::Receiver<()>> {
        let mut changed = false;
        for effect in effects {
            match effect {
                ReplicaEffect::Store {
                    ticket,
                    entries,
                    owed,
                } => {
                    if let Some(stay) = &mut self.stay {
                        stay.storing.insert(ticket);
                        stay.writer.store(ticket, &entries, owed.as_deref());
                    }
                }
                ReplicaEffect::Send(node, message) => self.send(node, message),
                ReplicaEffect::Changed => changed = true,
                ReplicaEffect::Twice(node, all) => self.lives_twice(node, &all),
            }
        }
        let in_force = self.rule(changed);
        self.show(changed);
        self.follow();
        in_force
    }

    /// Two living nodes have this node's key: that is kept, and told.
    fn lives_twice(&self, node: NodeId, all: &BTreeSet<NodeId>) {
        let Some(stay) = &self.stay else { return };
        stay.writer.store_twice(all);
        let logs = stay.replica.logs();
        self.audit.tell(events::of_two_lives(node, logs.cluster()));
        let name = logs.members().get(node).map(|member| &*member.name);
        tracing::warn!(
            node = name.unwrap_or("?"),
            id = node.short(),
            "two living nodes have this key, and neither is let in any more: stop the copy, then `mgp nodes rekey` on the one that stays; or cut it off with `mgp nodes remove`"
        );
    }

    fn send(&mut self, node: NodeId, message: LogMessage) {
        let Some(stay) = self.stay.as_mut().filter(|_| self.linked.contains(&node)) else {
            return;
        };
        match LogWords::of(message) {
            LogWords::Held(held) => {
                let said = Control::Logs(held);
                self.events.send(ReplicationEvent::Tell(node, said));
            }
            LogWords::Entries(_) if stay.bringing.contains(&node) => {
                stay.more_for.insert(node);
            }
            LogWords::Entries(entries) => {
                stay.bringing.insert(node);
                let turn = BringTurn::new(node, self.me.clone());
                self.events
                    .send(ReplicationEvent::Bring(node, entries, turn));
            }
        }
    }

    /// Tells access control what the logs allow, where that has changed.
    fn rule(&mut self, changed: bool) -> Option<oneshot::Receiver<()>> {
        let now = (self.clock)();
        let stay = self.stay.as_mut()?;
        let lease = stay.replica.lease(now);
        let next = match changed {
            true => foreign_rules(&stay.replica, &self.known, unix_ms(), now),
            false if lease_moved(stay.rules.lease(), lease, self.lease) => {
                stay.rules.with_lease(lease)
            }
            false => return None,
        };
        stay.rules = Arc::new(next);
        Some(self.access.set_foreign(Some(stay.rules.clone())))
    }

    /// Publishes what is known of the cluster, where that has changed.
    pub(super) fn show(&mut self, changed: bool) {
        let before = self.view.load();
        let here = self.key.node();
        let mut next = ClusterView::alone(here, self.lease);
        next.shortened = self.shortened();
        if before.shortened.is_some() && next.shortened.is_none() {
            tracing::info!("the logs of the cluster lack nothing any more of what they held");
        }
        self.end_restore();
        if let Some(stay) = &self.stay {
            let replica = &stay.replica;
            let grants = replica.logs().grants();
            next.cluster = Some(stay.cluster);
            let in_it = replica.logs().members().get(here);
            next.role = in_it
                .filter(|member| member.is_in())
                .and_then(|member| member.role);
            let (members, speaks_with) = match changed || before.cluster != next.cluster {
                true => (
                    members::members(replica),
                    members::speaks_with(replica, stay.inviter),
                ),
                false => (before.members.clone(), before.speaks_with.clone()),
            };
            next.members = members;
            next.speaks_with = speaks_with;
            next.is_confirmed = replica.is_confirmed();
            next.owes = replica.owes();
            let now = (self.clock)();
            next.unheard = replica.unheard(now);
            next.overdue = replica.overdue(now);
            next.forked = grants.forked().collect();
            next.trouble = stay.writer.trouble();
        }
        if next.is_as(&before) {
            return;
        }
        let next = Arc::new(next);
        self.view.store(next.clone());
        before.replaced.cancel();
        self.events.send(ReplicationEvent::Changed(next));
    }

    fn follow(&mut self) {
        let Some(stay) = &mut self.stay else { return };
        let replica = &stay.replica;
        stay.followed.retain(|(number, told)| {
            let now = replica.confirmation(*number);
            told.send_if_modified(|before| {
                let differs = *before != now;
                *before = now;
                differs
            });
            !told.is_closed()
        });
    }

    /// Time has passed.
    pub(super) fn tick(&mut self) {
        let linked = self.linked.clone();
        let _in_force = self.act(|replica, means| {
            let mut effects = replica.tick(means);
            // Who is linked and was not asked before it was known.
            effects.retain(|effect| match effect {
                ReplicaEffect::Send(node, _) => linked.contains(node),
                ReplicaEffect::Store { .. } | ReplicaEffect::Changed | ReplicaEffect::Twice(..) => {
                    true
                }
            });
            effects
        });
        self.show(true);
    }

    pub(super) fn link_up(&mut self, node: NodeId) {
        self.linked.insert(node);
        let _in_force = self.act(|replica, means| replica.linked(node, means));
    }

    pub(super) fn link_down(&mut self, node: NodeId) {
        self.linked.remove(&node);
    }

    pub(super) fn heard(&mut self, node: NodeId, held: LogsHeld) {
        if let Some(message) = message(held) {
            let _in_force = self.act(|replica, means| replica.hear(node, message, means));
        }
    }

    pub(super) fn clock_measured(&mut self, node: NodeId, clock: MeasuredClock) {
        let _in_force = self.act(|replica, means| replica.clock_measured(node, clock, means));
    }

    pub(super) fn stored(&mut self, number: u64, ticket: u64) {
        let Some(stay) = self.stay.as_mut().filter(|stay| stay.number == number) else {
            return;
        };
        stay.storing.retain(|given| *given > ticket);
        let _in_force = self.act(|replica, means| replica.stored(ticket, means));
        self.witness_tips();
        self.answer(ticket);
    }

    /// Has it witnessed where logs end on disk, of those that lack nothing.
    fn witness_tips(&self) {
        let Some(stay) = &self.stay else { return };
        let shortened: BTreeSet<NodeId> = stay.replica.shortened().collect();
        let heads = stay.replica.heads();
        let whole = heads.iter().filter(|(node, _)| !shortened.contains(node));
        stay.writer
            .witness(whole.map(|(node, head)| (*node, head.tip)).collect());
    }

    /// The log of a restored node is confirmed: the next start needs no more than any other.
    fn end_restore(&mut self) {
        let Some(stay) = &mut self.stay else { return };
        if stay.replica.is_unconfirmed_restore() || stay.restored.take().is_none() {
            return;
        }
        tracing::info!("every other node has confirmed the log of this restored one");
        let record = self.witness.sibling(RESTORED_LOGS);
        let forget = task::blocking("replication.restored", move || record.forget());
        task::detached("replication.restored", async move {
            if let Ok(Err(error)) = forget.await {
                tracing::warn!(%error, "the record of the restore stays until the next start");
            }
        });
    }

    /// What the logs lack that they held, and what to do: in words.
    fn shortened(&self) -> Option<Arc<str>> {
        let Some(stay) = self.stay.as_ref() else {
            return self.missing.clone();
        };
        let members = stay.replica.logs().members();
        let name = |node| {
            members
                .get(node)
                .map_or_else(|| node.short(), |it| it.name.to_string())
        };
        let lacking: Vec<String> = stay.replica.shortened().map(name).collect();
        let lacking = (!lacking.is_empty()).then(|| {
            format!(
                "{} has been shortened: it held more of what was written at {}, and agents of other nodes may do nothing here until other nodes have brought that; if none has it, put a copy of the file back and start the kernel again, or run `mgp down`, then `mgp accept {LOGS_WITNESS}`",
                stay.journals.path().display(),
                lacking.join(", ")
            )
        });
        let unconfirmed = stay.replica.is_unconfirmed_restore();
        let restored = stay.restored.as_ref().filter(|_| unconfirmed).map(|at| {
            format!(
                "this node was restored from a backup of {at}, and does not know what happened later: agents of other nodes may do nothing here and it signs nothing, until every other node has confirmed its log; cut nodes that are gone for good on another node, or run `mgp down`, then `mgp accept {RESTORED_LOGS}`"
            )
        });
        let all = lacking.into_iter().chain(stay.lost.clone());
        let all: Vec<String> = all.chain(restored).collect();
        (!all.is_empty()).then(|| all.join("; ").into())
    }

    pub(super) fn brought(&mut self, node: NodeId) {
        let Some(stay) = &mut self.stay else { return };
        stay.bringing.remove(&node);
        if stay.more_for.remove(&node) {
            let _in_force = self.act(|replica, _| replica.brought(node).into_iter().collect());
        }
    }

    pub(super) fn has_pushed(&self) -> bool {
        let stay = self.stay.as_ref();
        stay.is_none_or(|stay| stay.storing.is_empty() && stay.bringing.is_empty())
    }

    pub(super) fn set_known(&mut self, known: KnownServers) {
        if self.known != known {
            self.known = known;
            let _in_force = self.rule(true);
        }
    }

    pub(super) fn now(&self) -> MonotonicTime {
        (self.clock)()
    }

    pub(super) fn public(&self) -> PublicKey {
        self.key.public()
    }

    pub(super) fn records(&self) -> Option<ClusterRecords<'_>> {
        let stay = self.stay.as_ref()?;
        Some(ClusterRecords {
            replica: &stay.replica,
            known: &self.known,
            now: (self.clock)(),
            now_ms: unix_ms(),
            fresh: GrantId(randomness::bytes()),
        })
    }

    pub(super) fn look(&self, look: LookAtLogs) {
        look(self.records().as_ref());
    }

    pub(super) fn confirmations(
        &mut self,
        number: u64,
    ) -> Result<watch::Receiver<Confirmation>, Refusal> {
        let stay = self.stay.as_mut().ok_or_else(in_none)?;
        if stay.followed.len() >= FOLLOWED_MAX {
            stay.followed.remove(0);
        }
        let (told, followed) = watch::channel(stay.replica.confirmation(number));
        stay.followed.push((number, told));
        Ok(followed)
    }
}

/// Whether another end of the lease is to be told: it begins or ends, or has grown enough.
fn lease_moved(told: ForeignLease, now: ForeignLease, length: Duration) -> bool {
    match (told, now) {
        (ForeignLease::Held(Some((before, _))), ForeignLease::Held(Some((after, _)))) => {
            after < before || after.since(before) >= length / GROWN
        }
        (ForeignLease::Held(_) | ForeignLease::Lapsed(_) | ForeignLease::Shortened, _) => {
            told != now
        }
    }
}
