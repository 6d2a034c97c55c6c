//! How the links are, in words that say on which side to look.

use std::net::SocketAddr;
use std::time::Duration;

use mgp_engine::cluster::clock_offset::MeasuredClock;
use mgp_protocol::federation::ends::LinkClose;
use mgp_protocol::federation::hello::NodeRole;
use mgp_protocol::ids::NodeId;
use mgp_transports::quic::{LinkGone, NoLink, PacketLoss, PeerFault, StreamFailure};

use super::state::LinksState;

/// Clocks that differ by more end allows early and denies late.
const CLOCKS_DIFFER_MS: u64 = 2000;

/// A member, and how the link to it is.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    /// The node.
    pub node: NodeId,
    /// What the cluster calls it.
    pub name: String,
    /// What it may do.
    pub role: NodeRole,
    /// Membership takes it for there.
    pub present: bool,
    /// The link to it.
    pub linked: Option<LinkedStatus>,
    /// What is wrong, and where to look: the last failure where there is no link, or the clocks.
    pub trouble: Option<String>,
}

/// A link that lives.
#[derive(Clone, Copy, Debug)]
pub struct LinkedStatus {
    /// Where the node is.
    pub address: SocketAddr,
    /// This node dialed.
    pub dialed: bool,
    /// When it came about, in milliseconds since 1970.
    pub since_ms: u64,
    /// How long a packet takes there and back.
    pub round_trip: Duration,
    /// The node's clock.
    pub clock: Option<MeasuredClock>,
    /// What got lost on the way.
    pub loss: PacketLoss,
}

impl LinksState {
    pub(super) fn status(&self) -> Vec<LinkStatus> {
        let members = self.members.iter().map(|(node, member)| {
            let linked = member.live.as_ref().map(|live| LinkedStatus {
                address: live.peer.link.address(),
                dialed: live.peer.link.dialed(),
                since_ms: live.since_ms,
                round_trip: live.peer.link.round_trip(),
                clock: live.peer.clock(),
                loss: live.peer.link.loss(),
            });
            let trouble = match &linked {
                Some(linked) => linked.clock.and_then(words_of_clock),
                None => member.failure.clone(),
            };
            LinkStatus {
                node: *node,
                name: member.pinned.name.clone(),
                role: member.pinned.role,
                present: member.present,
                linked,
                trouble,
            }
        });
        members.collect()
    }
}

/// What is wrong with the clocks.
fn words_of_clock(clock: MeasuredClock) -> Option<String> {
    let apart = clock.offset_ms.unsigned_abs();
    if apart.saturating_sub(clock.error_ms) <= CLOCKS_DIFFER_MS {
        return None;
    }
    let (seconds, way) = (
        apart / 1000,
        if clock.offset_ms > 0 {
            "ahead of"
        } else {
            "behind"
        },
    );
    Some(format!(
        "its clock is {seconds} s {way} the one here: set the wrong one of the two, or grants that expire end early"
    ))
}

/// Why a link ended.
pub(super) fn words_of_end(why: &LinkGone) -> String {
    words_of_failure(&why.0)
}

fn words_of_failure(why: &StreamFailure) -> String {
    let look = match why {
        StreamFailure::LinkLost(_) => {
            "look at the network between the two, and whether the other side runs"
        }
        StreamFailure::LinkClosed(LinkClose::Revoked | LinkClose::NotPinned) => {
            "the other side does not take this node: it was revoked there, or has not heard of its admission yet"
        }
        StreamFailure::LinkClosed(LinkClose::TwoLives) => {
            "two kernels run with one key: stop one of them, and run `mgp node rekey`"
        }
        StreamFailure::LinkClosed(LinkClose::NoCommonVersion) => "update the older one of the two",
        StreamFailure::LinkClosed(
            LinkClose::Done
            | LinkClose::Replaced
            | LinkClose::Malformed
            | LinkClose::Oversized
            | LinkClose::Silent
            | LinkClose::PairingOver
            | LinkClose::TooMany
            | LinkClose::Unknown(_),
        ) => "the other side ended it: look at its log",
        StreamFailure::Late
        | StreamFailure::Reset(_)
        | StreamFailure::Unfinished
        | StreamFailure::Oversized { .. }
        | StreamFailure::Malformed(_)
        | StreamFailure::NoRoom => "look at the log of both sides",
    };
    format!("{why}: {look}")
}

/// Why no link came about.
pub(super) fn words_of_no_link(why: &NoLink) -> String {
    let look = match why {
        NoLink::Unresolved(..) => "look at the names on this side: DNS, and [cluster] peers",
        NoLink::Itself => "the address is this node's own",
        NoLink::Unreachable(..) => {
            "look whether the other side runs and at that address, and whether a firewall on either side lets UDP through"
        }
        NoLink::Peer(PeerFault::OtherNode { .. }) => {
            "the address belongs to another node now: correct it on this side"
        }
        NoLink::Peer(PeerFault::NotPinned(_) | PeerFault::NoTicket | PeerFault::Certificate(_)) => {
            "this side does not take that node"
        }
        NoLink::Version(_) => return why.to_string(),
        NoLink::NotTaken(failure @ StreamFailure::LinkClosed(_)) => {
            return words_of_failure(failure);
        }
        // A key that is not taken is told by the handshake itself, as an alert.
        NoLink::NotTaken(_) => {
            "the other side does not take this node: it was revoked there, or has not heard of its admission yet"
        }
        NoLink::NotEntered(_) => "this side does not take that node",
        NoLink::TurnedAway => "ask there for another ticket",
    };
    format!("{why}: {look}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_differs_is_told_with_the_side_it_is_on() {
        let of = |offset_ms, error_ms| {
            words_of_clock(MeasuredClock {
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
