//! Links through a third node with direct links to both ends.
//!
//! A relayed link is a link like any other: QUIC and TLS between its two ends, with their pinned keys. Only its packets
//! travel as packets of the links to the relay, which can neither read nor forge them. An end addresses them to a node and
//! a relay, by an address that its endpoint invents.
//!
//! A relay forwards packets from a direct link to a direct link, and nothing else: no packet takes two relays.

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

/// Packets of all relayed links that wait to be read by this end: those of some ten milliseconds. Further ones are lost,
/// and QUIC sends them again.
const INBOUND: usize = 512;

/// Packets that wait for a stream, on a link whose datagrams are too short for them.
const LONG: usize = 64;

/// The part of a link's datagram buffer that is reserved for membership, in bytes.
const RESERVED: usize = 16 << 10;

/// The source address of an incoming packet, and the packet.
type Inbound = (SocketAddr, Bytes);

/// The state of relayed links at this node, as an end and as a relay.
#[derive(Debug)]
pub(in crate::quic) struct Relay {
    here: NodeId,
    pinned: Arc<PinnedNodes>,
    /// Whether this node relays packets for others.
    is_enabled: bool,
    neighbors: Mutex<Neighbors>,
    addresses: Mutex<RelayAddresses>,
    traffic: Mutex<RelayTraffic>,
    dials: Mutex<RelayDials>,
    inbound: mpsc::Sender<Inbound>,
}

/// Nodes with a direct link whose packets have headers; the newest link of each last.
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

/// Dials that wait for an answer through a relay. Bounded by the dialing tasks.
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

/// The registration of a direct link; dropped with the link.
#[derive(Debug)]
pub(in crate::quic) struct NeighborEntry {
    relay: Arc<Relay>,
    node: NodeId,
    number: u64,
}

/// A pending dial; dropping it removes it.
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
        is_enabled: bool,
    ) -> (Arc<Self>, RelaySocket) {
        let (inbound, to_read) = mpsc::channel(INBOUND);
        let relay = Arc::new(Self {
            here,
            pinned,
            is_enabled,
            neighbors: Mutex::default(),
            addresses: Mutex::default(),
            traffic: Mutex::new(RelayTraffic::new(Instant::now())),
            dials: Mutex::default(),
            inbound,
        });
        let socket = RelaySocket::new(Arc::clone(&relay), to_read);
        (relay, socket)
    }

    /// Registers a direct link to a node that uses headers. Packets that are too long for its datagrams go to the receiver.
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
        let entry = NeighborEntry {
            relay: Arc::clone(self),
            node,
            number,
        };
        (entry, to_stream)
    }

    /// Handles a packet with a header from the direct link to this node.
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

    /// Forwards a packet, or returns a refusal. A packet that is dropped by the limits of its pair is not refused.
    fn forward(&self, from: NodeId, to: NodeId, payload: &Bytes) -> Option<RelayRefusal> {
        if !self.is_enabled {
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

    /// Receives a packet for this end. Packets of unpinned nodes are dropped.
    fn receive(&self, node: NodeId, relay: NodeId, payload: Bytes) {
        if node == self.here || !self.pinned.contains(&node) {
            return;
        }
        let address = lock(&self.addresses).address(node, relay);
        // Lost if the endpoint does not keep up.
        let _lost = self.inbound.try_send((address, payload));
    }

    /// Sends a packet of this end. It may be lost.
    fn send(&self, to: SocketAddr, payload: &[u8]) {
        let Some((node, relay)) = self.resolve_address(to) else {
            return;
        };
        if let Some(relay) = self.neighbor(relay) {
            relay.send(PacketHeader::RelayTo(node), payload);
        }
    }

    /// The node and the relay of an address of a relayed link.
    pub(in crate::quic) fn resolve_address(&self, address: SocketAddr) -> Option<(NodeId, NodeId)> {
        lock(&self.addresses).resolve(address)
    }

    /// Registers a dial, which may get an answer of the relay; `None` without a direct link to the relay.
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
            let _ended = dial.refusal.send(why);
        }
    }

    /// The pairs that this node currently relays for.
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
    /// Sends a packet if there is capacity; false when it is lost.
    fn send(&self, head: PacketHeader, payload: &[u8]) -> bool {
        let packet = head.to_packet(payload);
        // Without capacity the oldest datagrams would be dropped, and they may be of membership.
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
        let removed: Vec<Neighbor> = links
            .extract_if(.., |link| link.number == self.number)
            .collect();
        if links.is_empty() {
            neighbors.links.remove(&self.node);
        }
        drop(neighbors);
        drop(removed);
    }
}

impl Drop for PendingDial {
    fn drop(&mut self) {
        lock(&self.relay.dials).pending.remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
