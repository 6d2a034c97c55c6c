//! The tools of all nodes: what this one shares is told to each peer as it may see it, and what the others
//! share is copied from them and published.
//! The catalog, links and membership send to it; calls, catalog and search read what it publishes.
//!
//! Only digests are told. Who is behind pulls pages over the owner's own link, in a task of its own; each
//! page is judged here. Copies and the nodes' names are kept on disk.

mod copies;
mod held_tools;
mod node_handles;
mod peers;
mod refusals;
mod showing;
mod state;
mod status;
mod streams;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use mgp_engine::cluster::shares::Shares;
use mgp_engine::cluster::tool_index::OfferedServer;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::federation::tool_index::{
    IndexDigest, IndexPage, IndexReport, NotBrought, PullIndex,
};
use mgp_protocol::ids::{NodeId, ServerId};
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::{AskError, Mailbox, Queued, Reply};
use mgp_runtime::task;
use mgp_store::audit::AuditHandle;
use mgp_sync::Snapshot;
use mgp_transports::quic::SyncStream;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};

pub use self::held_tools::{HeldServer, HeldTool, HeldTools, HiddenNode};
pub use self::node_handles::{NamedNodes, UnusableNames};
pub use self::status::IndexedNode;
use crate::links::{HeardTurn, PeerLink};
use state::ToolIndexState;

/// What the actor needs.
#[derive(Clone, Debug)]
pub struct ToolIndexStart {
    /// This node.
    pub here: NodeId,
    /// Where copies and names are kept; made when there is something to keep.
    pub folder: PathBuf,
    /// Where the tools of others are published.
    pub held: Arc<Snapshot<HeldTools>>,
    /// Where the names of all other nodes are published.
    pub names: Arc<Snapshot<NamedNodes>>,
    /// Told what happened.
    pub events: EventSink<ToolIndexEvent>,
    /// Told what a peer is to be told.
    pub control: EventSink<(NodeId, Control)>,
    /// The audit log.
    pub audit: AuditHandle,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolIndexEvent {
    /// Other tools are published than before.
    Changed,
    /// Other names are published than before.
    Renamed,
    /// Some of what this node told was not taken by that one.
    Reported(NodeId, IndexReport),
    /// Some of what that node told was not taken here.
    Refused(NodeId, IndexReport),
}

/// Handle of the actor.
#[derive(Clone, Debug)]
pub struct ToolIndexHandle {
    mailbox: Mailbox<ToolIndexMsg>,
}

/// Messages to the actor.
#[derive(Debug)]
pub enum ToolIndexMsg {
    /// The servers of this node are these.
    Offer(BTreeMap<ServerId, Arc<OfferedServer>>),
    /// What is shared is this.
    Shared(Arc<Shares>),
    /// Those of them that share nothing.
    Leaves(BTreeSet<NodeId>),
    /// The nodes of the cluster, as they call themselves.
    Members(BTreeMap<NodeId, NodeName>),
    /// There is a link.
    LinkUp(Arc<PeerLink>),
    /// There is none any more.
    LinkDown(NodeId),
    /// A peer told its digest.
    Heard(NodeId, IndexDigest, HeardTurn),
    /// A peer told what it did not take.
    Report(NodeId, IndexReport, HeardTurn),
    /// A peer asks for a page; answered with none for who is not of the cluster.
    Page(NodeId, PullIndex, Reply<Option<IndexPage>>),
    /// A pull has ended.
    Pulled(NodeId, u64, Result<Box<IndexPage>, NotBrought>),
    /// What has been kept on disk, or not.
    Kept(Result<(), String>),
    /// How each node stands.
    Status(Reply<Vec<IndexedNode>>),
    /// Something may have become due.
    Due,
}

impl ToolIndexHandle {
    /// Reads what was kept and starts the actor.
    ///
    /// # Errors
    /// The actor cannot be started; the names cannot be read, in words for who starts the kernel.
    pub async fn start(start: ToolIndexStart) -> Result<(Self, ActorCell), SpawnErr> {
        let (actor, _) = Actor::spawn(None, ToolIndexActor, start).await?;
        let cell = actor.get_cell();
        let mailbox = Mailbox::new(actor);
        Ok((Self { mailbox }, cell))
    }

    /// The servers of this node are these, and no others; those that nobody shares, too.
    pub fn offer(&self, servers: BTreeMap<ServerId, Arc<OfferedServer>>) {
        self.say(ToolIndexMsg::Offer(servers));
    }

    /// What this node shares is this from now on.
    pub fn set_shares(&self, shares: Arc<Shares>) {
        self.say(ToolIndexMsg::Shared(shares));
    }

    /// The nodes of the cluster are these, and call themselves so.
    pub fn set_members(&self, members: BTreeMap<NodeId, NodeName>) {
        self.say(ToolIndexMsg::Members(members));
    }

    /// These nodes of the cluster may only call: from the next [`Self::set_members`] on, nothing that they tell is
    /// taken.
    pub fn set_leaves(&self, leaves: BTreeSet<NodeId>) {
        self.say(ToolIndexMsg::Leaves(leaves));
    }

    /// There is a link to a node, perhaps in the place of another one.
    pub fn link_up(&self, link: Arc<PeerLink>) {
        self.say(ToolIndexMsg::LinkUp(link));
    }

    /// There is no link to the node any more.
    pub fn link_down(&self, node: NodeId) {
        self.say(ToolIndexMsg::LinkDown(node));
    }

    /// A node told its digest over its own link.
    pub fn heard(&self, node: NodeId, digest: IndexDigest, turn: HeardTurn) {
        self.say(ToolIndexMsg::Heard(node, digest, turn));
    }

    /// A node told what it did not take of this one's index.
    pub fn report(&self, node: NodeId, report: IndexReport, turn: HeardTurn) {
        self.say(ToolIndexMsg::Report(node, report, turn));
    }

    /// Answers the pulls of a node on a stream whose opening has been read.
    pub fn serve(&self, node: NodeId, stream: Box<SyncStream>) {
        let serving = streams::serve(self.mailbox.clone(), node, stream);
        task::detached("tool_index.serve", serving);
    }

    /// How each node stands, by its id.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn status(&self) -> Result<Vec<IndexedNode>, AskError> {
        self.mailbox.ask(ToolIndexMsg::Status).await
    }

    fn say(&self, message: ToolIndexMsg) {
        match self.mailbox.tell(message) {
            // The kernel is ending.
            Ok(()) | Err(AskError::Stopped) => {}
            Err(error) => {
                tracing::error!(%error, "the index of all nodes was not told of a change")
            }
        }
    }
}

#[derive(Debug)]
struct ToolIndexActor;

impl Actor for ToolIndexActor {
    type Msg = Queued<ToolIndexMsg>;
    type State = Box<ToolIndexState>;
    type Arguments = ToolIndexStart;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        start: ToolIndexStart,
    ) -> Result<Box<ToolIndexState>, ActorProcessingErr> {
        let state = ToolIndexState::restored(Mailbox::new(myself), start).await?;
        Ok(Box::new(state))
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut Box<ToolIndexState>,
    ) -> Result<(), ActorProcessingErr> {
        match queued.open() {
            ToolIndexMsg::Offer(servers) => state.offer(servers).await,
            ToolIndexMsg::Shared(shares) => state.share(&shares),
            ToolIndexMsg::Leaves(leaves) => state.leaves(leaves),
            ToolIndexMsg::Members(members) => state.members(members).await,
            ToolIndexMsg::LinkUp(link) => state.link_up(link),
            ToolIndexMsg::LinkDown(node) => state.link_down(node),
            ToolIndexMsg::Heard(node, digest, turn) => {
                state.heard(node, digest);
                drop(turn);
            }
            ToolIndexMsg::Report(node, report, turn) => {
                state.reported(node, report);
                drop(turn);
            }
            ToolIndexMsg::Page(node, pull, reply) => reply.send(state.page(node, &pull)),
            ToolIndexMsg::Pulled(node, number, page) => state.pulled(node, number, page),
            ToolIndexMsg::Kept(kept) => state.kept(kept),
            ToolIndexMsg::Status(reply) => reply.send(state.status()),
            ToolIndexMsg::Due => state.due(),
        }
        state.settle();
        Ok(())
    }
}
