//! Liveness of members: executes the actions of the membership protocol, and exchanges the addresses of
//! members.

use std::net::SocketAddr;

use mgp_engine::cluster::membership::MembershipEffect;
use mgp_protocol::federation::addresses::{ADDRESSES_MAX, NodeAddress, NodeAddresses};
use mgp_protocol::federation::control::{Control, Incarnation};
use mgp_protocol::federation::hello::WireFeatures;
use mgp_protocol::ids::NodeId;
use mgp_runtime::time::monotonic_now;

use super::LinksEvent;
use super::live_link::{LinkMessage, LiveLink};
use super::state::LinksState;
use super::timers::TimerEvent;

impl LinksState {
    pub(super) fn apply_effects(&mut self, effects: Vec<MembershipEffect>) {
        for effect in effects {
            match effect {
                MembershipEffect::Send(node, packet) => {
                    if let Some(live) = self.membership_link(node) {
                        live.outbox.send_packet(packet);
                    }
                }
                MembershipEffect::StartTimer(after, timer) => {
                    self.alarms
                        .set(monotonic_now() + after, TimerEvent::Membership(timer));
                }
                MembershipEffect::CheckProbesAfter(after) => self
                    .alarms
                    .set(monotonic_now() + after, TimerEvent::ProbesExpired),
                MembershipEffect::Up(node) => self.set_present(node, true),
                MembershipEffect::Down(node) => self.set_present(node, false),
                MembershipEffect::ProbeLink(node) => {
                    if let Some(live) = self.live_link(node) {
                        live.ping();
                    }
                }
                MembershipEffect::Contact(node) => self.dial_soon(node),
                MembershipEffect::NewIncarnation(renewal) => {
                    for member in self.members.values() {
                        if let Some(live) = &member.link {
                            live.send(Control::Renewal(Incarnation { renewal }));
                        }
                    }
                }
            }
        }
    }

    fn set_present(&mut self, node: NodeId, present: bool) {
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        if std::mem::replace(&mut member.present, present) != present {
            self.parts.events.send(if present {
                LinksEvent::Present(node)
            } else {
                LinksEvent::Missing(node)
            });
        }
    }

    fn live_link(&self, node: NodeId) -> Option<&LiveLink> {
        self.members.get(&node)?.link.as_ref()
    }

    fn membership_link(&self, node: NodeId) -> Option<&LiveLink> {
        let is_candidate = |live: &&LiveLink| {
            let features = live.peer.link.negotiated().features;
            features.contains(WireFeatures::MEMBERSHIP)
        };
        self.live_link(node).filter(is_candidate)
    }

    /// Sends a new link this node's renewal and the addresses of the other members, and the other members
    /// its address.
    pub(super) fn exchange_addresses(&self, node: NodeId) {
        let Some(new) = self.live_link(node) else {
            return;
        };
        let renewal = self.membership.incarnation();
        new.send(Control::Renewal(Incarnation { renewal }));
        // A relayed node has no observed address.
        let Some(address) = new.peer.link.address() else {
            return;
        };
        let mut others = Vec::new();
        for (other, member) in &self.members {
            let Some(live) = member.link.as_ref().filter(|_| *other != node) else {
                continue;
            };
            let Some(at) = live.peer.link.address() else {
                continue;
            };
            if can_reach(address, at) {
                others.push(NodeAddress {
                    node: *other,
                    address: at,
                });
            }
            if can_reach(at, address) {
                let nodes = vec![NodeAddress { node, address }];
                live.send(Control::Addresses(NodeAddresses { nodes }));
            }
        }
        for nodes in others.chunks(ADDRESSES_MAX) {
            let nodes = nodes.to_vec();
            new.send(Control::Addresses(NodeAddresses { nodes }));
        }
    }

    /// Handles a message of a link.
    pub(super) fn handle_message(&mut self, number: u64, message: LinkMessage) {
        let Some(node) = self.owner(number) else {
            return;
        };
        match message {
            LinkMessage::Renewal(renewal) => {
                if self.membership_link(node).is_some() {
                    let effects = self
                        .membership
                        .handle_link_up(node, renewal, monotonic_now());
                    self.apply_effects(effects);
                }
            }
            LinkMessage::Addresses(addresses) => self.add_addresses(node, &addresses),
            LinkMessage::Packet(packet) => {
                match self
                    .membership
                    .handle_packet(node, &packet, monotonic_now())
                {
                    Ok(effects) => self.apply_effects(effects),
                    Err(why) => {
                        tracing::debug!(node = node.short_id(), %why, "a packet is rejected")
                    }
                }
            }
            LinkMessage::PingReceived => self.membership.record_activity(node),
        }
    }

    fn add_addresses(&mut self, by: NodeId, addresses: &NodeAddresses) {
        let Some(link) = self.live_link(by).map(|live| live.peer.link.clone()) else {
            return;
        };
        for entry in &addresses.nodes {
            if self
                .hints
                .add_reported(link.address(), entry.node, entry.address)
            {
                self.dial_soon(entry.node);
            }
        }
    }
}

/// True if a node at `from` can reach `to` as this node does: a loopback address is valid on one machine
/// only.
fn can_reach(from: SocketAddr, to: SocketAddr) -> bool {
    from.ip().is_loopback() || !to.ip().is_loopback()
}
