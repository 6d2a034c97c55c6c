//! Opens the socket, closes it, and opens it again when it broke.

use std::net::SocketAddr;
use std::sync::Arc;

use mgp_engine::cluster::link_plan::DialPlan;
use mgp_protocol::federation::ends::LinkClose;
use mgp_protocol::ids::NodeId;
use mgp_runtime::time::moment;

use super::alarms::Due;
use super::socket::{OpenFailed, OpenSocket};
use super::state::{LinksState, gone};

impl LinksState {
    pub(super) async fn open(&mut self, listen: SocketAddr) -> Result<SocketAddr, OpenFailed> {
        self.shut(LinkClose::Done).await;
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

    pub(super) async fn close(&mut self, why: LinkClose) {
        let left = self.membership.leave(moment());
        self.carry_out(left);
        self.parts.keep(|kept| kept.listen = None);
        self.shut(why).await;
        self.publish();
    }

    async fn shut(&mut self, why: LinkClose) {
        self.parts.endpoint.store(Arc::new(None));
        if let Some(socket) = self.socket.take() {
            socket.close(why).await;
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
