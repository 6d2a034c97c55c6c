//! Links to other nodes: maintains one to each member, and reports which members are alive. The kernel
//! supplies the members and the listening address; calls read the published links; the logs and the index
//! receive the messages.
//!
//! Each link has a task that reads and writes it. The actor owns the socket, dials, and decides with the
//! engines which of two links is kept. After a failure it is restarted, and all links are made anew.

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

/// The parameters of the links actor.
#[derive(Debug)]
pub struct LinksStart {
    /// The node's key.
    pub key: NodeKey,
    /// The node's name.
    pub name: NodeName,
    /// The role that the node reports.
    pub role: ReportedRole,
    /// The id of this instance of the node.
    pub instance: LifeId,
    /// Where the links are published.
    pub table: Arc<Snapshot<LinkTable>>,
    /// Receives link events: state changes and messages.
    pub events: EventSink<LinksEvent>,
    /// Memory limit for the messages of all links.
    pub memory: Arc<Credit>,
    /// The timeouts of links.
    pub times: LinkTimeouts,
    /// True if packets are relayed between nodes that have no link to each other.
    pub relay: bool,
}

/// The timeouts of links.
#[derive(Clone, Copy, Debug)]
pub struct LinkTimeouts {
    /// The interval of clock measurements. Eight answers are stored: those of the last minute.
    pub(crate) clock: Duration,
    /// How long a replaced link continues: most calls that began on it end meanwhile.
    pub(crate) drain: Duration,
    /// The delay before a broken socket is opened again.
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

/// A member that may have links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedPeer {
    /// Its key.
    pub key: PublicKey,
    /// Its name in the cluster.
    pub name: String,
    /// Its role according to the cluster's logs.
    pub role: ReportedRole,
    /// Two live nodes have its key: both are notified and get no link.
    pub has_duplicate_key: bool,
}

/// Events of links.
#[derive(Debug)]
pub enum LinksEvent {
    /// A link is established and published. Repeated, without [`Self::Down`] before, when another link
    /// replaces it.
    Up(Arc<PeerLink>),
    /// The link to the node ended.
    Down {
        /// The node.
        node: NodeId,
        /// Why the link ended.
        why: LinkGone,
    },
    /// Membership considers the node alive, whether this node has a link to it or not.
    Present(NodeId),
    /// Membership considers the node dead.
    Missing(NodeId),
    /// The node's wall clock was measured.
    Clock(NodeId, PeerClock),
    /// A message for the logs or the index; the permit is released when it was handled.
    Control(NodeId, Control, MessagePermit),
    /// The node opened a sync stream.
    Sync(NodeId, Box<SyncStream>),
    /// One of its agents calls.
    Call(Box<InboundNodeCall>),
    /// An unknown node requests pairing.
    Pairing(Box<PairingLink>),
}

/// Handle of the actor; clones share it.
#[derive(Clone, Debug)]
pub struct LinksHandle {
    mailbox: Mailbox<LinksMsg>,
    parts: Arc<LinksShared>,
}

impl LinksHandle {
    /// Restarts the actor after a failure: with the same socket address, pins and names.
    ///
    /// # Errors
    /// The actor cannot be started.
    pub async fn start(&self) -> Result<ActorCell, SpawnErr> {
        let actor = LinksActor {
            parts: Arc::clone(&self.parts),
            mailbox: self.mailbox.clone(),
        };
        self.mailbox.start(actor, ()).await
    }

    /// Opens the socket and starts dialing. Closes a socket that is already open.
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

    /// The listening address.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.endpoint()?.address().ok()
    }

    /// The socket, through which pairing dials.
    #[must_use]
    pub(crate) fn endpoint(&self) -> Option<LinkEndpoint> {
        (*self.parts.endpoint.load()).clone()
    }

    /// Allows links with exactly these nodes; links of other nodes are closed when this resolves. `names`
    /// are addresses as `host:port` at which members may be.
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

    /// Adds an address at which a node was found, unverified. Hints for unknown nodes are ignored.
    pub fn add_hint(&self, node: NodeId, address: SocketAddr) {
        // A hint that is lost in a full queue is announced again.
        let _ = self.mailbox.send(LinksMsg::Hint(node, address));
    }

    /// Sends a node a message, if there is a link to it. A queued older message of the same kind and
    /// subject is replaced.
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

    /// The published table of links.
    #[must_use]
    pub fn table(&self) -> Arc<LinkTable> {
        self.parts.table.load()
    }

    /// The nodes with a link.
    #[must_use]
    pub fn linked_nodes(&self) -> Vec<NodeId> {
        self.parts.table.load().links.keys().copied().collect()
    }

    /// The linked nodes whose version lacks some of these features.
    #[must_use]
    pub fn linked_nodes_without(&self, features: WireFeatures) -> Vec<NodeId> {
        let table = self.parts.table.load();
        let links = table.links.iter();
        let older = links.filter(|(_, link)| !link.link.negotiated().features.contains(features));
        older.map(|(node, _)| *node).collect()
    }

    /// The pairs of nodes that this node relays for at present.
    #[must_use]
    pub fn relayed_pairs(&self) -> Vec<RelayedPair> {
        let endpoint = self.endpoint();
        endpoint.map_or_else(Vec::new, |endpoint| endpoint.relayed_pairs())
    }

    /// Sets the name and role that the node reports on new links.
    pub fn set_hello(&self, name: NodeName, role: ReportedRole) {
        self.parts.hello.store(Arc::new((name, role)));
    }

    /// Allows or forbids pairing requests of unknown nodes.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub(crate) async fn set_pairing(&self, open: bool) -> Result<(), AskError> {
        self.mailbox
            .ask(|reply| LinksMsg::Pairing(open, reply))
            .await
    }

    /// The status of each member and its link.
    ///
    /// # Errors
    /// The actor is not reachable.
    pub async fn status(&self) -> Result<Vec<LinkStatus>, AskError> {
        self.mailbox.ask(LinksMsg::Status).await
    }
}

/// The nodes that may have links, and configured addresses at which they may be.
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
    /// Close the socket.
    Close(LinkClose, Reply<()>),
    /// Set the nodes that may have links.
    Pin(LinkPins, Reply<()>),
    /// Add an address hint.
    Hint(NodeId, SocketAddr),
    /// Send a message to a node.
    Send(NodeId, Control),
    /// Allow or forbid pairing requests.
    Pairing(bool, Reply<()>),
    /// Get the status of the links.
    Status(Reply<Vec<LinkStatus>>),
    /// An incoming link was accepted.
    Accepted(AcceptedLink),
    /// The socket with this number no longer accepts links.
    SocketLost(u64),
    /// A dial has ended.
    Dialed(Box<DialResult>),
    /// The link with this number received a message for the actor itself.
    Received(u64, LinkMessage, Reply<()>),
    /// The link with this number ended.
    Ended(u64, LinkGone),
    /// A timer is due.
    TimerDue,
}

/// Fixed at construction.
#[derive(Debug)]
pub struct LinksActor {
    parts: Arc<LinksShared>,
    mailbox: Mailbox<LinksMsg>,
}

impl LinksActor {
    /// Starts the actor. The socket is not open yet.
    ///
    /// # Errors
    /// The actor cannot be started.
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
