//! The pinned nodes and their links: links of removed nodes are closed.

use std::collections::HashSet;
use std::sync::Arc;

use mgp_protocol::federation::close_codes::LinkClose;
use mgp_protocol::ids::NodeId;
use mgp_sync::{EnterError, Roster, RosterGuard};
use quinn::VarInt;

use super::limits::LINKS_PER_NODE;

/// Closes a connection with a reason for its peer. A closed one keeps its reason.
pub(super) fn close_connection(connection: &quinn::Connection, why: LinkClose) {
    if connection.close_reason().is_some() {
        return;
    }
    let code = VarInt::from_u64(why.code()).unwrap_or(VarInt::MAX);
    connection.close(code, &[]);
}

/// The current keys of the cluster, and their links.
#[derive(Debug)]
pub(super) struct PinnedNodes(Arc<Roster<NodeId, quinn::Connection>>);

/// The registration of a link; dropped with it.
pub(super) type LinkEntry = RosterGuard<NodeId, quinn::Connection>;

impl PinnedNodes {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Arc::default()))
    }

    pub(super) fn contains(&self, node: &NodeId) -> bool {
        self.0.is_allowed(node)
    }

    /// When this returns, no other node has or gets a link.
    pub(super) fn replace(&self, nodes: HashSet<NodeId>) {
        for connection in self.0.replace_allowed(nodes) {
            close_connection(&connection, LinkClose::Revoked);
        }
    }

    /// Registers a link of a node, if it may have one.
    pub(super) fn register(
        &self,
        node: NodeId,
        connection: &quinn::Connection,
    ) -> Result<LinkEntry, LinkClose> {
        // A closed link takes no slot, even if it is still referenced.
        let is_open = |held: &&quinn::Connection| held.close_reason().is_none();
        let registered = self.0.enter(node, connection.clone(), |of_node| {
            of_node.filter(is_open).count() < LINKS_PER_NODE
        });
        registered.map_err(|why| match why {
            EnterError::Full => LinkClose::TooMany,
            EnterError::Denied => LinkClose::NotPinned,
        })
    }

    #[cfg(test)]
    pub(super) fn links(&self) -> usize {
        self.0.count()
    }
}
