//! Links to other nodes: maintains one to each member, and reports which members are alive. The kernel supplies the
//! members and the listening address; calls read the published links; the logs and the index get the messages.
//!
//! Each link has a task that reads and writes it. The actor owns the socket, dials, and decides with the engines
//! which of two links stays. After a failure it is restarted, and all links begin anew.

mod dialing;
mod failure_text;
mod key_conflicts;
mod listener;
mod live_link;
mod members;
mod outbox;
mod parts;
mod socket;
mod state;
mod status;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod timers;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::cluster::clock_offset::PeerClock;
use mgp_engine::node_key::{NodeKey, PublicKey};
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::hello::{LifeId, NodeName, ReportedRole, WireFeatures};
use mgp_protocol::ids::NodeId;
use mgp_runtime::{AskError, EventSink, Mailbox, Queued, Reply};
use mgp_sync::{Credit, Snapshot};
use mgp_transports::quic::{LinkEndpoint, LinkGone, PairingLink, RelayedPair, SyncStream};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};

use self::dialing::DialResult;
pub use self::live_link::MessagePermit;
use self::live_link::{AcceptedLink, LinkMessage};
use self::parts::LinksShared;
use self::state::LinksState;

pub use self::failure_text::LinkRefusal;
pub use self::socket::OpenError;
pub use self::status::{LinkStatus, LinkedStatus};
pub use self::table::{InboundNodeCall, LinkTable, PeerLink};

/// What the links need.
#[derive(Debug)]
pub struct LinksStart {
    /// The node's key.
    pub key: NodeKey,
    /// What the node is called.
    pub name: NodeName,
    /// What it takes itself for.
    pub role: ReportedRole,
    /// This instance of it.
    pub instance: LifeId,
    /// Where the links are published.
    pub table: Arc<Snapshot<LinkTable>>,
    /// What comes over links, and their comings and goings.
    pub events: EventSink<LinksEvent>,
    /// What the messages of all links may take.
    pub memory: Arc<Credit>,
    /// Its waits.
    pub times: LinkTimeouts,
    /// Whether packets are passed on between nodes that have no link to each other.
    pub relay: bool,
}

/// The waits of links.
#[derive(Clone, Copy, Debug)]
pub struct LinkTimeouts {
    /// How often the peer's clock is asked for. Eight answers are kept: those of the last minute.
    pub(crate) clock: Duration,
    /// How long a replaced link continues: calls that began on it mostly end meanwhile.
    pub(crate) drain: Duration,
    /// How soon a socket that broke is opened again.
    pub(crate) reopen: Duration,
}

impl Default for LinkTimeouts {
    fn default() -> Self {
        Self {
            clock: Duration::from_secs(5),
            drain: Duration::from_secs(30),
            reopen: Duration::from_secs(1),
        }
    }
}

/// A member with which links are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedPeer {
    /// Its key.
    pub key: PublicKey,
    /// What the cluster calls it.
    pub name: String,
    /// What the cluster's log says it may do.
    pub role: ReportedRole,
    /// Two live nodes have its key: both are notified and get no link.
    pub has_duplicate_key: bool,
}

/// What happens on links.
#[derive(Debug)]
pub enum LinksEvent {
    /// A link is there and published. Comes again, without [`Self::Down`] before, when another one took its
    /// place.
    Up(Arc<PeerLink>),
    /// There is no link to the node any more.
    Down {
        /// The node.
        node: NodeId,
        /// Why it ended.
        why: LinkGone,
    },
    /// Membership takes the node for there, whether this node has a link to it or not.
    Present(NodeId),
    /// And no longer.
    Missing(NodeId),
    /// The node's wall clock was measured.
    Clock(NodeId, PeerClock),
    /// A message for the logs or the index; the turn goes with it until it was heeded.
    Control(NodeId, Control, MessagePermit),
    /// The node copies.
    Sync(NodeId, Box<SyncStream>),
    /// One of its agents calls.
    Call(Box<InboundNodeCall>),
    /// A node that is not known asks to be paired.
    Pairing(Box<PairingLink>),
}

/// Handle for everyone; clones are the same one.
#[derive(Clone, Debug)]
pub struct LinksHandle {
    mailbox: Mailbox<LinksMsg>,
    parts: Arc<LinksShared>,
}

impl LinksHandle {
    /// Restarts the actor after a failure: with the same socket's address, pins and names.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(&self) -> Result<ActorCell, SpawnErr> {
        let actor = LinksActor {
            parts: Arc::clone(&self.parts),
            mailbox: self.mailbox.clone(),
        };
        self.mailbox.start(actor, ()).await
    }

    /// Opens the socket, and dials from now on. Another one that is open is closed.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(&self, listen: SocketAddr) -> Result<SocketAddr, OpenError> {
        let ask = |reply| LinksMsg::Open(listen, reply);
        self.mailbox.ask(ask).await?
    }

    /// Ends all links and closes the socket.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub async fn close(&self, why: LinkClose) -> Result<(), AskError> {
        self.mailbox.ask(|reply| LinksMsg::Close(why, reply)).await
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.endpoint()?.address().ok()
    }

    /// The socket, for pairing to dial through.
    #[must_use]
    pub(crate) fn endpoint(&self) -> Option<LinkEndpoint> {
        (*self.parts.endpoint.load()).clone()
    }

    /// Exactly these nodes may have links from when this resolves: those of others are cut by then. `names` are
    /// places, as `host:port`, where members may be.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub async fn pin(
        &self,
        peers: BTreeMap<NodeId, PinnedPeer>,
        names: Vec<String>,
    ) -> Result<(), AskError> {
        let ask = |reply| LinksMsg::Pin(LinkPins { peers, names }, reply);
        self.mailbox.ask(ask).await
    }

    /// A node, or somebody in its name, was found there. Nothing of strangers is kept.
    pub fn add_hint(&self, node: NodeId, address: SocketAddr) {
        // One that is lost for want of room is announced again.
        let _ = self.mailbox.send(LinksMsg::Hint(node, address));
    }

    /// Tells a node, if there is a link to it. Of what waits to be sent, an older word of the same kind about
    /// the same is left out.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub fn send(&self, node: NodeId, message: Control) -> Result<(), AskError> {
        self.mailbox.send(LinksMsg::Send(node, message))
    }

    /// The link to a node.
    #[must_use]
    pub fn link(&self, node: NodeId) -> Option<Arc<PeerLink>> {
        self.parts.table.load().links.get(&node).cloned()
    }

    /// The links there are.
    #[must_use]
    pub fn table(&self) -> Arc<LinkTable> {
        self.parts.table.load()
    }

    /// The nodes with a link.
    #[must_use]
    pub fn linked_nodes(&self) -> Vec<NodeId> {
        self.parts.table.load().links.keys().copied().collect()
    }

    /// Those of them whose version lacks some of these.
    #[must_use]
    pub fn linked_nodes_without(&self, features: WireFeatures) -> Vec<NodeId> {
        let table = self.parts.table.load();
        let links = table.links.iter();
        let older = links.filter(|(_, link)| !link.link.negotiated().features.contains(features));
        older.map(|(node, _)| *node).collect()
    }

    /// What this node passes on for others at present.
    #[must_use]
    pub fn relayed_pairs(&self) -> Vec<RelayedPair> {
        let endpoint = self.endpoint();
        endpoint.map_or_else(Vec::new, |endpoint| endpoint.relayed_pairs())
    }

    /// What the node says of itself on links that begin from now on.
    pub fn set_hello(&self, name: NodeName, role: ReportedRole) {
        self.parts.hello.store(Arc::new((name, role)));
    }

    /// Whether nodes that are not known may ask to be paired.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub(crate) async fn set_pairing(&self, open: bool) -> Result<(), AskError> {
        self.mailbox
            .ask(|reply| LinksMsg::Pairing(open, reply))
            .await
    }

    /// Each member, and how the link to it is.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub async fn status(&self) -> Result<Vec<LinkStatus>, AskError> {
        self.mailbox.ask(LinksMsg::Status).await
    }
}

/// Who may have links, and names of places where they may be.
#[derive(Clone, Debug, Default)]
pub struct LinkPins {
    peers: BTreeMap<NodeId, PinnedPeer>,
    names: Vec<String>,
}

/// Messages to the actor.
#[derive(Debug)]
pub enum LinksMsg {
    /// Open the socket.
    Open(SocketAddr, Reply<Result<SocketAddr, OpenError>>),
    /// Close it.
    Close(LinkClose, Reply<()>),
    /// Who may have links.
    Pin(LinkPins, Reply<()>),
    /// A hint.
    Hint(NodeId, SocketAddr),
    /// Tell a node.
    Send(NodeId, Control),
    /// Whether strangers may ask.
    Pairing(bool, Reply<()>),
    /// How the links are.
    Status(Reply<Vec<LinkStatus>>),
    /// Somebody dialed and was taken.
    Accepted(AcceptedLink),
    /// The socket with this number takes nobody any more.
    SocketLost(u64),
    /// A dial has ended.
    Dialed(Box<DialResult>),
    /// The link with this number received a message for the actor itself.
    Received(u64, LinkMessage, Reply<()>),
    /// The link with this number ended.
    Ended(u64, LinkGone),
    /// Something is due.
    TimerDue,
}

/// Fixed at construction.
#[derive(Debug)]
pub struct LinksActor {
    parts: Arc<LinksShared>,
    mailbox: Mailbox<LinksMsg>,
}

impl LinksActor {
    /// Starts the actor. No socket is open yet.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(start: LinksStart) -> Result<(LinksHandle, ActorCell), SpawnErr> {
        let parts = LinksShared::new(start);
        let parts = parts.map_err(|error| SpawnErr::StartupFailed(error.into()))?;
        let handle = LinksHandle {
            mailbox: Mailbox::new_restartable(),
            parts: Arc::new(parts),
        };
        let cell = handle.start().await?;
        Ok((handle, cell))
    }
}

impl Actor for LinksActor {
    type Msg = Queued<LinksMsg>;
    type State = LinksState;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<LinksState, ActorProcessingErr> {
        Ok(LinksState::new(
            Arc::clone(&self.parts),
            self.mailbox.clone(),
        ))
    }

    async fn post_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        state: &mut LinksState,
    ) -> Result<(), ActorProcessingErr> {
        state.restore();
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut LinksState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            LinksMsg::Open(listen, reply) => reply.send(state.open(listen).await),
            LinksMsg::Close(why, reply) => {
                state.close(why).await;
                reply.send(());
            }
            LinksMsg::Pin(pins, reply) => {
                state.pin(pins);
                reply.send(());
            }
            LinksMsg::Hint(node, address) => state.add_hint(node, address),
            LinksMsg::Send(node, message) => state.send(node, message),
            LinksMsg::Pairing(open, reply) => {
                state.set_pairing(open);
                reply.send(());
            }
            LinksMsg::Status(reply) => reply.send(state.status()),
            LinksMsg::Accepted(accepted) => {
                state.add_link(*accepted.link);
                accepted.done.send(());
            }
            LinksMsg::SocketLost(number) => state.handle_socket_lost(number),
            LinksMsg::Dialed(dialed) => state.handle_dial_result(*dialed),
            LinksMsg::Received(number, heard, reply) => {
                state.handle_message(number, heard);
                reply.send(());
            }
            LinksMsg::Ended(number, why) => state.handle_link_end(number, &why),
            LinksMsg::TimerDue => state.run_due_timers(),
        }
        Ok(())
    }
}
