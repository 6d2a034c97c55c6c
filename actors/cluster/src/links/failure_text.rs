//! Why there is no link, as a text that names the side to check.

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_transports::quic::{LinkError, LinkGone, PeerError, StreamFailure};

/// What finds a node whose address changed.
const ADDRESS_ADVICE: &str = "`mgp lan on` on both nodes where they share a network, or its new address under [cluster] peers in mgp.toml";

/// How a node refused a link of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRefusal {
    /// It ended the link as that of a node that was cut off.
    Revoked,
    /// It does not take the key of this node.
    NotPinned,
}

/// Why a link ended.
pub(super) fn describe_end(why: &LinkGone) -> String {
    describe_failure(&why.0)
}

/// Whether the other side ended the link because it takes none of this node.
pub(super) fn end_to_refusal(why: &LinkGone) -> Option<LinkRefusal> {
    failure_to_refusal(&why.0)
}

fn failure_to_refusal(why: &StreamFailure) -> Option<LinkRefusal> {
    match why {
        StreamFailure::LinkClosed(LinkClose::Revoked) => Some(LinkRefusal::Revoked),
        StreamFailure::LinkClosed(LinkClose::NotPinned) => Some(LinkRefusal::NotPinned),
        StreamFailure::LinkClosed(_)
        | StreamFailure::LinkLost(_)
        | StreamFailure::ClosedHere
        | StreamFailure::DeadlineExceeded
        | StreamFailure::Reset(_)
        | StreamFailure::Unfinished
        | StreamFailure::Oversized { .. }
        | StreamFailure::Malformed(_)
        | StreamFailure::OverBudget => None,
    }
}

/// The same of a dial. A node that does not answer has not changed its mind since it last did.
pub(super) fn link_error_to_refusal(
    why: &LinkError,
    before: Option<LinkRefusal>,
) -> Option<LinkRefusal> {
    match why {
        LinkError::Unresolved(..)
        | LinkError::Unreachable(..)
        | LinkError::NoAddress
        | LinkError::RelayRefused { .. }
        | LinkError::RelaySilent { .. }
        | LinkError::Itself
        | LinkError::HelloFailed(StreamFailure::LinkLost(_)) => before,
        // That it cut this node off, it says once; from then on it takes no link.
        LinkError::HelloFailed(failure) => match (before, failure_to_refusal(failure)) {
            (Some(LinkRefusal::Revoked), Some(_)) => before,
            (_, refusal) => refusal.or(before),
        },
        LinkError::Peer(_)
        | LinkError::Version(_)
        | LinkError::LinkRejected(_)
        | LinkError::PairingRefused => None,
    }
}

fn describe_failure(why: &StreamFailure) -> String {
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
        StreamFailure::DeadlineExceeded
        | StreamFailure::Reset(_)
        | StreamFailure::Unfinished
        | StreamFailure::Oversized { .. }
        | StreamFailure::Malformed(_)
        | StreamFailure::OverBudget => "look at the log of both sides",
    };
    format!("{why}: {look}")
}

/// Why no link came about.
pub(super) fn describe_link_error(why: &LinkError) -> String {
    let look = match why {
        LinkError::Unresolved(..) => "look at the names on this side: DNS, and [cluster] peers",
        LinkError::NoAddress => "name it under [cluster] peers, or turn `mgp lan on` on both sides",
        LinkError::RelayRefused { .. } | LinkError::RelaySilent { .. } => {
            "look at the way between the two, or at that of both to a third node"
        }
        LinkError::Itself => "the address is this node's own",
        LinkError::Unreachable(..) => {
            return format!(
                "{why}: look whether the other side runs, and whether a firewall on either side lets UDP through; if its address changed, it is found by {ADDRESS_ADVICE}"
            );
        }
        LinkError::Peer(PeerError::OtherNode { .. }) => {
            return format!(
                "{why}: the address belongs to another node now; where the node is now is found by {ADDRESS_ADVICE}"
            );
        }
        LinkError::Peer(
            PeerError::NotPinned(_) | PeerError::NoTicket | PeerError::Certificate(_),
        ) => "this side does not take that node",
        LinkError::Version(_) => return why.to_string(),
        LinkError::HelloFailed(failure @ StreamFailure::LinkClosed(_)) => {
            return describe_failure(failure);
        }
        LinkError::HelloFailed(_) => {
            "the link was lost before the other side took it: look at the network between the two, and at the log there"
        }
        LinkError::LinkRejected(_) => "this side does not take that node",
        LinkError::PairingRefused => "ask there for another ticket",
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
                describe_link_error(&LinkError::Unreachable(at, "timed out".into())),
                "a firewall on either side",
            ),
            (
                describe_link_error(&LinkError::Unresolved("nas.lan".into(), "no name".into())),
                "on this side: DNS",
            ),
            (
                describe_link_error(&LinkError::HelloFailed(revoked)),
                "revoked there",
            ),
            (
                describe_end(&closed(LinkClose::NoCommonVersion)),
                "update the older",
            ),
            (
                describe_end(&closed(LinkClose::TwoLives)),
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
            LinkError::Unreachable(at, "timed out".into()),
            LinkError::Peer(PeerError::OtherNode { dialed, found }),
        ] {
            let told = describe_link_error(&why);
            let both = told.contains("`mgp lan on`") && told.contains("[cluster] peers");
            assert!(both, "{told}");
        }
    }

    /// Only an answer says that a node takes no link: silence leaves what it said last.
    #[test]
    fn a_refusal_is_known_by_the_answer_alone() {
        let at = SocketAddr::from(([10, 0, 0, 2], 7332));
        let closed = StreamFailure::LinkClosed;
        let silent = LinkError::Unreachable(at, "timed out".into());
        let lost = StreamFailure::LinkLost("timed out".into());
        assert_eq!(end_to_refusal(&LinkGone(lost.clone())), None);
        let revoked = end_to_refusal(&LinkGone(closed(LinkClose::Revoked)));
        assert_eq!(revoked, Some(LinkRefusal::Revoked));
        assert_eq!(link_error_to_refusal(&silent, None), None);
        assert_eq!(link_error_to_refusal(&silent, revoked), revoked);
        assert_eq!(
            link_error_to_refusal(&LinkError::HelloFailed(lost), None),
            None
        );
        let not_pinned = LinkError::HelloFailed(closed(LinkClose::NotPinned));
        let refusal = link_error_to_refusal(&not_pinned, None);
        assert_eq!(refusal, Some(LinkRefusal::NotPinned));
        assert_eq!(link_error_to_refusal(&not_pinned, revoked), revoked);
    }
}
