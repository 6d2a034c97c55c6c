//! Pairing, by which nodes join: creates tickets, handles nodes that show one, and shows one to another
//! node. The operator invites, approves and joins; the kernel persists the admission.
//!
//! Each pairing link has a task of its own; the actor decides with the engine. Tickets are stored in memory
//! only: a restarted kernel has none.

mod inviting;
mod joining;
mod pending_node;
mod state;
#[cfg(test)]
mod tests;
mod welcome;

use std::net::SocketAddr;

use mgp_engine::cluster::pairing::{
    BadTicket, PairingNode, PairingRejection, PairingReply, TicketStage,
};
use mgp_engine::node_key::{NodeKey, PublicKey};
use mgp_engine::policy::grants::ClusterId;
use mgp_protocol::federation::hello::{NodeName, ReportedRole};
use mgp_protocol::federation::pairing::{PairingCommitted, TicketId, WordNonce};
use mgp_protocol::ids::NodeId;
use mgp_runtime::{AskError, EventSink, Mailbox, Queued, Reply};
use mgp_store::audit::{AuditHandle, AuditWriteError};
use mgp_transports::quic::PairingLink;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};

pub use self::pending_node::{canonical_address, id_check_note};

use self::inviting::{DecisionReceiver, TicketRequest};
use self::state::PairingState;
use crate::links::LinksHandle;

/// The parameters of the actor.
#[derive(Debug)]
pub struct PairingStart {
    /// The node's key.
    pub key: NodeKey,
    /// The links: their socket carries pairings, too.
    pub links: LinksHandle,
    /// Receives the admissions to persist.
    pub events: EventSink<PairingEvent>,
    /// Notified when the list of nodes waiting for approval changes.
    pub pending_changed: EventSink<()>,
    /// The audit log.
    pub audit: AuditHandle,
}

/// Requests and notifications of pairing for the kernel.
#[derive(Debug)]
pub enum PairingEvent {
    /// A node requests to join, and a person has to decide.
    ApprovalRequested(PendingNode),
    /// Persist the node as a member, and return what it needs; or the error, in words for both sides.
    Admit(AdmissionRequest, Reply<Result<NodeAdmission, String>>),
    /// This node was admitted: persist the admission, and reply when it is on disk.
    Joined(NodeAdmission, Reply<Result<(), String>>),
}

/// A node that is to be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// The node.
    pub node: NodeId,
    /// Its key, as the link proved it.
    pub key: PublicKey,
    /// The requested name.
    pub name: NodeName,
    /// Its role.
    pub role: ReportedRole,
}

/// The data that a new node receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAdmission {
    /// The cluster: the hash of its founding entry.
    pub cluster: ClusterId,
    /// Entries of the logs, the founding one first: at most a megabyte of them.
    pub entries: Vec<Vec<u8>>,
    /// The name of the node.
    pub name: NodeName,
    /// Its role.
    pub role: ReportedRole,
    /// The key of the node that admitted it.
    pub inviter: PublicKey,
}

/// The options of a ticket.
#[derive(Clone, Debug)]
pub struct InviteOptions {
    /// The cluster.
    pub cluster: ClusterId,
    /// The role of the node to admit.
    pub role: ReportedRole,
    /// The lifetime of the ticket; 15 minutes by default.
    pub ttl: Option<std::time::Duration>,
    /// Its holder is admitted without a person's approval.
    pub is_preapproved: bool,
    /// The addresses of this node, as `host:port`.
    pub addresses: Vec<String>,
}

/// A new ticket.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// The text to give to one person. A secret.
    pub ticket: String,
    /// Its id.
    pub id: TicketId,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: u64,
}

/// The status of an open ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketStatus {
    /// Its id.
    pub id: TicketId,
    /// The role of the node to admit.
    pub role: ReportedRole,
    /// Its holder is admitted without a person's approval.
    pub is_preapproved: bool,
    /// When it expires.
    pub expires_ms: u64,
    /// The addresses in it, as `host:port`.
    pub addresses: Vec<String>,
    /// The stage of its pairing.
    pub(crate) stage: TicketStage,
}

/// A node that waits for a person's approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingNode {
    /// The ticket it showed.
    pub id: TicketId,
    /// The node, and the words that both sides show.
    pub node: PairingNode,
    /// Its permissions once admitted.
    pub role: ReportedRole,
    /// The address it connects from.
    pub(crate) address: Option<SocketAddr>,
    /// When the ticket expires, in milliseconds since 1970.
    pub(crate) expires_ms: u64,
}

/// The progress of this node's own join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joining {
    /// The node that created the ticket.
    pub inviter: NodeId,
    /// The requested name of this node.
    pub name: NodeName,
    /// When the ticket expires, in milliseconds since 1970.
    pub expires_ms: u64,
    /// The words that both sides show, once they are known.
    pub words: Option<String>,
    /// The words are derived without nonces, because the inviter runs an older version: the holder of the
    /// ticket can grind them.
    pub has_weak_words: bool,
    /// The current step.
    pub progress: JoinProgress,
}

/// The steps of joining.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinProgress {
    /// The inviter is being dialed; with the error of the last attempt.
    Dialing(Option<String>),
    /// The inviter answered, and a person there decides.
    Waiting,
    /// This node is admitted, and has persisted that.
    Admitted(Box<NodeAdmission>),
    /// The inviter denied the request, with the reason.
    Refused(String),
    /// The ticket expired before a decision.
    Expired,
    /// This node was admitted and cannot persist the admission.
    Failed(String),
}

/// The answer to a node that shows a ticket.
#[derive(Debug)]
pub struct TicketAnswer {
    pub(super) reply: PairingReply,
    /// This side's nonce, for a node that has revealed its own.
    pub(super) nonce: Option<WordNonce>,
}

/// Errors of pairing actions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairingActionError {
    /// The text is no valid ticket.
    #[error(transparent)]
    Ticket(#[from] BadTicket),
    /// The engine rejects the action.
    #[error(transparent)]
    Refused(#[from] PairingRejection),
    /// The kernel cannot persist the admission.
    #[error("{0}")]
    NotAdmitted(String),
    /// The ticket is this node's own.
    #[error("this node made the ticket: use it on the other one")]
    OwnTicket,
    /// The ticket expired long ago.
    #[error("the ticket has expired: ask for another one")]
    Expired,
    /// The creation of the ticket could not be recorded.
    #[error("the ticket is good for nothing: {0}")]
    NotRecorded(#[from] AuditWriteError),
    /// The socket is not open.
    #[error("links to other nodes are not open here")]
    NotOpen,
    /// The actor is not reachable.
    #[error("pairing: {0}")]
    Actor(#[from] AskError),
}

/// Handle of the actor.
#[derive(Clone, Debug)]
pub struct PairingHandle {
    mailbox: Mailbox<PairingMsg>,
}

impl PairingHandle {
    /// Creates a ticket. Links have to be open.
    ///
    /// # Errors
    /// [`PairingActionError`].
    pub async fn invite(&self, options: InviteOptions) -> Result<Invitation, PairingActionError> {
        self.mailbox
            .ask(|reply| PairingMsg::Invite(options, reply))
            .await?
    }

    /// The open tickets.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub async fn list_tickets(&self) -> Result<Vec<TicketStatus>, AskError> {
        self.mailbox.ask(PairingMsg::Tickets).await
    }

    /// Withdraws a ticket. False when there is none with this id.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub async fn withdraw(&self, id: TicketId) -> Result<bool, AskError> {
        self.mailbox
            .ask(|reply| PairingMsg::EndTicket(id, "the invitation was withdrawn", reply))
            .await
    }

    /// The nodes that wait for a person's approval.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub async fn pending_nodes(&self) -> Result<Vec<PendingNode>, AskError> {
        self.mailbox.ask(PairingMsg::PendingNodes).await
    }

    /// Approves the node that showed this ticket, if its words are the compared ones; resolves when the
    /// admission is persisted.
    ///
    /// # Errors
    /// [`PairingActionError`]; if the kernel cannot persist the admission, the ticket stays valid.
    pub async fn approve(&self, id: TicketId, words: String) -> Result<(), PairingActionError> {
        self.mailbox
            .ask(|reply| PairingMsg::Approve(id, words, reply))
            .await?
    }

    /// Denies the node that showed this ticket, and uses the ticket up. False when there was none.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub async fn deny(&self, id: TicketId) -> Result<bool, AskError> {
        self.mailbox
            .ask(|reply| PairingMsg::EndTicket(id, "a person there said no", reply))
            .await
    }

    /// Shows a ticket to the node that created it, in place of a running join. Returns at once;
    /// [`Self::joining`] reports the words and the outcome.
    ///
    /// # Errors
    /// [`PairingActionError`].
    pub async fn join(
        &self,
        ticket: String,
        name: NodeName,
    ) -> Result<Joining, PairingActionError> {
        let ask = |reply| PairingMsg::Join(ticket, name, reply);
        self.mailbox.ask(ask).await?
    }

    /// The progress of the last join; `None` before the first.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub async fn joining(&self) -> Result<Option<Joining>, AskError> {
        self.mailbox.ask(PairingMsg::Joining).await
    }

    /// Adds an unknown node that connected for pairing.
    pub fn add_node(&self, link: Box<PairingLink>) {
        // A dropped link is closed, and its node dials again.
        let _ = self.mailbox.send(PairingMsg::NodeConnected(link));
    }
}

/// Messages to the actor.
pub enum PairingMsg {
    /// Create a ticket.
    Invite(InviteOptions, Reply<Result<Invitation, PairingActionError>>),
    /// List the tickets.
    Tickets(Reply<Vec<TicketStatus>>),
    /// List the nodes that wait for approval.
    PendingNodes(Reply<Vec<PendingNode>>),
    /// Approve the node with these compared words.
    Approve(TicketId, String, Reply<Result<(), PairingActionError>>),
    /// End a ticket, with a reason for waiting nodes.
    EndTicket(TicketId, &'static str, Reply<bool>),
    /// Show a ticket.
    Join(String, NodeName, Reply<Result<Joining, PairingActionError>>),
    /// Get the progress of the join.
    Joining(Reply<Option<Joining>>),
    /// An unknown node connected.
    NodeConnected(Box<PairingLink>),
    /// The link of the node with this number has ended.
    NodeGone(u64),
    /// A node showed a ticket, and commits to a nonce.
    Commit(
        Box<TicketRequest>,
        Reply<Result<PairingCommitted, PairingRejection>>,
    ),
    /// A node showed a ticket, and its nonce if it has committed to one.
    ShowTicket(
        Box<TicketRequest>,
        Reply<Result<(TicketAnswer, DecisionReceiver), PairingRejection>>,
    ),
    /// The kernel has persisted an admission, or cannot.
    AdmissionRecorded(TicketId, Result<NodeAdmission, String>),
    /// The node has received its admission.
    Delivered(TicketId),
    /// The words of this node's join with that number.
    Words(u64, String),
    /// The progress of this node's join with that number.
    Progress(u64, JoinProgress),
    /// A ticket may have expired.
    Expire,
}

impl std::fmt::Debug for PairingMsg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the contents, which include secrets.
        f.write_str("PairingMsg")
    }
}

/// Fixed at construction.
#[derive(Debug)]
pub struct PairingActor;

impl PairingActor {
    /// Starts the actor. There are no tickets yet.
    ///
    /// # Errors
    /// The actor cannot be started.
    pub async fn start(start: PairingStart) -> Result<(PairingHandle, ActorCell), SpawnErr> {
        let (actor, _) = Actor::spawn(None, Self, start).await?;
        let cell = actor.get_cell();
        let mailbox = Mailbox::new(actor);
        Ok((PairingHandle { mailbox }, cell))
    }
}

impl Actor for PairingActor {
    type Msg = Queued<PairingMsg>;
    type State = PairingState;
    type Arguments = PairingStart;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        start: PairingStart,
    ) -> Result<PairingState, ActorProcessingErr> {
        Ok(PairingState::new(start, Mailbox::new(myself)))
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut PairingState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            PairingMsg::Invite(options, reply) => state.invite(options, reply).await,
            PairingMsg::Tickets(reply) => reply.send(state.list_tickets()),
            PairingMsg::PendingNodes(reply) => reply.send(state.pending_nodes()),
            PairingMsg::Approve(id, words, reply) => state.approve(id, Some((words, reply))),
            PairingMsg::EndTicket(id, why, reply) => reply.send(state.end_ticket(id, why).await),
            PairingMsg::Join(ticket, name, reply) => reply.send(state.join(&ticket, name)),
            PairingMsg::Joining(reply) => reply.send(state.joining()),
            PairingMsg::NodeConnected(link) => state.add_node(link),
            PairingMsg::NodeGone(number) => state.remove_node(number).await,
            PairingMsg::Commit(asked, reply) => reply.send(state.answer_commitment(*asked)),
            PairingMsg::ShowTicket(asked, reply) => reply.send(state.show_ticket(*asked)),
            PairingMsg::AdmissionRecorded(id, outcome) => state.handle_admission(id, outcome),
            PairingMsg::Delivered(id) => state.confirm_delivery(id).await,
            PairingMsg::Words(number, words) => state.set_words(number, words),
            PairingMsg::Progress(number, progress) => state.set_progress(number, progress),
            PairingMsg::Expire => state.expire().await,
        }
        state.notify_if_pending_changed();
        Ok(())
    }
}
