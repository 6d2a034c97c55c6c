//! Opens and closes the socket, and opens it again after a failure.

use std::net::SocketAddr;
use std::sync::Arc;

use mgp_engine::cluster::link_plan::DialBackoff;
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::ids::NodeId;
use mgp_runtime::time::monotonic_now;

use super::socket::{OpenError, OpenSocket};
use super::state::{LinksState, closed_here};
use super::timers::TimerEvent;

impl LinksState {
    pub(super) async fn open(&mut self, listen: SocketAddr) -> Result<SocketAddr, OpenError> {
        self.close_socket(LinkClose::Done).await;
        let opened = self.listen(listen);
        self.publish();
        opened
    }

    fn listen(&mut self, listen: SocketAddr) -> Result<SocketAddr, OpenError> {
        let number = self.next_number();
        let opened = OpenSocket::open(number, listen, &self.parts, self.mailbox.clone());
        let mut socket = opened?;
        let address = socket.endpoint.address();
        let address = address.map_err(|error| OpenError::Listen(listen, error))?;
        socket.endpoint.set_pinned_nodes(self.pinned_nodes());
        if self.parts.saved().pairing {
            socket.pairing = Some(socket.endpoint.open_pairing());
        }
        let endpoint = socket.endpoint.clone();
        self.parts.endpoint.store(Arc::new(Some(endpoint)));
        // Opened again at the same port, also if the system chose the first one.
        self.parts.save(|saved| saved.listen = Some(address));
        self.socket = Some(socket);
        let nodes: Vec<NodeId> = self.members.keys().copied().collect();
        for node in nodes {
            self.schedule_dial(node, DialBackoff::initial_delay(self.parts.node, node));
        }
        Ok(address)
    }

    pub(super) async fn close(&mut self, reason: LinkClose) {
        let left = self.membership.leave(monotonic_now());
        self.apply_effects(left);
        self.parts.save(|saved| saved.listen = None);
        self.close_socket(reason).await;
        self.publish();
    }

    async fn close_socket(&mut self, reason: LinkClose) {
        self.parts.endpoint.store(Arc::new(None));
        if let Some(socket) = self.socket.take() {
            socket.close(reason).await;
        }
        self.drop_all_links();
    }

    /// Drops all links and dials, because there is no socket.
    fn drop_all_links(&mut self) {
        self.dial_queue.clear();
        let nodes: Vec<NodeId> = self.members.keys().copied().collect();
        for node in nodes {
            let Some(member) = self.members.get_mut(&node) else {
                continue;
            };
            (member.dialing, member.due) = (None, None);
            member.draining.clear();
            if let Some(lost) = member.link.take() {
                lost.peer.link.close(LinkClose::Done);
                self.set_down(node, &closed_here(LinkClose::Done));
            }
        }
    }

    /// Handles the loss of the socket or its task.
    pub(super) fn handle_socket_lost(&mut self, number: u64) {
        if self
            .socket
            .as_ref()
            .is_none_or(|socket| socket.number != number)
        {
            return;
        }
        tracing::warn!("the socket of the links to other nodes failed, and is opened again");
        self.socket = None;
        self.parts.endpoint.store(Arc::new(None));
        self.drop_all_links();
        self.publish();
        self.alarms.set(
            monotonic_now() + self.parts.times.reopen,
            TimerEvent::Reopen,
        );
    }

    pub(super) fn reopen(&mut self) {
        let Some(listen) = self.parts.saved().listen.filter(|_| self.socket.is_none()) else {
            return;
        };
        if let Err(reason) = self.listen(listen) {
            tracing::warn!(why = %reason, "the socket could not be opened; retrying");
            self.alarms.set(
                monotonic_now() + self.parts.times.reopen,
                TimerEvent::Reopen,
            );
        }
    }

    pub(super) fn set_pairing(&mut self, open: bool) {
        self.parts.save(|saved| saved.pairing = open);
        if let Some(socket) = &mut self.socket {
            match (open, &socket.pairing) {
                (true, None) => socket.pairing = Some(socket.endpoint.open_pairing()),
                (true, Some(_)) => {}
                (false, _) => socket.pairing = None,
            }
        }
    }
}
