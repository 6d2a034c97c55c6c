//! The state of the links, as a text that names the side to check.

use std::net::SocketAddr;
use std::time::Duration;

use mgp_engine::cluster::clock_offset::PeerClock;
use mgp_protocol::federation::hello::ReportedRole;
use mgp_protocol::ids::NodeId;
use mgp_transports::quic::PacketLoss;

use super::failure_text::LinkRefusal;
use super::state::LinksState;

/// A member, and how the link to it is.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    /// The node.
    pub node: NodeId,
    /// What the cluster calls it.
    pub name: String,
    /// What it may do.
    pub role: ReportedRole,
    /// Membership takes it for there.
    pub present: bool,
    /// The link to it.
    pub linked: Option<LinkedStatus>,
    /// The node keeps this one out: it says that two living nodes have this one's key.
    pub is_blocked: bool,
    /// The node takes no link of this one, as its last answer showed.
    pub refusal: Option<LinkRefusal>,
    /// When the last link to it ended, in milliseconds since 1970; none where there was none since the kernel's start.
    pub lost_ms: Option<u64>,
    /// What is wrong, and where to look: the last failure where there is no link, or the clocks.
    pub problem: Option<String>,
}

/// A live link.
#[derive(Clone, Copy, Debug)]
pub struct LinkedStatus {
    /// Where the node is; `None` where another one is between.
    pub address: Option<SocketAddr>,
    /// The node that passes on what both send each other, if the link is not direct.
    pub relay: Option<NodeId>,
    /// This node dialed.
    pub is_dialer: bool,
    /// When it came about, in milliseconds since 1970.
    pub since_ms: u64,
    /// How long a packet takes there and back.
    pub round_trip: Duration,
    /// The node's clock.
    pub clock: Option<PeerClock>,
    /// What got lost on the way.
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
                    // Why the link is not direct is of use as well.
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

/// What is wrong with the clocks.
fn describe_clock(clock: PeerClock) -> Option<String> {
    if !clock.is_skewed() {
        return None;
    }
    let apart = clock.offset_ms.unsigned_abs();
    let (seconds, way) = (
        apart / 1000,
        if clock.offset_ms > 0 {
            "ahead of"
        } else {
            "behind"
        },
    );
    Some(format!(
        "its clock is {seconds} s {way} the one here: set the wrong one of the two, or what expires ends early where it allows and late where it denies"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_differs_is_told_with_the_side_it_is_on() {
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
