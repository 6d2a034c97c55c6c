//! Describes why there is no link, in a text that names the side to check.

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_transports::quic::{LinkError, LinkGone, PeerError, StreamFailure};

/// Advice for a node whose address changed.
const ADDRESS_ADVICE: &str = "`mgp lan on` on both nodes where they share a network, or its new address under [cluster] peers in mgp.toml";

/// How a node refuses links of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRefusal {
    /// It closed the link because this node's membership was revoked.
    Revoked,
    /// It does not accept the key of this node.
    NotPinned,
}

/// Describes why a link ended.
pub(super) fn describe_end(error: &LinkGone) -> String {
    describe_failure(&error.0)
}

/// The refusal that the end of a link expresses, if any.
pub(super) fn end_to_refusal(error: &LinkGone) -> Option<LinkRefusal> {
    failure_to_refusal(&error.0)
}

fn failure_to_refusal(error: &StreamFailure) -> Option<LinkRefusal> {
    match error {
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

/// The refusal that the error of a dial expresses. A node that does not answer keeps its last one.
pub(super) fn link_error_to_refusal(
    error: &LinkError,
    previous: Option<LinkRefusal>,
) -> Option<LinkRefusal> {
    match error {
        LinkError::Unresolved(..)
        | LinkError::Unreachable(..)
        | LinkError::NoAddress
        | LinkError::RelayRefused { .. }
        | LinkError::RelaySilent { .. }
        | LinkError::Itself
        | LinkError::HelloFailed(StreamFailure::LinkLost(_)) => previous,
        // A node reports the revocation once; from then on it accepts no link.
        LinkError::HelloFailed(failure) => match (previous, failure_to_refusal(failure)) {
            (Some(LinkRefusal::Revoked), Some(_)) => previous,
            (_, refusal) => refusal.or(previous),
        },
        LinkError::Peer(_)
        | LinkError::Version(_)
        | LinkError::LinkRejected(_)
        | LinkError::PairingRefused => None,
    }
}

fn describe_failure(error: &StreamFailure) -> String {
    let look = match error {
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
    format!("{error}: {look}")
}

/// Describes why no link was established.
pub(super) fn describe_link_error(error: &LinkError) -> String {
    let look = match error {
        LinkError::Unresolved(..) => "look at the names on this side: DNS, and [cluster] peers",
        LinkError::NoAddress => "name it under [cluster] peers, or turn `mgp lan on` on both sides",
        LinkError::RelayRefused { .. } | LinkError::RelaySilent { .. } => {
            "look at the way between the two, or at that of both to a third node"
        }
        LinkError::Itself => "the address is this node's own",
        LinkError::Unreachable(..) => {
            return format!(
                "{error}: look whether the other side runs, and whether a firewall on either side lets UDP through; if its address changed, it is found by {ADDRESS_ADVICE}"
            );
        }
        LinkError::Peer(PeerError::OtherNode { .. }) => {
            return format!(
                "{error}: the address belongs to another node now; where the node is now is found by {ADDRESS_ADVICE}"
            );
        }
        LinkError::Peer(
            PeerError::NotPinned(_) | PeerError::NoTicket | PeerError::Certificate(_),
        ) => "this side does not take that node",
        LinkError::Version(_) => return error.to_string(),
        LinkError::HelloFailed(failure @ StreamFailure::LinkClosed(_)) => {
            return describe_failure(failure);
        }
        LinkError::HelloFailed(_) => {
            "the link was lost before the other side took it: look at the network between the two, and at the log there"
        }
        LinkError::LinkRejected(_) => "this side does not take that node",
        LinkError::PairingRefused => "ask there for another ticket",
    };
    format!("{error}: {look}")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use mgp_protocol::ids::NodeId;

    use super::*;

    #[test]
    fn every_failure_names_the_side_to_check() {
        let at = SocketAddr::from(([10, 0, 0, 2], 7332));
        let closed = |error| LinkGone(StreamFailure::LinkClosed(error));
        let revoked = StreamFailure::LinkClosed(LinkClose::Revoked);
        for (text, parts) in [
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
            assert!(text.contains(parts), "{text}");
        }
    }

    /// All addresses may have changed, and one may be another node's by now.
    #[test]
    fn unreachable_node_is_described_with_discovery_advice() {
        let at = SocketAddr::from(([10, 0, 0, 2], 7332));
        let (dialed, found) = (NodeId([1; 32]), NodeId([2; 32]));
        for error in [
            LinkError::Unreachable(at, "timed out".into()),
            LinkError::Peer(PeerError::OtherNode { dialed, found }),
        ] {
            let text = describe_link_error(&error);
            let both = text.contains("`mgp lan on`") && text.contains("[cluster] peers");
            assert!(both, "{text}");
        }
    }

    /// Only an answer expresses a refusal: silence keeps the last one.
    #[test]
    fn only_an_answer_changes_the_refusal() {
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
