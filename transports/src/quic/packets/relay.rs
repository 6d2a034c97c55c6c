//! Links through a third node, which both ends have a link to.
//!
//! A relayed link is a link like any other: QUIC and TLS between its two ends, under their pinned keys. Only its packets
//! travel as packets of the links to the relay, which cannot read them, nor make any that an end takes. An end
//! addresses them to a node and the relay between, under an address that this endpoint makes up.
//!
//! A relay passes on what came by a direct link to a direct link, and nothing else: no packet takes two relays.

mod addresses;
mod socket;
mod traffic;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use mgp_protocol::federation::frames::{PacketHeader, RelayRefusal};
use mgp_protocol::ids::NodeId;
use quinn::SendDatagramError;
use tokio::sync::{mpsc, oneshot};

use self::addresses::RelayAddresses;
pub(in crate::quic) use self::socket::RelaySocket;
pub use self::traffic::RelayedPair;
use self::traffic::{RelayAdmission, RelayTraffic};
use crate::quic::pinned::PinnedNodes;

/// Packets that wait to be read by this end, of all relayed links: those of some ten milliseconds. The next ones are
/// lost, and QUIC sends them again.
const INBOUND: usize = 512;

/// Packets that wait for a stream, on a link whose datagrams are still too short for them.
const LONG: usize = 64;

/// Of a link's room for datagrams, what is left to packets of membership, in bytes.
const RESERVED: usize = 16 << 10;

/// What came for this end: from which address, and the packet.
type Inbound = (SocketAddr, Bytes);

/// The ends and the middle of relayed links at this node.
#[derive(Debug)]
pub(in crate::quic) struct Relay {
    here: NodeId,
    pinned: Arc<PinnedNodes>,
    /// Whether this node passes packets on for others.
    passes_on: bool,
    neighbors: Mutex<Neighbors>,
    addresses: Mutex<RelayAddresses>,
    traffic: Mutex<RelayTraffic>,
    dials: Mutex<RelayDials>,
    inbound: mpsc::Sender<Inbound>,
}

/// Nodes with a direct link whose packets have heads; the newest link of each last.
#[derive(Debug, Default)]
struct Neighbors {
    links: HashMap<NodeId, Vec<Neighbor>>,
    numbers: u64,
}

#[derive(Clone, Debug)]
struct Neighbor {
    number: u64,
    connection: quinn::Connection,
    long: mpsc::Sender<Bytes>,
}

/// Dials that wait for an answer through a relay. Bounded by who dials.
#[derive(Debug, Default)]
struct RelayDials {
    pending: HashMap<u64, RelayDial>,
    numbers: u64,
}

#[derive(Debug)]
struct RelayDial {
    node: NodeId,
    relay: NodeId,
    refusal: oneshot::Sender<RelayRefusal>,
}

/// A direct link's place among the neighbors; goes with the link.
#[derive(Debug)]
pub(in crate::quic) struct NeighborEntry {
    relay: Arc<Relay>,
    node: NodeId,
    number: u64,
}

/// A dial that waits; dropped, it waits no longer.
pub(in crate::quic) struct PendingDial {
    relay: Arc<Relay>,
    number: u64,
    pub(in crate::quic) address: SocketAddr,
    pub(in crate::quic) refused: oneshot::Receiver<RelayRefusal>,
}

impl Relay {
    /// The relay and the socket of its ends.
    pub(in crate::quic) fn new(
        here: NodeId,
        pinned: Arc<PinnedNodes>,
        passes_on: bool,
    ) -> (Arc<Self>, RelaySocket) {
        let (inbound, to_read) = mpsc::channel(INBOUND);
        let relay = Arc::new(Self {
            here,
            pinned,
            passes_on,
            neighbors: Mutex::default(),
            addresses: Mutex::default(),
            traffic: Mutex::new(RelayTraffic::new(Instant::now())),
            dials: Mutex::default(),
            inbound,
        });
        let socket = RelaySocket::new(Arc::clone(&relay), to_read);
        (relay, socket)
    }

    /// Enters a direct link to a node that reads heads. What is too long for its datagrams comes out of the receiver.
    pub(in crate::quic) fn add_neighbor(
        self: &Arc<Self>,
        node: NodeId,
        connection: quinn::Connection,
    ) -> (NeighborEntry, mpsc::Receiver<Bytes>) {
        let (long, to_stream) = mpsc::channel(LONG);
        let mut neighbors = lock(&self.neighbors);
        neighbors.numbers += 1;
        let number = neighbors.numbers;
        neighbors.links.entry(node).or_default().push(Neighbor {
            number,
            connection,
            long,
        });
        let place = NeighborEntry {
            relay: Arc::clone(self),
            node,
            number,
        };
        (place, to_stream)
    }

    /// A packet with a head came by the direct link to this node.
    pub(in crate::quic) fn handle_packet(&self, from: NodeId, head: PacketHeader, payload: Bytes) {
        match head {
            PacketHeader::RelayTo(to) => {
                if let Some(why) = self.forward(from, to, &payload)
                    && lock(&self.traffic).can_refuse(from, Instant::now())
                    && let Some(sender) = self.neighbor(from)
                {
                    sender.send(PacketHeader::RelayRefused(to, why), &[]);
                }
            }
            PacketHeader::RelayedFrom(node) => self.receive(node, from, payload),
            PacketHeader::RelayRefused(node, why) => self.refuse_dials(node, from, why),
            PacketHeader::Membership => {}
        }
    }

    /// Passes a packet on, or says why none is. One that is dropped for its pair's bounds is no refusal.
    fn forward(&self, from: NodeId, to: NodeId, payload: &Bytes) -> Option<RelayRefusal> {
        if !self.passes_on {
            return Some(RelayRefusal::Off);
        }
        if from == to {
            return Some(RelayRefusal::Unlinked);
        }
        let Some(target) = self.neighbor(to) else {
            return Some(RelayRefusal::Unlinked);
        };
        let mut traffic = lock(&self.traffic);
        let sent = match traffic.admit(from, to, payload.len(), Instant::now()) {
            RelayAdmission::Full => return Some(RelayRefusal::Full),
            RelayAdmission::TooFast => false,
            RelayAdmission::Pass => target.send(PacketHeader::RelayedFrom(from), payload),
        };
        traffic.record(from, to, payload.len(), sent);
        None
    }

    /// A packet for this end. Of nodes that are not pinned nothing is read.
    fn receive(&self, node: NodeId, relay: NodeId, payload: Bytes) {
        if node == self.here || !self.pinned.contains(&node) {
            return;
        }
        let address = lock(&self.addresses).address(node, relay);
        // Lost where the endpoint does not keep up.
        let _lost = self.inbound.try_send((address, payload));
    }

    /// Sends a packet of this end on its way. It may be lost.
    fn send(&self, to: SocketAddr, payload: &[u8]) {
        let Some((node, relay)) = self.resolve_address(to) else {
            return;
        };
        if let Some(relay) = self.neighbor(relay) {
            relay.send(PacketHeader::RelayTo(node), payload);
        }
    }

    /// The node at an address of relayed links, and the relay between.
    pub(in crate::quic) fn resolve_address(&self, address: SocketAddr) -> Option<(NodeId, NodeId)> {
        lock(&self.addresses).resolve(address)
    }

    /// Waits for an answer of the relay, too; `None` where there is no direct link to it.
    pub(in crate::quic) fn register_dial(
        self: &Arc<Self>,
        node: NodeId,
        relay: NodeId,
    ) -> Option<PendingDial> {
        self.neighbor(relay)?;
        let address = lock(&self.addresses).address(node, relay);
        let (refused, answer) = oneshot::channel();
        let mut dials = lock(&self.dials);
        dials.numbers += 1;
        let number = dials.numbers;
        let dial = RelayDial {
            node,
            relay,
            refusal: refused,
        };
        dials.pending.insert(number, dial);
        Some(PendingDial {
            relay: Arc::clone(self),
            number,
            address,
            refused: answer,
        })
    }

    fn refuse_dials(&self, node: NodeId, relay: NodeId, why: RelayRefusal) {
        let mut dials = lock(&self.dials);
        let refused = dials
            .pending
            .extract_if(|_, dial| dial.node == node && dial.relay == relay);
        for (_, dial) in refused {
            let _over = dial.refusal.send(why);
        }
    }

    /// What is passed on here for others at present.
    pub(in crate::quic) fn relayed_pairs(&self) -> Vec<RelayedPair> {
        lock(&self.traffic).pairs(Instant::now())
    }

    fn neighbor(&self, node: NodeId) -> Option<Neighbor> {
        let neighbors = lock(&self.neighbors);
        let links = neighbors.links.get(&node)?.iter().rev();
        let mut live = links.filter(|link| link.connection.close_reason().is_none());
        live.next().cloned()
    }
}

impl Neighbor {
    /// Sends a packet, if there is room for it. False when it is lost here.
    fn send(&self, head: PacketHeader, payload: &[u8]) -> bool {
        let packet = head.to_packet(payload);
        // The oldest datagrams make room where there is none, and they may be of membership.
        if self.connection.datagram_send_buffer_space() < packet.len() + RESERVED {
            return false;
        }
        match self.connection.send_datagram(packet.clone()) {
            Ok(()) => true,
            Err(SendDatagramError::TooLarge) => self.long.try_send(packet).is_ok(),
            Err(
                SendDatagramError::UnsupportedByPeer
                | SendDatagramError::Disabled
                | SendDatagramError::ConnectionLost(_),
            ) => false,
        }
    }
}

impl Drop for NeighborEntry {
    fn drop(&mut self) {
        let mut neighbors = lock(&self.relay.neighbors);
        let Some(links) = neighbors.links.get_mut(&self.node) else {
            return;
        };
        let gone: Vec<Neighbor> = links
            .extract_if(.., |link| link.number == self.number)
            .collect();
        if links.is_empty() {
            neighbors.links.remove(&self.node);
        }
        drop(neighbors);
        drop(gone);
    }
}

impl Drop for PendingDial {
    fn drop(&mut self) {
        lock(&self.relay.dials).pending.remove(&self.number);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
