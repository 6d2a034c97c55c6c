//! The replicated logs of the cluster at this node: what is stored on disk, what is sent to and received
//! from other nodes, and what they allow here. The engine makes the decisions.
//!
//! The operator's requests and pairing send to the actor; links deliver the messages of other nodes. It
//! publishes a [`ClusterView`], and sends access control the rules for agents of other nodes.

mod disk;
mod events;
mod handle;
mod members;
mod membership;
mod pending;
mod proposals;
mod received;
mod recovery_key;
mod state;
#[cfg(test)]
mod tests;
mod transfer;
mod view;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::links::MessagePermit;
use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::clock_offset::PeerClock;
use mgp_engine::node_key::{NodeKey, PublicKey};
use mgp_engine::policy::access::Principal;
use mgp_engine::policy::grants::{ClusterId, GrantId, LogChange, SignedOperation};
use mgp_engine::replication::remote_rules::LocalServers;
use mgp_engine::replication::replica::{Confirmation, Replica};
use mgp_policy::AccessHandle;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::hello::{LifeId, NodeName};
use mgp_protocol::federation::logs::{LogEntries, LogsDigest};
use mgp_protocol::ids::NodeId;
use mgp_protocol::mgp::audit::TraceId;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::{EventSink, Mailbox, Queued, Reply, task};
use mgp_store::Witness;
use mgp_store::audit::AuditHandle;
use mgp_sync::Snapshot;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use tokio::sync::watch;

pub(crate) use self::disk::LogsError;
pub use self::disk::{check_witnesses, has_rekeyed};
pub use self::handle::ReplicationHandle;
pub use self::recovery_key::RecoveryKey;
pub(crate) use self::state::ReplicationState;
pub(crate) use self::transfer::TransferPermit;
pub use self::transfer::{receive_entries, send_entries};
pub use self::view::{ClusterMemberView, ClusterView, MemberStatus};

/// The parameters of the actor.
#[derive(Debug)]
pub struct ReplicationStart {
    /// The node's key.
    pub key: NodeKey,
    /// The instance of this node.
    pub instance: LifeId,
    /// The folder of the logs. Empty before a cluster is founded or joined.
    pub folder: PathBuf,
    /// The lease: how long revocable grants stay valid without a message from the nodes that could revoke
    /// them.
    pub lease: Duration,
    /// The time by a clock that continues while the machine sleeps.
    pub clock: fn() -> MonotonicTime,
    /// Publishes the view of the cluster.
    pub view: Arc<Snapshot<ClusterView>>,
    /// The witness of the logs.
    pub witness: Witness,
    /// Access control of this node's servers.
    pub access: AccessHandle,
    /// Receives the actions to perform on links.
    pub events: EventSink<ReplicationEvent>,
    /// The audit log.
    pub audit: AuditHandle,
}

/// Actions for links, and notifications.
#[derive(Debug)]
pub enum ReplicationEvent {
    /// Send this to the node, if it is linked.
    Send(NodeId, Control),
    /// Send the node these entries: [`send_entries`].
    Transfer(NodeId, LogEntries, TransferPermit),
    /// A new view was published.
    Changed(Arc<ClusterView>),
}

/// The data that a new node gets from its inviter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedCluster {
    /// The cluster.
    pub cluster: ClusterId,
    /// The key of the node that invited it, as the link proved it.
    pub inviter: PublicKey,
    /// Entries of the logs, the founding one first. The rest is requested from the nodes that these name.
    pub entries: Vec<Vec<u8>>,
}

/// A cluster that this node has founded.
#[derive(Debug)]
pub struct FoundedCluster {
    /// The cluster.
    pub cluster: ClusterId,
    /// Shown once, for a person to store: recovers the cluster when no admin is left.
    pub recovery: RecoveryKey,
}

/// A use of the recovery key.
#[derive(Debug)]
pub struct ClusterRecovery {
    /// The key.
    pub key: RecoveryKey,
    /// The name of this node, which becomes an admin.
    pub name: NodeName,
    /// Lost nodes to cut off. Otherwise a lone admin would wait for them to confirm its log.
    pub removed: Vec<NodeId>,
}

/// The state of the logs at one moment, for decisions and displays.
#[derive(Debug)]
pub struct ClusterSnapshot<'a> {
    /// The local replica of the logs.
    pub replica: &'a Replica,
    /// The servers of this node.
    pub servers: &'a LocalServers,
    /// The time by the clock of leases.
    pub(crate) now: MonotonicTime,
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
    /// A new id for a grant.
    pub new_grant_id: GrantId,
}

/// The changes of a proposal. They are on disk and in force here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedChanges {
    /// The changes.
    pub changes: Vec<LogChange>,
    /// The sequence number of the last change in this node's log, for
    /// [`ReplicationHandle::watch_confirmations`]; None if all of them are signed only once other nodes
    /// have confirmed that log.
    pub number: Option<u64>,
    /// When they were proposed, by the clock of leases.
    pub proposed_at: MonotonicTime,
}

/// Decides which changes to make.
pub(crate) type DecideChanges =
    Box<dyn FnOnce(&ClusterSnapshot<'_>) -> Result<Vec<LogChange>, Refusal> + Send>;
/// Reads the logs; `None` when the node is in no cluster.
pub(crate) type ReadLogs = Box<dyn FnOnce(Option<&ClusterSnapshot<'_>>) + Send>;
/// Receives the result of a proposal.
pub(crate) type ProposalReply = Reply<Result<ProposedChanges, Refusal>>;

/// The principal and the trace of a request.
#[derive(Clone, Debug)]
pub struct RequestedBy {
    /// The principal.
    pub principal: Principal,
    /// The trace.
    pub trace: TraceId,
}

/// Messages to the actor.
pub enum ReplicationMsg {
    /// Found a cluster, in which this node has that name.
    Found(
        NodeName,
        RequestedBy,
        Reply<Result<FoundedCluster, Refusal>>,
    ),
    /// Join a cluster.
    Join(Box<JoinedCluster>, RequestedBy, Reply<Result<(), Refusal>>),
    /// Forget the cluster.
    Forget(RequestedBy, Reply<Result<(), Refusal>>),
    /// Decide on changes, and append them to this node's log.
    Propose(DecideChanges, RequestedBy, ProposalReply),
    /// Make this node an admin by the recovery key.
    Recover(Box<ClusterRecovery>, RequestedBy, ProposalReply),
    /// Watch which nodes have confirmed this entry of this node's log.
    Confirmations(u64, Reply<Result<watch::Receiver<Confirmation>, Refusal>>),
    /// Read the logs.
    Read(ReadLogs),
    /// Query whether all queued messages were sent.
    IsFlushed(Reply<bool>),
    /// Set the local servers and shares.
    SetServers(LocalServers, Reply<()>),
    /// A node is linked.
    LinkUp(NodeId),
    /// The link to a node ended.
    LinkDown(NodeId),
    /// A node sent the digest of its logs.
    Received(NodeId, LogsDigest, MessagePermit),
    /// A node's wall clock was measured.
    Clock(NodeId, PeerClock),
    /// Entries with valid signatures arrived.
    EntriesReceived(Vec<SignedOperation>, Reply<()>),
    /// All writes up to this ticket of a cluster session are on disk.
    Stored {
        /// The cluster session.
        session: u64,
        /// The ticket.
        ticket: u64,
    },
    /// The transfer to the node has ended.
    TransferDone(NodeId),
    /// A timer tick.
    Tick,
}

impl std::fmt::Debug for ReplicationMsg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Found(..) => "Found",
            Self::Join(..) => "Join",
            Self::Forget(..) => "Forget",
            Self::Propose(..) => "Propose",
            Self::Recover(..) => "Recover",
            Self::Confirmations(..) => "Confirmations",
            Self::Read(_) => "Look",
            Self::IsFlushed(_) => "Pushed",
            Self::SetServers(..) => "Known",
            Self::LinkUp(_) => "LinkUp",
            Self::LinkDown(_) => "LinkDown",
            Self::Received(..) => "Heard",
            Self::Clock(..) => "Clock",
            Self::EntriesReceived(..) => "Taken",
            Self::Stored { .. } => "Stored",
            Self::TransferDone(_) => "Brought",
            Self::Tick => "Tick",
        })
    }
}

/// The refusal for a node that is in no cluster.
fn not_in_cluster() -> Refusal {
    let why =
        "this node is in no cluster; `mgp nodes invite` founds one, `mgp nodes join` enters one";
    Refusal::BadParams(why.into())
}

/// The actor.
#[derive(Debug)]
pub struct ReplicationActor;

impl ReplicationActor {
    /// Starts the actor with the logs on disk.
    ///
    /// # Errors
    /// [`LogsError`], as a text for the person who starts the kernel.
    pub async fn start(
        start: ReplicationStart,
    ) -> Result<(ReplicationHandle, ActorCell), LogsError> {
        let (folder, witness) = (start.folder.clone(), start.witness.clone());
        let read = move || disk::open_existing(&folder, &witness);
        let read = task::run_blocking("replication.read", read).await;
        let found = read.map_err(|error| LogsError::Start(error.to_string()))??;
        if let Some(found) = &found.opened {
            found.truncate_torn_tails(&start.audit).await?;
        }
        let (view, clock) = (start.view.clone(), start.clock);
        let spawned = Actor::spawn(None, Self, (start, found)).await;
        let (actor, _) = spawned.map_err(|error| LogsError::Start(error.to_string()))?;
        let cell = actor.get_cell();
        let handle = ReplicationHandle::new(Mailbox::new(actor), view, clock);
        Ok((handle, cell))
    }
}

impl Actor for ReplicationActor {
    type Msg = Queued<ReplicationMsg>;
    type State = ReplicationState;
    type Arguments = (ReplicationStart, disk::LoadedLogs);

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (start, found): Self::Arguments,
    ) -> Result<ReplicationState, ActorProcessingErr> {
        Ok(ReplicationState::new(start, found, Mailbox::new(myself)))
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut ReplicationState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            ReplicationMsg::Found(name, by, reply) => {
                reply.send(state.found_cluster(&name, &by).await)
            }
            ReplicationMsg::Join(joined, by, reply) => reply.send(state.join(*joined, &by).await),
            ReplicationMsg::Forget(by, reply) => reply.send(state.forget(&by).await),
            ReplicationMsg::Propose(decide, by, reply) => state.propose(decide, &by, reply),
            ReplicationMsg::Recover(recovery, by, reply) => state.recover(&recovery, &by, reply),
            ReplicationMsg::Confirmations(number, reply) => {
                reply.send(state.watch_confirmations(number))
            }
            ReplicationMsg::Read(look) => state.read_logs(look),
            ReplicationMsg::IsFlushed(reply) => reply.send(state.is_flushed()),
            ReplicationMsg::SetServers(known, reply) => {
                state.set_servers(known);
                reply.send(());
            }
            ReplicationMsg::LinkUp(node) => state.link_up(node),
            ReplicationMsg::LinkDown(node) => state.link_down(node),
            ReplicationMsg::Received(node, held, turn) => {
                state.receive_heads(node, held);
                drop(turn);
            }
            ReplicationMsg::Clock(node, clock) => state.record_clock(node, clock),
            ReplicationMsg::EntriesReceived(signed, reply) => {
                state.apply_entries(&signed);
                reply.send(());
            }
            ReplicationMsg::Stored { session, ticket } => state.handle_stored(session, ticket),
            ReplicationMsg::TransferDone(node) => state.handle_transfer_done(node),
            ReplicationMsg::Tick => state.tick(),
        }
        Ok(())
    }
}
