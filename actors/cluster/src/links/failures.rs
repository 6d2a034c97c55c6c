//! Why there is no link, in words that say on which side to look.

use mgp_protocol::federation::ends::LinkClose;
use mgp_transports::quic::{LinkGone, NoLink, PeerFault, StreamFailure};

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
            "the other side found two living nodes with this node's key, and takes neither: stop the copy, then `mgp node rekey` on the one that stays"
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
    use std::net::SocketAddr;

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
            (words_of_end(&closed(LinkClose::TwoLives)), "mgp node rekey"),
        ] {
            assert!(told.contains(words), "{told}");
        }
    }
}
