//! How nodes join: creates tickets, handles nodes that show one, and shows one to another node. The operator invites,
//! approves and joins; the kernel persists the admission.
//!
//! Each link of a pairing has a task of its own; the actor decides with the engine. Tickets are kept in memory:
//! a kernel that is started again has none out.

mod guests;
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

use self::guests::{DecisionReceiver, TicketRequest};
use self::state::PairingState;
use crate::links::LinksHandle;

/// What pairing needs.
#[derive(Debug)]
pub struct PairingStart {
    /// The node's key.
    pub key: NodeKey,
    /// The links: their socket carries pairings, too.
    pub links: LinksHandle,
    /// What is to be written down.
    pub events: EventSink<PairingEvent>,
    /// Other nodes wait for approval than before.
    pub pending_changed: EventSink<()>,
    /// The audit log.
    pub audit: AuditHandle,
}

/// What the kernel does for pairing.
#[derive(Debug)]
pub enum PairingEvent {
    /// A node asks to join, and a person has to decide.
    ApprovalRequested(PendingNode),
    /// Write down that the node is a member, and answer what it needs; or why that cannot be, in words for both
    /// sides.
    Admit(AdmissionRequest, Reply<Result<NodeAdmission, String>>),
    /// This node was admitted: keep what it was given, and answer when that is on disk.
    Joined(NodeAdmission, Reply<Result<(), String>>),
}

/// A node that is to be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// The node.
    pub node: NodeId,
    /// Its key, as the link proved it.
    pub key: PublicKey,
    /// What it wants to be called.
    pub name: NodeName,
    /// What it may do.
    pub role: ReportedRole,
}

/// What a new node is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAdmission {
    /// The cluster: the hash of its founding entry.
    pub cluster: ClusterId,
    /// Entries of the logs, the founding one first: at most a megabyte of them.
    pub entries: Vec<Vec<u8>>,
    /// What the node is called.
    pub name: NodeName,
    /// What it may do.
    pub role: ReportedRole,
    /// The key of the node that let it in.
    pub inviter: PublicKey,
}

/// What a ticket is to be good for.
#[derive(Clone, Debug)]
pub struct InviteOptions {
    /// The cluster.
    pub cluster: ClusterId,
    /// What the node may do.
    pub role: ReportedRole,
    /// The lifetime of the ticket; 15 minutes by default.
    pub ttl: Option<std::time::Duration>,
    /// Its holder is admitted without a person's approval.
    pub is_preapproved: bool,
    /// Where this node is, as `host:port`.
    pub addresses: Vec<String>,
}

/// A new ticket.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// To be handed to one person. A secret.
    pub ticket: String,
    /// What it is called here.
    pub id: TicketId,
    /// When it ends, in milliseconds since 1970.
    pub expires_ms: u64,
}

/// A ticket that is out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketStatus {
    /// What it is called.
    pub id: TicketId,
    /// What the node may do.
    pub role: ReportedRole,
    /// Its holder is admitted without a person's approval.
    pub is_preapproved: bool,
    /// When it ends.
    pub expires_ms: u64,
    /// Where it leads, as `host:port`.
    pub addresses: Vec<String>,
    /// How far it is.
    pub(crate) stage: TicketStage,
}

/// A node that waits for a person's approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingNode {
    /// The ticket it showed.
    pub id: TicketId,
    /// Who it is, and the words that both sides show.
    pub node: PairingNode,
    /// Its permissions once admitted.
    pub role: ReportedRole,
    /// Where it asks from.
    pub(crate) address: Option<SocketAddr>,
    /// When the ticket ends, in milliseconds since 1970.
    pub(crate) expires_ms: u64,
}

/// How far this node's own joining is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joining {
    /// Who made the ticket.
    pub inviter: NodeId,
    /// What this node wants to be called.
    pub name: NodeName,
    /// When the ticket ends, in milliseconds since 1970.
    pub expires_ms: u64,
    /// The words that both sides show, once they are known.
    pub words: Option<String>,
    /// The words are without nonces, for the inviter is older: who holds the ticket can grind them.
    pub has_weak_words: bool,
    /// How far it is.
    pub progress: JoinProgress,
}

/// The steps of joining.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinProgress {
    /// The other side is being dialed; what the last try came to.
    Dialing(Option<String>),
    /// The other side was heard, and a person there decides.
    Waiting,
    /// It is admitted, and has persisted that.
    Admitted(Box<NodeAdmission>),
    /// The other side said no, and why.
    Refused(String),
    /// The ticket ended before somebody decided.
    Expired,
    /// It was admitted and cannot persist what it received.
    Failed(String),
}

/// What a node that shows a ticket is answered.
#[derive(Debug)]
pub struct TicketAnswer {
    pub(super) reply: PairingReply,
    /// Of this side, to a node that has revealed its own.
    pub(super) nonce: Option<WordNonce>,
}

/// Why nothing is done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairingActionError {
    /// It is no ticket.
    #[error(transparent)]
    Ticket(#[from] BadTicket),
    /// The engine refuses.
    #[error(transparent)]
    Refused(#[from] PairingRejection),
    /// The kernel cannot write it down.
    #[error("{0}")]
    NotAdmitted(String),
    /// It is this node's own ticket.
    #[error("this node made the ticket: use it on the other one")]
    OwnTicket,
    /// The ticket's time is long over.
    #[error("the ticket has expired: ask for another one")]
    Expired,
    /// That the ticket was made is not written down.
    #[error("the ticket is good for nothing: {0}")]
    NotRecorded(#[from] AuditWriteError),
    /// There is no socket.
    #[error("links to other nodes are not open here")]
    NotOpen,
    /// The actor is not reachable.
    #[error("pairing: {0}")]
    Actor(#[from] AskError),
}

/// Handle for everyone.
#[derive(Clone, Debug)]
pub struct PairingHandle {
    mailbox: Mailbox<PairingMsg>,
}

impl PairingHandle {
    /// Makes a ticket. Links have to be open.
    ///
    /// # Errors
    /// [`PairingActionError`].
    pub async fn invite(&self, terms: InviteOptions) -> Result<Invitation, PairingActionError> {
        self.mailbox
            .ask(|reply| PairingMsg::Invite(terms, reply))
            .await?
    }

    /// The tickets that are out.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub async fn list_tickets(&self) -> Result<Vec<TicketStatus>, AskError> {
        self.mailbox.ask(PairingMsg::Tickets).await
    }

    /// Makes a ticket good for nothing. False when there was none.
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

    /// Lets the node in that showed this ticket, if it is the one whose words were looked at; resolves when that is
    /// written down.
    ///
    /// # Errors
    /// [`PairingActionError`]; where the kernel cannot write it down, the ticket is as good as before.
    pub async fn approve(&self, id: TicketId, words: String) -> Result<(), PairingActionError> {
        self.mailbox
            .ask(|reply| PairingMsg::Approve(id, words, reply))
            .await?
    }

    /// Turns the node away that showed this ticket, and uses the ticket up. False when there was none.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub async fn deny(&self, id: TicketId) -> Result<bool, AskError> {
        self.mailbox
            .ask(|reply| PairingMsg::EndTicket(id, "a person there said no", reply))
            .await
    }

    /// Shows a ticket to the node that made it, in place of one that is being shown. Answers at once;
    /// [`Self::joining`] tells the words, and what comes of it.
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

    /// How far the last joining is; `None` before the first.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub async fn joining(&self) -> Result<Option<Joining>, AskError> {
        self.mailbox.ask(PairingMsg::Joining).await
    }

    /// A node that is not known came by a link of its own.
    pub fn add_guest(&self, link: Box<PairingLink>) {
        // One that is dropped is closed, and dials again.
        let _ = self.mailbox.send(PairingMsg::Guest(link));
    }
}

/// Messages to the actor.
pub enum PairingMsg {
    /// Make a ticket.
    Invite(InviteOptions, Reply<Result<Invitation, PairingActionError>>),
    /// Tell the tickets.
    Tickets(Reply<Vec<TicketStatus>>),
    /// Tell who waits.
    PendingNodes(Reply<Vec<PendingNode>>),
    /// A person who compared these words approves.
    Approve(TicketId, String, Reply<Result<(), PairingActionError>>),
    /// A ticket ends, for a reason that who waits is told.
    EndTicket(TicketId, &'static str, Reply<bool>),
    /// Show a ticket.
    Join(String, NodeName, Reply<Result<Joining, PairingActionError>>),
    /// Tell how far that is.
    Joining(Reply<Option<Joining>>),
    /// A node that is not known.
    Guest(Box<PairingLink>),
    /// The link of the node with this number has ended.
    GuestGone(u64),
    /// It showed a ticket, and commits to a nonce.
    Commit(
        Box<TicketRequest>,
        Reply<Result<PairingCommitted, PairingRejection>>,
    ),
    /// It showed a ticket, and its nonce if it has committed to one.
    ShowTicket(
        Box<TicketRequest>,
        Reply<Result<(TicketAnswer, DecisionReceiver), PairingRejection>>,
    ),
    /// The kernel has written down who is admitted, or cannot.
    AdmissionRecorded(TicketId, Result<NodeAdmission, String>),
    /// The node has what it was given.
    Delivered(TicketId),
    /// The words of this node's joining with that number.
    Words(u64, String),
    /// How far this node's joining with that number is.
    Progress(u64, JoinProgress),
    /// A ticket's time may be over.
    Expire,
}

impl std::fmt::Debug for PairingMsg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without what they hold: secrets are among it.
        f.write_str("PairingMsg")
    }
}

/// Fixed at construction.
#[derive(Debug)]
pub struct PairingActor;

impl PairingActor {
    /// Starts the actor. No ticket is out.
    ///
    /// # Errors
    /// When it cannot be started.
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
            PairingMsg::Invite(terms, reply) => state.invite(terms, reply).await,
            PairingMsg::Tickets(reply) => reply.send(state.list_tickets()),
            PairingMsg::PendingNodes(reply) => reply.send(state.pending_nodes()),
            PairingMsg::Approve(id, words, reply) => state.approve(id, Some((words, reply))),
            PairingMsg::EndTicket(id, why, reply) => reply.send(state.end_ticket(id, why).await),
            PairingMsg::Join(ticket, name, reply) => reply.send(state.join(&ticket, name)),
            PairingMsg::Joining(reply) => reply.send(state.joining()),
            PairingMsg::Guest(link) => state.add_guest(link),
            PairingMsg::GuestGone(number) => state.remove_guest(number).await,
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
