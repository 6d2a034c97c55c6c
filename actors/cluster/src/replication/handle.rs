//! The handle of the replication actor: requests for the logs of the cluster.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::clock_offset::PeerClock;
use mgp_engine::node_key::PublicKey;
use mgp_engine::policy::access::Principal;
use mgp_engine::policy::grants::{
    ClusterId, LogChange, LogKey, LogTip, MemberChange, MemberRole, SignedOperation,
};
use mgp_engine::replication::remote_rules::{self, LocalServers};
use mgp_engine::replication::replica::{Confirmation, Replica};
use mgp_engine::replication::role_changes;
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::federation::logs::{LogEntries, LogsDigest};
use mgp_protocol::ids::{NodeAgent, NodeId, ServerId};
use mgp_protocol::mgp::access::{Entry, Explanation};
use mgp_protocol::mgp::audit::TraceId;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::{AskError, Mailbox, Reply, randomness, task};
use mgp_sync::Snapshot;
use tokio::sync::watch;

use super::view::ClusterView;
use super::wire::verify_entries;
use super::{
    ClusterRecovery, ClusterSnapshot, FoundedCluster, JoinedCluster, ProposedChanges,
    ReplicationMsg, RequestedBy, not_in_cluster,
};
use crate::links::MessagePermit;

/// How long a node that leaves or shuts down waits for its last messages to be sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// The polling interval while waiting for them.
const FLUSH_POLL: Duration = Duration::from_millis(20);
/// The most entries sent to a joining node; it requests the rest from the nodes that these name.
const JOIN_ENTRIES: usize = 4096;
const JOIN_BYTES: usize = 4 << 20;

/// Handle of the actor.
#[derive(Clone, Debug)]
pub struct ReplicationHandle {
    mailbox: Mailbox<ReplicationMsg>,
    view: Arc<Snapshot<ClusterView>>,
    clock: fn() -> MonotonicTime,
}

fn unreachable_refusal(error: AskError) -> Refusal {
    Refusal::Internal(format!("the logs of the cluster: {error}"))
}

impl ReplicationHandle {
    pub(super) fn new(
        mailbox: Mailbox<ReplicationMsg>,
        view: Arc<Snapshot<ClusterView>>,
        clock: fn() -> MonotonicTime,
    ) -> Self {
        Self {
            mailbox,
            view,
            clock,
        }
    }

    /// The published view of the cluster.
    #[must_use]
    pub fn view(&self) -> Arc<ClusterView> {
        self.view.load()
    }

    /// The time by the clock of leases.
    #[must_use]
    pub fn lease_now(&self) -> MonotonicTime {
        (self.clock)()
    }

    /// Founds a cluster, in which this node has that name.
    ///
    /// # Errors
    /// A [`Refusal`], also if this node is in a cluster.
    pub async fn found_cluster(
        &self,
        name: NodeName,
        by: RequestedBy,
    ) -> Result<FoundedCluster, Refusal> {
        let ask = |reply| ReplicationMsg::Found(name, by, reply);
        self.mailbox.ask(ask).await.map_err(unreachable_refusal)?
    }

    /// Joins the cluster whose member has admitted this node.
    ///
    /// # Errors
    /// A [`Refusal`], also if this node is in a cluster.
    pub async fn join(&self, joined: JoinedCluster, by: RequestedBy) -> Result<(), Refusal> {
        let ask = |reply| ReplicationMsg::Join(Box::new(joined), by, reply);
        self.mailbox.ask(ask).await.map_err(unreachable_refusal)?
    }

    /// Records that this node leaves, if it may write: the confirmations can be watched. A node that may
    /// not write stays a member for the others until one of them records it: [`Self::record_leave_of`].
    ///
    /// # Errors
    /// A [`Refusal`]; then nothing was written.
    pub async fn record_own_leave(&self, by: RequestedBy) -> Result<ProposedChanges, Refusal> {
        let local = self.view().node;
        let proposed = self.cut_off(local, by).await?;
        self.wait_flushed().await;
        Ok(proposed)
    }

    /// Records that a node leaves, as requested over its own link, because it cannot write that itself.
    ///
    /// # Errors
    /// A [`Refusal`].
    pub async fn record_leave_of(&self, node: NodeId) -> Result<ProposedChanges, Refusal> {
        let by = RequestedBy {
            principal: Principal::Operator(node.to_string().into()),
            trace: TraceId::from_random(randomness::random_bytes()),
        };
        self.cut_off(node, by).await
    }

    /// Forgets the cluster: deletes its logs.
    ///
    /// # Errors
    /// A [`Refusal`]; then nothing was forgotten.
    pub async fn forget(&self, by: RequestedBy) -> Result<(), Refusal> {
        let ask = |reply| ReplicationMsg::Forget(by, reply);
        self.mailbox.ask(ask).await.map_err(unreachable_refusal)?
    }

    /// Records before a graceful shutdown that this node writes nothing more: others need not wait for it.
    pub async fn retire(&self, by: RequestedBy) {
        let shutdown = |_: &ClusterSnapshot<'_>| Ok(vec![Replica::shutdown_change()]);
        // A node that may not write has nothing to record.
        if self.propose(by, shutdown).await.is_ok() {
            self.wait_flushed().await;
        }
    }

    async fn wait_flushed(&self) {
        let pushed = async {
            while let Ok(false) = self.mailbox.ask(ReplicationMsg::IsFlushed).await {
                tokio::time::sleep(FLUSH_POLL).await;
            }
        };
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, pushed).await;
    }

    /// Decides on changes with the current state, and appends them to this node's log. Returns them once
    /// they are on disk and in force here; they are sent to all nodes at once.
    ///
    /// # Errors
    /// The refusal of `decide`, or why nothing was written.
    pub async fn propose(
        &self,
        by: RequestedBy,
        decide: impl FnOnce(&ClusterSnapshot<'_>) -> Result<Vec<LogChange>, Refusal> + Send + 'static,
    ) -> Result<ProposedChanges, Refusal> {
        let ask = |reply| ReplicationMsg::Propose(Box::new(decide), by, reply);
        self.mailbox.ask(ask).await.map_err(unreachable_refusal)?
    }

    async fn propose_member_change(
        &self,
        change: MemberChange,
        by: RequestedBy,
    ) -> Result<ProposedChanges, Refusal> {
        let changes = vec![LogChange::Members(change)];
        self.propose(by, |_| Ok(changes)).await
    }

    /// Admits a node.
    ///
    /// # Errors
    /// A [`Refusal`], also if the key was cut off before.
    pub async fn admit(
        &self,
        key: PublicKey,
        role: MemberRole,
        name: NodeName,
        by: RequestedBy,
    ) -> Result<ProposedChanges, Refusal> {
        let decide = move |records: &ClusterSnapshot<'_>| {
            let known = records.replica.logs().members().get(key.node_id());
            if known.is_some_and(|member| member.cut_at.is_some()) {
                let why = "that node was cut off, or has left: it comes back under a new key only, which `mgp nodes rekey` there makes";
                return Err(Refusal::BadParams(why.into()));
            }
            let name = name.to_string();
            Ok(vec![LogChange::Members(MemberChange::Admit {
                key,
                role,
                name,
            })])
        };
        self.propose(by, decide).await
    }

    /// Renames a node.
    ///
    /// # Errors
    /// A [`Refusal`].
    pub async fn rename(
        &self,
        node: NodeId,
        name: NodeName,
        by: RequestedBy,
    ) -> Result<ProposedChanges, Refusal> {
        let name = name.to_string();
        self.propose_member_change(MemberChange::Rename { node, name }, by)
            .await
    }

    /// Cuts a node off: the known part of its log stays valid, later entries are ignored.
    ///
    /// # Errors
    /// A [`Refusal`].
    pub async fn cut_off(&self, node: NodeId, by: RequestedBy) -> Result<ProposedChanges, Refusal> {
        let decide = move |records: &ClusterSnapshot<'_>| {
            let at = known_tip(records, node)?;
            Ok(vec![LogChange::Members(MemberChange::Cut {
                node,
                at,
                stays_as: None,
            })])
        };
        self.propose(by, decide).await
    }

    /// Promotes a node to a role with more rights.
    ///
    /// # Errors
    /// A [`Refusal`], also if it has that role already, or was demoted under its key.
    pub async fn promote(
        &self,
        node: NodeId,
        role: MemberRole,
        by: RequestedBy,
    ) -> Result<ProposedChanges, Refusal> {
        let decide = move |records: &ClusterSnapshot<'_>| {
            let change = role_changes::promote(records.replica.logs(), node, role);
            let change = change.map_err(|why| Refusal::BadParams(why.to_string()))?;
            Ok(vec![LogChange::Members(change)])
        };
        self.propose(by, decide).await
    }

    /// Demotes a node to a role with fewer rights: the known part of its log stays valid, and grants in
    /// later entries are ignored. Its revocations stay valid.
    ///
    /// # Errors
    /// A [`Refusal`], also if it has no more rights already, and if no admin would be left.
    pub async fn demote(
        &self,
        node: NodeId,
        role: MemberRole,
        by: RequestedBy,
    ) -> Result<ProposedChanges, Refusal> {
        let decide = move |records: &ClusterSnapshot<'_>| {
            let change = role_changes::demote(records.replica.logs(), node, role);
            let change = change.map_err(|why| Refusal::BadParams(why.to_string()))?;
            Ok(vec![LogChange::Members(change)])
        };
        self.propose(by, decide).await
    }

    /// Moves a node to a new key, because the old one is lost or was copied.
    ///
    /// # Errors
    /// A [`Refusal`].
    pub async fn rekey(
        &self,
        node: NodeId,
        key: PublicKey,
        by: RequestedBy,
    ) -> Result<ProposedChanges, Refusal> {
        let decide = move |records: &ClusterSnapshot<'_>| {
            let at = known_tip(records, node)?;
            let members = records.replica.logs().members();
            if members
                .get(node)
                .is_some_and(|member| member.cut_at.is_some())
            {
                let why = "that node was cut off: it comes back by a ticket, under a new key";
                return Err(Refusal::BadParams(why.into()));
            }
            if members.get(key.node_id()).is_some() {
                let why = "a node of the cluster has, or had, that key already";
                return Err(Refusal::BadParams(why.into()));
            }
            let change = MemberChange::Rekey { node, at, key };
            Ok(vec![LogChange::Members(change)])
        };
        let rekeyed = self.propose(by, decide).await?;
        if node == self.view().node {
            // After this, messages under the old key are ignored.
            self.wait_flushed().await;
        }
        Ok(rekeyed)
    }

    /// Makes this node an admin by the recovery key of the cluster, and cuts off lost nodes.
    ///
    /// # Errors
    /// A [`Refusal`].
    pub async fn recover(
        &self,
        recovery: ClusterRecovery,
        by: RequestedBy,
    ) -> Result<ProposedChanges, Refusal> {
        let ask = |reply| ReplicationMsg::Recover(Box::new(recovery), by, reply);
        self.mailbox.ask(ask).await.map_err(unreachable_refusal)?
    }

    /// Watches which nodes have confirmed this entry of this node's log.
    ///
    /// # Errors
    /// A [`Refusal`] if this node is in no cluster.
    pub async fn watch_confirmations(
        &self,
        number: u64,
    ) -> Result<watch::Receiver<Confirmation>, Refusal> {
        let ask = |reply| ReplicationMsg::Confirmations(number, reply);
        self.mailbox.ask(ask).await.map_err(unreachable_refusal)?
    }

    /// Reads the state of the logs; `None` if this node is in no cluster.
    ///
    /// # Errors
    /// [`Refusal::Internal`] when the actor is not reachable.
    pub async fn read_logs<T: Send + 'static>(
        &self,
        look: impl FnOnce(Option<&ClusterSnapshot<'_>>) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let ask = |reply: Reply<T>| {
            ReplicationMsg::Read(Box::new(move |records: Option<&ClusterSnapshot<'_>>| {
                reply.send(look(records));
            }))
        };
        self.mailbox.ask(ask).await.map_err(unreachable_refusal)
    }

    /// Explains the decision on a call of another node's agent.
    ///
    /// # Errors
    /// A [`Refusal`].
    pub async fn explain(
        &self,
        caller: NodeAgent,
        server: ServerId,
        tool: Option<String>,
    ) -> Result<Explanation, Refusal> {
        let explain = move |records: Option<&ClusterSnapshot<'_>>| {
            let records = records?;
            let on = (&server, tool.as_deref());
            let (now_ms, now) = (records.now_ms, records.now);
            let (replica, known) = (records.replica, records.servers);
            Some(remote_rules::explain(
                replica, known, &caller, on, now_ms, now,
            ))
        };
        self.read_logs(explain).await?.ok_or_else(not_in_cluster)
    }

    /// Lists the entries of all logs that are in force; `name` names the nodes.
    ///
    /// # Errors
    /// A [`Refusal`].
    pub async fn list_entries(
        &self,
        name: impl Fn(NodeId) -> String + Send + 'static,
    ) -> Result<Vec<Entry>, Refusal> {
        let list = |records: Option<&ClusterSnapshot<'_>>| {
            let list = |records: &ClusterSnapshot<'_>| {
                remote_rules::list_entries(records.replica, records.now_ms, name)
            };
            records.map(list).unwrap_or_default()
        };
        self.read_logs(list).await
    }

    /// The data for a node that was admitted.
    ///
    /// # Errors
    /// A [`Refusal`] if this node is in no cluster.
    pub async fn create_invitation(&self, inviter: PublicKey) -> Result<JoinedCluster, Refusal> {
        let copy = move |records: Option<&ClusterSnapshot<'_>>| {
            let logs = records?.replica.logs();
            Some(JoinedCluster {
                cluster: logs.cluster(),
                inviter,
                entries: first_entries(records?.replica, logs.cluster()),
            })
        };
        self.read_logs(copy).await?.ok_or_else(not_in_cluster)
    }

    /// Sets the servers and shares of this node. In force when this resolves.
    ///
    /// # Errors
    /// [`Refusal::Internal`] when the actor is not reachable.
    pub async fn set_servers(&self, known: LocalServers) -> Result<(), Refusal> {
        let ask = |reply| ReplicationMsg::SetServers(known, reply);
        self.mailbox.ask(ask).await.map_err(unreachable_refusal)
    }

    /// Sends a timer tick.
    #[cfg(test)]
    pub(super) fn tick(&self) {
        let _ = self.mailbox.send_to_self(ReplicationMsg::Tick);
    }

    /// Reports a new link.
    pub fn link_up(&self, node: NodeId) {
        // One for each link that starts or ends.
        let _ = self.mailbox.send_to_self(ReplicationMsg::LinkUp(node));
    }

    /// Reports the end of a link.
    pub fn link_down(&self, node: NodeId) {
        let _ = self.mailbox.send_to_self(ReplicationMsg::LinkDown(node));
    }

    /// Handles the log digest of a linked node. Dropped if the queue is full: the node sends it again.
    pub fn receive_heads(&self, node: NodeId, digest: LogsDigest, permit: MessagePermit) {
        let _ = self
            .mailbox
            .send(ReplicationMsg::Received(node, digest, permit));
    }

    /// Records the measured clock of a linked node. Dropped if the queue is full: it is measured again
    /// within seconds.
    pub fn record_clock(&self, node: NodeId, clock: PeerClock) {
        let _ = self.mailbox.send(ReplicationMsg::Clock(node, clock));
    }

    /// Handles entries of a linked node. Those with valid signatures are accepted, whichever node wrote
    /// them. Dropped if the queue is full: they are requested again.
    pub(crate) async fn receive_entries(&self, node: NodeId, entries: LogEntries) {
        if !self.view().link_peers.contains_key(&node) {
            return;
        }
        let read = move || {
            let entries = entries.entries.iter().map(|entry| &entry.0);
            verify_entries(entries)
        };
        let signed: Vec<SignedOperation> =
            match task::run_blocking("replication.verify", read).await {
                Ok(signed) => signed,
                Err(_) => return,
            };
        if !signed.is_empty() {
            // Awaited: no stream delivers entries faster than they are handled.
            let message = |reply| ReplicationMsg::EntriesReceived(signed, reply);
            let _ = self.mailbox.ask(message).await;
        }
    }
}

/// The known end of a node's log.
fn known_tip(records: &ClusterSnapshot<'_>, node: NodeId) -> Result<LogTip, Refusal> {
    let logs = records.replica.logs();
    match logs.members().get(node) {
        Some(_) => Ok(logs.grants().tip(node)),
        None => Err(Refusal::BadParams(format!(
            "node {} is not in the cluster",
            node.short_id()
        ))),
    }
}

/// The founding entry, and the first entries of each log.
fn first_entries(replica: &Replica, cluster: ClusterId) -> Vec<Vec<u8>> {
    let logs = replica.logs();
    let grants = logs.grants();
    let founds = |key: &LogKey| key.1.0 == cluster.0;
    let founding = grants.issuers().find_map(|issuer| {
        let mut first = logs
            .entries_from(issuer, 0)
            .take_while(|(key, _)| key.0 == 0);
        first.find(|(key, _)| founds(key))
    });
    let founding = founding.map(|(_, entry)| entry);
    let others = logs.entries().filter(|(_, key, _)| !founds(key));
    let mut bytes = 0;
    let entries = founding
        .into_iter()
        .chain(others.map(|(_, _, entry)| entry));
    let included = entries.take(JOIN_ENTRIES).take_while(|entry| {
        bytes += entry.len();
        bytes <= JOIN_BYTES
    });
    included.map(|entry| entry.to_vec()).collect()
}
