//! Handles two live nodes with one key: neither gets a link. The node that detects them notifies each that
//! connects, and dials neither; a notified node reports it once, and retries rarely.

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::ids::NodeId;
use mgp_transports::quic::{LinkError, LinkGone, StreamFailure};

use super::state::{LinksState, closed_here};

impl LinksState {
    /// Blocks the key of a node of which two live instances were found: the links to it end.
    pub(super) fn block_duplicate_key(&mut self, node: NodeId) {
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        (member.due, member.dialing) = (None, None);
        let live = member.link.take();
        for link in live.iter().chain(&member.draining) {
            link.peer.link.close(LinkClose::TwoLives);
        }
        member.draining.clear();
        self.publish();
        if live.is_some() {
            self.set_down(node, &closed_here(LinkClose::TwoLives));
        }
        if let Some(member) = self.members.get_mut(&node) {
            member.failure = Some("two living nodes have its key".to_owned());
        }
    }

    /// True if links to the node are blocked: connections with its key are rejected.
    pub(super) fn is_blocked(&self, node: NodeId) -> bool {
        let member = self.members.get(&node);
        member.is_some_and(|member| member.pinned.has_duplicate_key)
    }

    /// Reports that the node has found two live instances of this one. Reported once, until a link lasts
    /// again.
    pub(super) fn report_blocked_by(&self, node: NodeId) {
        let Some(member) = self.members.get(&node) else {
            return;
        };
        if !member.plan.is_rejected_as_duplicate() {
            tracing::warn!(
                by = member.pinned.name,
                "another living kernel has the key of this node, and neither of the two is let in any more: stop the copy, then `mgp nodes rekey` on the one that stays"
            );
        }
    }
}

/// True if the link ended because two live nodes have the key of this one.
pub(super) fn is_duplicate_key_end(reason: &LinkGone) -> bool {
    reason.0 == StreamFailure::LinkClosed(LinkClose::TwoLives)
}

/// True if no link was established for that reason.
pub(super) fn is_duplicate_key_error(reason: &LinkError) -> bool {
    matches!(
        reason,
        LinkError::HelloFailed(StreamFailure::LinkClosed(LinkClose::TwoLives))
    )
}
