//! The socket, and the task that lets in who dials.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::cluster::link_plan::DialPlan;
use mgp_protocol::federation::ends::LinkClose;
use mgp_protocol::ids::NodeId;
use mgp_runtime::mailbox::{AskError, Mailbox, Reply};
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::moment;
use mgp_transports::quic::{AcceptedPeer, Acceptor, LinkEndpoint, PairingOpen};

use super::alarms::Due;
use super::live::AcceptedLink;
use super::parts::LinksParts;
use super::state::{LinksState, gone};
use super::{LinksEvent, LinksMsg};

/// Longest that peers are waited for when the socket is closed: then they miss this node by themselves.
const CLOSING: Duration = Duration::from_secs(1);

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum OpenFailed {
    /// The address cannot be used.
    #[error(
        "no links to other nodes: cannot listen on UDP {0}: {1}; look for another program there, or name another address"
    )]
    Listen(SocketAddr, #[source] io::Error),
    /// The actor is not reachable.
    #[error("links to other nodes: {0}")]
    Actor(#[from] AskError),
}

/// A socket that is open. Closed when it is dropped.
#[derive(Debug)]
pub(super) struct OpenSocket {
    pub(super) number: u64,
    pub(super) endpoint: LinkEndpoint,
    pub(super) pairing: Option<PairingOpen>,
    _accepting: SupervisedTask<()>,
}

impl OpenSocket {
    pub(super) fn open(
        number: u64,
        listen: SocketAddr,
        parts: &Arc<LinksParts>,
        mailbox: Mailbox<LinksMsg>,
    ) -> Result<Self, OpenFailed> {
        let failed = |error| OpenFailed::Listen(listen, error);
        let socket = UdpSocket::bind(listen).map_err(failed)?;
        let (endpoint, acceptor) = LinkEndpoint::new(socket, parts.config()).map_err(failed)?;
        let parts = Arc::clone(parts);
        let accepting = async move {
            let accepted = accept(acceptor, &parts, &mailbox);
            let _broken = task::caught("links.accept", accepted).await;
            let _over = mailbox.remind(LinksMsg::SocketLost(number));
        };
        Ok(Self {
            number,
            endpoint,
            pairing: None,
            _accepting: task::supervised("links.accept", accepting),
        })
    }

    /// Tells all peers that it closes.
    pub(super) async fn close(self) {
        self.endpoint.close();
        let _late = tokio::time::timeout(CLOSING, self.endpoint.closed()).await;
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        self.endpoint.close();
    }
}

impl LinksState {
    pub(super) async fn open(&mut self, listen: SocketAddr) -> Result<SocketAddr, OpenFailed> {
        self.shut().await;
        let opened = self.listen(listen);
        self.publish();
        opened
    }

    fn listen(&mut self, listen: SocketAddr) -> Result<SocketAddr, OpenFailed> {
        let number = self.number();
        let opened = OpenSocket::open(number, listen, &self.parts, self.mailbox.clone());
        let mut socket = opened?;
        let address = socket.endpoint.address();
        let address = address.map_err(|error| OpenFailed::Listen(listen, error))?;
        socket.endpoint.pin(self.pinned());
        if self.parts.kept().pairing {
            socket.pairing = Some(socket.endpoint.open_pairing());
        }
        let endpoint = socket.endpoint.clone();
        self.parts.endpoint.store(Arc::new(Some(endpoint)));
        // Opened again at the same port, also where the first one was chosen by the system.
        self.parts.keep(|kept| kept.listen = Some(address));
        self.socket = Some(socket);
        let nodes: Vec<NodeId> = self.members.keys().copied().collect();
        for node in nodes {
            self.dial_in(node, DialPlan::first(self.parts.own, node));
        }
        Ok(address)
    }

    pub(super) async fn close(&mut self) {
        let left = self.membership.leave(moment());
        self.carry_out(left);
        self.parts.keep(|kept| kept.listen = None);
        self.shut().await;
        self.publish();
    }

    async fn shut(&mut self) {
        self.parts.endpoint.store(Arc::new(None));
        if let Some(socket) = self.socket.take() {
            socket.close().await;
        }
        self.all_lost();
    }

    /// There is no socket: no link is left, and nobody is dialed.
    fn all_lost(&mut self) {
        self.turns.clear();
        let nodes: Vec<NodeId> = self.members.keys().copied().collect();
        for node in nodes {
            let Some(member) = self.members.get_mut(&node) else {
                continue;
            };
            (member.dialing, member.due) = (None, None);
            member.draining.clear();
            if let Some(lost) = member.live.take() {
                lost.peer.link.close(LinkClose::Done);
                self.down(node, &gone(LinkClose::Done));
            }
        }
    }

    /// The socket broke, or its task did.
    pub(super) fn socket_lost(&mut self, number: u64) {
        if self
            .socket
            .as_ref()
            .is_none_or(|socket| socket.number != number)
        {
            return;
        }
        tracing::warn!("the socket of the links to other nodes broke, and is opened again");
        self.socket = None;
        self.parts.endpoint.store(Arc::new(None));
        self.all_lost();
        self.publish();
        self.alarms
            .set(moment() + self.parts.times.reopen, Due::Reopen);
    }

    pub(super) fn reopen(&mut self) {
        let Some(listen) = self.parts.kept().listen.filter(|_| self.socket.is_none()) else {
            return;
        };
        if let Err(why) = self.listen(listen) {
            tracing::warn!(%why, "tried again soon");
            self.alarms
                .set(moment() + self.parts.times.reopen, Due::Reopen);
        }
    }

    pub(super) fn set_pairing(&mut self, open: bool) {
        self.parts.keep(|kept| kept.pairing = open);
        if let Some(socket) = &mut self.socket {
            match (open, &socket.pairing) {
                (true, None) => socket.pairing = Some(socket.endpoint.open_pairing()),
                (true, Some(_)) => {}
                (false, _) => socket.pairing = None,
            }
        }
    }
}

async fn accept(mut acceptor: Acceptor, parts: &LinksParts, mailbox: &Mailbox<LinksMsg>) {
    while let Some(accepted) = acceptor.next().await {
        match accepted {
            AcceptedPeer::Pairing(pairing) => parts.events.send(LinksEvent::Pairing(pairing)),
            AcceptedPeer::Link(link) => {
                let (taken, looked_at) = Reply::new();
                let accepted = LinksMsg::Accepted(AcceptedLink { link, taken });
                if mailbox.remind(accepted).is_ok() {
                    let _looked_at = looked_at.await;
                }
            }
        }
    }
}
