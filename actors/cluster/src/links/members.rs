//! Who is there: carries out what the membership protocol asks for, and tells peers where others are.

use std::net::SocketAddr;

use mgp_engine::cluster::membership::MembershipEffect;
use mgp_protocol::federation::addresses::{ADDRESSES_MAX, NodeAddress, NodeAddresses};
use mgp_protocol::federation::control::{Control, Renewal};
use mgp_protocol::federation::hello::WireFeatures;
use mgp_protocol::ids::NodeId;
use mgp_runtime::time::moment;

use super::LinksEvent;
use super::alarms::Due;
use super::live::{HeardOnLink, LiveLink};
use super::state::LinksState;

impl LinksState {
    pub(super) fn carry_out(&mut self, effects: Vec<MembershipEffect>) {
        for effect in effects {
            match effect {
                MembershipEffect::Send(node, packet) => {
                    if let Some(live) = self.in_membership(node) {
                        live.outbox.packet(packet);
                    }
                }
                MembershipEffect::Timer(after, timer) => {
                    self.alarms.set(moment() + after, Due::Membership(timer));
                }
                MembershipEffect::Due(after) => self.alarms.set(moment() + after, Due::Asked),
                MembershipEffect::Up(node) => self.presence(node, true),
                MembershipEffect::Down(node) => self.presence(node, false),
                MembershipEffect::Ask(node) => {
                    if let Some(live) = self.live(node) {
                        live.ask();
                    }
                }
                MembershipEffect::Meet(node) => self.dial_soon(node),
                MembershipEffect::Renewed(renewal) => {
                    for member in self.members.values() {
                        if let Some(live) = &member.live {
                            live.tell(Control::Renewal(Renewal { renewal }));
                        }
                    }
                }
            }
        }
    }

    fn presence(&mut self, node: NodeId, present: bool) {
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        if std::mem::replace(&mut member.present, present) != present {
            self.parts.events.send(match present {
                true => LinksEvent::Present(node),
                false => LinksEvent::Missing(node),
            });
        }
    }

    fn live(&self, node: NodeId) -> Option<&LiveLink> {
        self.members.get(&node)?.live.as_ref()
    }

    fn in_membership(&self, node: NodeId) -> Option<&LiveLink> {
        let takes = |live: &&LiveLink| {
            let features = live.peer.link.agreed().features;
            features.contains(WireFeatures::MEMBERSHIP)
        };
        self.live(node).filter(takes)
    }

    /// Tells a new link of this node's renewal and of the others, and the others of it.
    pub(super) fn introduce(&self, node: NodeId) {
        let Some(new) = self.live(node) else {
            return;
        };
        let renewal = self.membership.renewal();
        new.tell(Control::Renewal(Renewal { renewal }));
        // Who is linked through another node was not seen at any address.
        let Some(address) = new.peer.link.address() else {
            return;
        };
        let mut others = Vec::new();
        for (other, member) in &self.members {
            let Some(live) = member.live.as_ref().filter(|_| *other != node) else {
                continue;
            };
            let Some(at) = live.peer.link.address() else {
                continue;
            };
            if reaches(address, at) {
                others.push(NodeAddress {
                    node: *other,
                    address: at,
                });
            }
            if reaches(at, address) {
                let nodes = vec![NodeAddress { node, address }];
                live.tell(Control::Addresses(NodeAddresses { nodes }));
            }
        }
        for nodes in others.chunks(ADDRESSES_MAX) {
            let nodes = nodes.to_vec();
            new.tell(Control::Addresses(NodeAddresses { nodes }));
        }
    }

    /// What came over a link.
    pub(super) fn heard(&mut self, number: u64, heard: HeardOnLink) {
        let Some(node) = self.owner(number) else {
            return;
        };
        match heard {
            HeardOnLink::Renewal(renewal) => {
                if self.in_membership(node).is_some() {
                    let effects = self.membership.linked(node, renewal, moment());
                    self.carry_out(effects);
                }
            }
            HeardOnLink::Addresses(addresses) => self.told(node, &addresses),
            HeardOnLink::Packet(packet) => match self.membership.packet(node, &packet, moment()) {
                Ok(effects) => self.carry_out(effects),
                Err(why) => tracing::debug!(node = node.short(), %why, "a packet is not taken"),
            },
            HeardOnLink::Answered => self.membership.heard(node),
        }
    }

    fn told(&mut self, by: NodeId, addresses: &NodeAddresses) {
        let Some(link) = self.live(by).map(|live| live.peer.link.clone()) else {
            return;
        };
        for told in &addresses.nodes {
            if self.hints.told(link.address(), told.node, told.address) {
                self.dial_soon(told.node);
            }
        }
    }
}

/// Whether somebody at the one address can reach the other one as this node does: its own machine, it cannot
/// name to others.
fn reaches(from: SocketAddr, to: SocketAddr) -> bool {
    from.ip().is_loopback() || !to.ip().is_loopback()
}
