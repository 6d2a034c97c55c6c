//! The status of each link, in a text that names the side to check.

use std::net::SocketAddr;
use std::time::Duration;

use mgp_engine::cluster::clock_offset::PeerClock;
use mgp_protocol::federation::hello::ReportedRole;
use mgp_protocol::ids::NodeId;
use mgp_transports::quic::PacketLoss;

use super::failure_text::LinkRefusal;
use super::state::LinksState;

/// The status of a member and its link.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    /// The node.
    pub node: NodeId,
    /// Its name in the cluster.
    pub name: String,
    /// Its role.
    pub role: ReportedRole,
    /// True if membership considers it alive.
    pub present: bool,
    /// The live link, if there is one.
    pub linked: Option<LinkedStatus>,
    /// The node blocks this one, because it found two live nodes with this one's key.
    pub is_blocked: bool,
    /// The node refuses links of this one, as its last answer showed.
    pub refusal: Option<LinkRefusal>,
    /// When the last link ended, in milliseconds since 1970; none if there was none since the kernel's
    /// start.
    pub lost_ms: Option<u64>,
    /// The problem and where to look: the last failure if there is no link, or the clocks.
    pub problem: Option<String>,
}

/// A live link.
#[derive(Clone, Copy, Debug)]
pub struct LinkedStatus {
    /// The node's address; `None` for a relayed link.
    pub address: Option<SocketAddr>,
    /// The node that relays the link, if it is not direct.
    pub relay: Option<NodeId>,
    /// True if this node dialed.
    pub is_dialer: bool,
    /// When the link was established, in milliseconds since 1970.
    pub since_ms: u64,
    /// The round-trip time of a packet.
    pub round_trip: Duration,
    /// The node's clock, if it was measured.
    pub clock: Option<PeerClock>,
    /// The packet loss.
    pub loss: PacketLoss,
}

impl LinksState {
    pub(super) fn status(&self) -> Vec<LinkStatus> {
        let members = self.members.iter().map(|(node, member)| {
            let linked = member.link.as_ref().map(|live| LinkedStatus {
                address: live.peer.link.address(),
                relay: live.peer.link.relay(),
                is_dialer: live.peer.link.is_dialer(),
                since_ms: live.since_ms,
                round_trip: live.peer.link.round_trip(),
                clock: live.peer.clock(),
                loss: live.peer.link.packet_loss(),
            });
            let trouble = match &linked {
                Some(linked) => {
                    // Why the link is not direct is useful as well.
                    let clock = linked.clock.and_then(describe_clock);
                    clock.or_else(|| {
                        let failure = linked.relay.and(member.failure.as_ref())?;
                        Some(format!("it is linked through another node: {failure}"))
                    })
                }
                None => member.failure.clone(),
            };
            LinkStatus {
                node: *node,
                name: member.pinned.name.clone(),
                role: member.pinned.role,
                present: member.present,
                is_blocked: linked.is_none() && member.plan.is_rejected_as_duplicate(),
                refusal: member.refusal.filter(|_| linked.is_none()),
                lost_ms: member.lost_ms.filter(|_| linked.is_none()),
                linked,
                problem: trouble,
            }
        });
        members.collect()
    }
}

/// Describes a difference of the clocks.
fn describe_clock(clock: PeerClock) -> Option<String> {
    if !clock.is_skewed() {
        return None;
    }
    let difference = clock.offset_ms.unsigned_abs();
    let (seconds, direction) = (
        difference / 1000,
        if clock.offset_ms > 0 {
            "ahead of"
        } else {
            "behind"
        },
    );
    Some(format!(
        "its clock is {seconds} s {direction} the one here: set the wrong one of the two, or what expires ends early where it allows and late where it denies"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_difference_names_the_side_to_check() {
        let of = |offset_ms, error_ms| {
            describe_clock(PeerClock {
                offset_ms,
                error_ms,
            })
        };
        assert_eq!(of(1900, 0), None);
        assert_eq!(of(-4000, 2500), None, "that may be the way alone");
        assert!(of(-4000, 10).unwrap().contains("4 s behind the one here"));
        assert!(of(9000, 10).unwrap().contains("9 s ahead of"));
    }
}
