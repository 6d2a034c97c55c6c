//! The index of shared tools: each peer gets the tools that this node shares with it, and the shared tools
//! of the others are copied and published. The catalog, links and membership send to it; calls, catalog and
//! search read what it publishes.
//!
//! Only digests are pushed. A node that is behind pulls pages over the owner's own link, in a task of its
//! own; each page is validated here. Copies and the nodes' names are stored on disk.

mod copies;
mod node_handles;
mod peer_tools;
mod peers;
mod publication;
mod refusals;
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
    IndexDigest, IndexPage, IndexReport, PullFailure, PullIndex,
};
use mgp_protocol::ids::{NodeId, ServerId};
use mgp_runtime::{AskError, EventSink, Mailbox, Queued, Reply, task};
use mgp_store::audit::AuditHandle;
use mgp_sync::Snapshot;
use mgp_transports::quic::SyncStream;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};

pub use self::node_handles::PublishedNames;
pub(crate) use self::peer_tools::HiddenNode;
pub use self::peer_tools::{PeerServer, PeerTool, PeerTools};
pub use self::status::IndexedNode;
use crate::links::{MessagePermit, PeerLink};
use state::ToolIndexState;

/// The parameters of the actor.
#[derive(Clone, Debug)]
pub struct ToolIndexStart {
    /// This node.
    pub node: NodeId,
    /// Where copies and names are stored; created when first needed.
    pub folder: PathBuf,
    /// Where the tools of others are published.
    pub published: Arc<Snapshot<PeerTools>>,
    /// Where the names of all other nodes are published.
    pub names: Arc<Snapshot<PublishedNames>>,
    /// Receives index events.
    pub events: EventSink<ToolIndexEvent>,
    /// Receives the control messages for peers.
    pub control: EventSink<(NodeId, Control)>,
    /// The audit log.
    pub audit: AuditHandle,
}

/// Events of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolIndexEvent {
    /// The published tools changed.
    Changed,
    /// The published names changed.
    Renamed,
    /// A peer rejected some of this node's index.
    Reported(NodeId, IndexReport),
    /// This node rejected some of a peer's index.
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
    /// Set the servers of this node.
    SetOffer(BTreeMap<ServerId, Arc<OfferedServer>>),
    /// Set the shares.
    SetShares(Arc<Shares>),
    /// Set the members that share nothing.
    SetLeaves(BTreeSet<NodeId>),
    /// Set the nodes of the cluster, with the names they report.
    SetMembers(BTreeMap<NodeId, NodeName>),
    /// A link was established.
    LinkUp(Arc<PeerLink>),
    /// The link to a node ended.
    LinkDown(NodeId),
    /// A peer sent its digest.
    DigestReceived(NodeId, IndexDigest, MessagePermit),
    /// A peer reported what it rejected.
    ReportReceived(NodeId, IndexReport, MessagePermit),
    /// A peer pulls a page; the reply is none for a node outside the cluster.
    Page(NodeId, PullIndex, Reply<Option<IndexPage>>),
    /// A pull has ended.
    Pulled(NodeId, u64, Result<Box<IndexPage>, PullFailure>),
    /// A save has ended.
    Saved(Result<(), String>),
    /// Get the status of each node.
    Status(Reply<Vec<IndexedNode>>),
    /// A timer may be due.
    TimerDue,
}

impl ToolIndexHandle {
    /// Loads the stored state and starts the actor.
    ///
    /// # Errors
    /// The actor cannot be started; the names cannot be read, as a text for the person who starts the
    /// kernel.
    pub async fn start(start: ToolIndexStart) -> Result<(Self, ActorCell), SpawnErr> {
        let (actor, _) = Actor::spawn(None, ToolIndexActor, start).await?;
        let cell = actor.get_cell();
        let mailbox = Mailbox::new(actor);
        Ok((Self { mailbox }, cell))
    }

    /// Sets the servers of this node, shared or not.
    pub fn set_offer(&self, servers: BTreeMap<ServerId, Arc<OfferedServer>>) {
        self.send(ToolIndexMsg::SetOffer(servers));
    }

    /// Sets what this node shares.
    pub fn set_shares(&self, shares: Arc<Shares>) {
        self.send(ToolIndexMsg::SetShares(shares));
    }

    /// Sets the nodes of the cluster, with the names they report.
    pub fn set_members(&self, members: BTreeMap<NodeId, NodeName>) {
        self.send(ToolIndexMsg::SetMembers(members));
    }

    /// Sets the nodes of the cluster that may only call: from the next [`Self::set_members`] on, their
    /// indexes are ignored.
    pub fn set_leaves(&self, leaves: BTreeSet<NodeId>) {
        self.send(ToolIndexMsg::SetLeaves(leaves));
    }

    /// Reports a link to a node, which may replace another one.
    pub fn link_up(&self, link: Arc<PeerLink>) {
        self.send(ToolIndexMsg::LinkUp(link));
    }

    /// Reports the end of the link to a node.
    pub fn link_down(&self, node: NodeId) {
        self.send(ToolIndexMsg::LinkDown(node));
    }

    /// Handles the digest of a node, received over its own link.
    pub fn receive_digest(&self, node: NodeId, digest: IndexDigest, permit: MessagePermit) {
        self.send(ToolIndexMsg::DigestReceived(node, digest, permit));
    }

    /// Handles a node's report of what it rejected of this index.
    pub fn receive_report(&self, node: NodeId, report: IndexReport, permit: MessagePermit) {
        self.send(ToolIndexMsg::ReportReceived(node, report, permit));
    }

    /// Answers the pulls of a node on a stream whose opening was read.
    pub fn serve(&self, node: NodeId, stream: Box<SyncStream>) {
        let serving = streams::serve(self.mailbox.clone(), node, stream);
        task::spawn_detached("tool_index.serve", serving);
    }

    /// The status of each node, by its id.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn status(&self) -> Result<Vec<IndexedNode>, AskError> {
        self.mailbox.ask(ToolIndexMsg::Status).await
    }

    fn send(&self, message: ToolIndexMsg) {
        match self.mailbox.send(message) {
            // The kernel is shutting down.
            Ok(()) | Err(AskError::Stopped) => {}
            Err(error) => {
                tracing::error!(%error, "a change could not be sent to the index of all nodes")
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
        let state = ToolIndexState::load(Mailbox::new(myself), start).await?;
        Ok(Box::new(state))
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut Box<ToolIndexState>,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            ToolIndexMsg::SetOffer(servers) => state.set_offer(servers).await,
            ToolIndexMsg::SetShares(shares) => state.set_shares(&shares),
            ToolIndexMsg::SetLeaves(leaves) => state.set_leaves(leaves),
            ToolIndexMsg::SetMembers(members) => state.set_members(members).await,
            ToolIndexMsg::LinkUp(link) => state.link_up(link),
            ToolIndexMsg::LinkDown(node) => state.link_down(node),
            ToolIndexMsg::DigestReceived(node, digest, permit) => {
                state.receive_digest(node, digest);
                drop(permit);
            }
            ToolIndexMsg::ReportReceived(node, report, permit) => {
                state.receive_report(node, report);
                drop(permit);
            }
            ToolIndexMsg::Page(node, pull, reply) => reply.send(state.answer_pull(node, &pull)),
            ToolIndexMsg::Pulled(node, number, page) => state.handle_pulled(node, number, page),
            ToolIndexMsg::Saved(kept) => state.handle_saved(kept),
            ToolIndexMsg::Status(reply) => reply.send(state.status()),
            ToolIndexMsg::TimerDue => state.run_due(),
        }
        state.finish_message();
        Ok(())
    }
}
