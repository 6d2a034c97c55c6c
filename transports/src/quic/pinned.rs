//! The nodes whose links are taken, and the links there are: what is taken back is cut.

use std::collections::HashSet;
use std::sync::Arc;

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::ids::NodeId;
use mgp_sync::{EnterError, Roster, RosterGuard};
use quinn::VarInt;

use super::limits::LINKS_PER_NODE;

/// Closes a connection for a reason that its peer is told. One that is closed keeps the reason it has.
pub(super) fn close_connection(connection: &quinn::Connection, why: LinkClose) {
    if connection.close_reason().is_some() {
        return;
    }
    let code = VarInt::from_u64(why.code()).unwrap_or(VarInt::MAX);
    connection.close(code, &[]);
}

/// The keys of the cluster, at this moment, and the links there are.
#[derive(Debug)]
pub(super) struct PinnedNodes(Arc<Roster<NodeId, quinn::Connection>>);

/// A link's entry; goes with it.
pub(super) type LinkEntry = RosterGuard<NodeId, quinn::Connection>;

impl PinnedNodes {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Arc::default()))
    }

    pub(super) fn contains(&self, node: &NodeId) -> bool {
        self.0.is_allowed(node)
    }

    /// From when this returns, no other node gets a link, and none has one.
    pub(super) fn replace(&self, nodes: HashSet<NodeId>) {
        for connection in self.0.replace_allowed(nodes) {
            close_connection(&connection, LinkClose::Revoked);
        }
    }

    /// Enters a link of a node, if it may have one.
    pub(super) fn register(
        &self,
        node: NodeId,
        connection: &quinn::Connection,
    ) -> Result<LinkEntry, LinkClose> {
        // One that is gone already takes no place, even if somebody still holds it.
        let lives = |held: &&quinn::Connection| held.close_reason().is_none();
        let entered = self.0.enter(node, connection.clone(), |of_node| {
            of_node.filter(lives).count() < LINKS_PER_NODE
        });
        entered.map_err(|why| match why {
            EnterError::Full => LinkClose::TooMany,
            EnterError::Denied => LinkClose::NotPinned,
        })
    }

    #[cfg(test)]
    pub(super) fn links(&self) -> usize {
        self.0.count()
    }
}
