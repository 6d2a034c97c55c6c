//! Why there is no link, in words that say on which side to look.

use mgp_protocol::federation::ends::LinkClose;
use mgp_transports::quic::{LinkGone, NoLink, PeerFault, StreamFailure};

/// What finds a node whose address changed.
const FIND: &str = "`mgp lan on` on both nodes where they share a network, or its new address under [cluster] peers in mgp.toml";

/// How a node refused a link of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRefusal {
    /// It ended the link as that of a node that was cut off.
    Revoked,
    /// It does not take the key of this node.
    NotPinned,
}

/// Why a link ended.
pub(super) fn words_of_end(why: &LinkGone) -> String {
    words_of_failure(&why.0)
}

/// Whether the other side ended the link because it takes none of this node.
pub(super) fn refusal_of_end(why: &LinkGone) -> Option<LinkRefusal> {
    refusal_of_failure(&why.0)
}

fn refusal_of_failure(why: &StreamFailure) -> Option<LinkRefusal> {
    match why {
        StreamFailure::LinkClosed(LinkClose::Revoked) => Some(LinkRefusal::Revoked),
        StreamFailure::LinkClosed(LinkClose::NotPinned) => Some(LinkRefusal::NotPinned),
        StreamFailure::LinkClosed(_)
        | StreamFailure::LinkLost(_)
        | StreamFailure::ClosedHere
        | StreamFailure::Late
        | StreamFailure::Reset(_)
        | StreamFailure::Unfinished
        | StreamFailure::Oversized { .. }
        | StreamFailure::Malformed(_)
        | StreamFailure::NoRoom => None,
    }
}

/// The same of a dial. A node that does not answer has not changed its mind since it last did.
pub(super) fn refusal_of_no_link(why: &NoLink, before: Option<LinkRefusal>) -> Option<LinkRefusal> {
    match why {
        NoLink::Unresolved(..)
        | NoLink::Unreachable(..)
        | NoLink::NoAddress
        | NoLink::RelayRefused { .. }
        | NoLink::RelaySilent { .. }
        | NoLink::Itself
        | NoLink::NotTaken(StreamFailure::LinkLost(_)) => before,
        // That it cut this node off, it says once; from then on it takes no link.
        NoLink::NotTaken(failure) => match (before, refusal_of_failure(failure)) {
            (Some(LinkRefusal::Revoked), Some(_)) => before,
            (_, refusal) => refusal.or(before),
        },
        NoLink::Peer(_) | NoLink::Version(_) | NoLink::NotEntered(_) | NoLink::TurnedAway => None,
    }
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
            "the other side found two living nodes with this node's key, and takes neither: stop the copy, then `mgp nodes rekey` on the one that stays"
        }
        StreamFailure::LinkClosed(LinkClose::Shutdown) => "start it on the other side",
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
        StreamFailure::ClosedHere => "look at the log of this side",
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
        NoLink::NoAddress => "name it under [cluster] peers, or turn `mgp lan on` on both sides",
        NoLink::RelayRefused { .. } | NoLink::RelaySilent { .. } => {
            "look at the way between the two, or at that of both to a third node"
        }
        NoLink::Itself => "the address is this node's own",
        NoLink::Unreachable(..) => {
            return format!(
                "{why}: look whether the other side runs, and whether a firewall on either side lets UDP through; if its address changed, it is found by {FIND}"
            );
        }
        NoLink::Peer(PeerFault::OtherNode { .. }) => {
            return format!(
                "{why}: the address belongs to another node now; where the node is now is found by {FIND}"
            );
        }
        NoLink::Peer(PeerFault::NotPinned(_) | PeerFault::NoTicket | PeerFault::Certificate(_)) => {
            "this side does not take that node"
        }
        NoLink::Version(_) => return why.to_string(),
        NoLink::NotTaken(failure @ StreamFailure::LinkClosed(_)) => {
            return words_of_failure(failure);
        }
        NoLink::NotTaken(_) => {
            "the link was lost before the other side took it: look at the network between the two, and at the log there"
        }
        NoLink::NotEntered(_) => "this side does not take that node",
        NoLink::TurnedAway => "ask there for another ticket",
    };
    format!("{why}: {look}")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use mgp_protocol::ids::NodeId;

    use super::*;

    #[test]
    fn every_failure_says_where_to_look() {
        let at = SocketAddr::from(([10, 0, 0, 2], 7332));
        let closed = |why| LinkGone(StreamFailure::LinkClosed(why));
        let revoked = StreamFailure::LinkClosed(LinkClose::Revoked);
        for (told, words) in [
            (
                words_of_no_link(&NoLink::Unreachable(at, "timed out".into())),
                "a firewall on either side",
            ),
            (
                words_of_no_link(&NoLink::Unresolved("nas.lan".into(), "no name".into())),
                "on this side: DNS",
            ),
            (
                words_of_no_link(&NoLink::NotTaken(revoked)),
                "revoked there",
            ),
            (
                words_of_end(&closed(LinkClose::NoCommonVersion)),
                "update the older",
            ),
            (
                words_of_end(&closed(LinkClose::TwoLives)),
                "mgp nodes rekey",
            ),
        ] {
            assert!(told.contains(words), "{told}");
        }
    }

    /// All addresses may have changed, and one may be another node's by now.
    #[test]
    fn a_node_that_is_not_found_is_pointed_to_what_finds_it() {
        let at = SocketAddr::from(([10, 0, 0, 2], 7332));
        let (dialed, found) = (NodeId([1; 32]), NodeId([2; 32]));
        for why in [
            NoLink::Unreachable(at, "timed out".into()),
            NoLink::Peer(PeerFault::OtherNode { dialed, found }),
        ] {
            let told = words_of_no_link(&why);
            let both = told.contains("`mgp lan on`") && told.contains("[cluster] peers");
            assert!(both, "{told}");
        }
    }

    /// Only an answer says that a node takes no link: silence leaves what it said last.
    #[test]
    fn a_refusal_is_known_by_the_answer_alone() {
        let at = SocketAddr::from(([10, 0, 0, 2], 7332));
        let closed = StreamFailure::LinkClosed;
        let silent = NoLink::Unreachable(at, "timed out".into());
        let lost = StreamFailure::LinkLost("timed out".into());
        assert_eq!(refusal_of_end(&LinkGone(lost.clone())), None);
        let revoked = refusal_of_end(&LinkGone(closed(LinkClose::Revoked)));
        assert_eq!(revoked, Some(LinkRefusal::Revoked));
        assert_eq!(refusal_of_no_link(&silent, None), None);
        assert_eq!(refusal_of_no_link(&silent, revoked), revoked);
        assert_eq!(refusal_of_no_link(&NoLink::NotTaken(lost), None), None);
        let not_pinned = NoLink::NotTaken(closed(LinkClose::NotPinned));
        let refusal = refusal_of_no_link(&not_pinned, None);
        assert_eq!(refusal, Some(LinkRefusal::NotPinned));
        assert_eq!(refusal_of_no_link(&not_pinned, revoked), revoked);
    }
}
