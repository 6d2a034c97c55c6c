//! The cluster's logs at this node: what is stored on disk, what is sent to and received from other nodes, and what
//! they allow here. The engine makes the decisions.
//!
//! Asked by the operator's requests and by pairing; links bring what other nodes say. It publishes a
//! [`ClusterView`], and tells access control the rules for agents of other nodes.

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

/// What the actor needs.
#[derive(Debug)]
pub struct ReplicationStart {
    /// The node's key.
    pub key: NodeKey,
    /// The instance of this node.
    pub instance: LifeId,
    /// Where the logs are kept. There is nothing before a cluster is founded or joined.
    pub folder: PathBuf,
    /// How long what other nodes could take back is allowed after they were heard.
    pub lease: Duration,
    /// The time by a clock that continues while the machine sleeps.
    pub clock: fn() -> MonotonicTime,
    /// Where it publishes what it knows of the cluster.
    pub view: Arc<Snapshot<ClusterView>>,
    /// The witness of the logs.
    pub witness: Witness,
    /// Access control of this node's servers.
    pub access: AccessHandle,
    /// What it wants done by links.
    pub events: EventSink<ReplicationEvent>,
    /// The audit log.
    pub audit: AuditHandle,
}

/// What the actor wants done, or tells.
#[derive(Debug)]
pub enum ReplicationEvent {
    /// Say this to the node, if it is linked.
    Send(NodeId, Control),
    /// Bring the node these entries: [`send_entries`].
    Transfer(NodeId, LogEntries, TransferPermit),
    /// There is a new view.
    Changed(Arc<ClusterView>),
}

/// What a node gets from the one that invited it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedCluster {
    /// The cluster.
    pub cluster: ClusterId,
    /// The key of the node that invited it, as the link proved it.
    pub inviter: PublicKey,
    /// Entries of the logs, the founding one first. The rest comes from the nodes that these name.
    pub entries: Vec<Vec<u8>>,
}

/// A cluster that this node has founded.
#[derive(Debug)]
pub struct FoundedCluster {
    /// The cluster.
    pub cluster: ClusterId,
    /// To be shown once, and kept by a person: the way on when no admin is left.
    pub recovery: RecoveryKey,
}

/// What the recovery key is used for.
#[derive(Debug)]
pub struct ClusterRecovery {
    /// The key.
    pub key: RecoveryKey,
    /// It makes this node an admin, which is called so.
    pub name: NodeName,
    /// Nodes that are gone: it cuts them off. Without that, a lone admin would wait for them to confirm its log.
    pub removed: Vec<NodeId>,
}

/// What is known, for who decides or reads.
#[derive(Debug)]
pub struct ClusterSnapshot<'a> {
    /// The logs, and what they mean here.
    pub replica: &'a Replica,
    /// The servers of this node.
    pub servers: &'a LocalServers,
    /// The time that leases are counted by.
    pub(crate) now: MonotonicTime,
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
    /// The id for a new grant.
    pub new_grant_id: GrantId,
}

/// Changes that were made. They are on disk and in force here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedChanges {
    /// What was changed.
    pub changes: Vec<LogChange>,
    /// The last one's number in this node's log, for [`ReplicationHandle::watch_confirmations`]; None where all of them
    /// are signed only once other nodes have confirmed that log.
    pub number: Option<u64>,
    /// When they were made, by the clock of leases.
    pub proposed_at: MonotonicTime,
}

/// Decides which changes to make.
pub(crate) type DecideChanges =
    Box<dyn FnOnce(&ClusterSnapshot<'_>) -> Result<Vec<LogChange>, Refusal> + Send>;
/// Reads; there are no records where there is no cluster.
pub(crate) type ReadLogs = Box<dyn FnOnce(Option<&ClusterSnapshot<'_>>) + Send>;
/// Gets what became of a proposal.
pub(crate) type ProposalReply = Reply<Result<ProposedChanges, Refusal>>;

/// Who asks, and the trace of the request.
#[derive(Clone, Debug)]
pub struct RequestedBy {
    /// Who asks.
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
    /// Take part in a cluster.
    Join(Box<JoinedCluster>, RequestedBy, Reply<Result<(), Refusal>>),
    /// Forget the cluster.
    Forget(RequestedBy, Reply<Result<(), Refusal>>),
    /// Decide, and write it to this node's log.
    Propose(DecideChanges, RequestedBy, ProposalReply),
    /// The recovery key makes this node an admin.
    Recover(Box<ClusterRecovery>, RequestedBy, ProposalReply),
    /// Follow who has confirmed what this node wrote at that place.
    Confirmations(u64, Reply<Result<watch::Receiver<Confirmation>, Refusal>>),
    /// Read.
    Read(ReadLogs),
    /// Whether all that was to be brought to other nodes has been.
    IsFlushed(Reply<bool>),
    /// Other servers or shares.
    SetServers(LocalServers, Reply<()>),
    /// A node is linked.
    LinkUp(NodeId),
    /// It is no more.
    LinkDown(NodeId),
    /// It has said what it holds.
    Received(NodeId, LogsDigest, MessagePermit),
    /// Its wall clock was measured.
    Clock(NodeId, PeerClock),
    /// Entries came whose signatures hold.
    EntriesReceived(Vec<SignedOperation>, Reply<()>),
    /// All up to this ticket is on the disk of that stay in a cluster.
    Stored {
        /// Which stay.
        stay: u64,
        /// The ticket.
        ticket: u64,
    },
    /// What was to be brought to the node has been, or could not.
    TransferDone(NodeId),
    /// Time has passed.
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

/// The refusal where there is no cluster.
fn not_in_cluster() -> Refusal {
    let why =
        "this node is in no cluster; `mgp nodes invite` founds one, `mgp nodes join` enters one";
    Refusal::BadParams(why.into())
}

/// The actor.
#[derive(Debug)]
pub struct ReplicationActor;

impl ReplicationActor {
    /// Starts it with what is on disk.
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
            ReplicationMsg::Stored { stay, ticket } => state.handle_stored(stay, ticket),
            ReplicationMsg::TransferDone(node) => state.handle_transfer_done(node),
            ReplicationMsg::Tick => state.tick(),
        }
        Ok(())
    }
}
