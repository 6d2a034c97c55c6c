//! The nodes whose links are taken, and the links there are: what is taken back is cut.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use mgp_protocol::federation::ends::LinkClose;
use mgp_protocol::ids::NodeId;
use mgp_sync::Snapshot;
use quinn::VarInt;

use super::limits::LINKS_OF_A_NODE;

/// Closes a connection for a reason that its peer is told. One that is closed keeps the reason it has.
pub(super) fn close(connection: &quinn::Connection, why: LinkClose) {
    if connection.close_reason().is_some() {
        return;
    }
    let code = VarInt::from_u64(why.code()).unwrap_or(VarInt::MAX);
    connection.close(code, &[]);
}

/// The keys of the cluster, at this moment.
#[derive(Debug)]
pub(super) struct Pinned {
    nodes: Snapshot<HashSet<NodeId>>,
    live: Mutex<Vec<(NodeId, quinn::Connection)>>,
}

impl Pinned {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            nodes: Snapshot::new(HashSet::new()),
            live: Mutex::new(Vec::new()),
        })
    }

    pub(super) fn contains(&self, node: &NodeId) -> bool {
        self.nodes.load().contains(node)
    }

    /// From when this returns, no other node gets a link, and none has one.
    pub(super) fn replace(&self, nodes: HashSet<NodeId>) {
        self.nodes.store(Arc::new(nodes));
        // A link that is entered meanwhile looks at the nodes after it was put in here.
        let pinned = self.nodes.load();
        let live = self.live();
        for (_, connection) in live.iter().filter(|(node, _)| !pinned.contains(node)) {
            close(connection, LinkClose::Revoked);
        }
    }

    /// Enters a link of a node, if it may have one.
    pub(super) fn enter(
        self: &Arc<Self>,
        node: NodeId,
        connection: &quinn::Connection,
    ) -> Result<Entered, LinkClose> {
        let mut live = self.live();
        // One that is gone already takes no place, even if somebody still holds it.
        let lives = |connection: &quinn::Connection| connection.close_reason().is_none();
        let of_node = live
            .iter()
            .filter(|(other, held)| *other == node && lives(held));
        if of_node.count() >= LINKS_OF_A_NODE {
            return Err(LinkClose::TooMany);
        }
        live.push((node, connection.clone()));
        drop(live);
        let entered = Entered {
            pinned: Arc::clone(self),
            stable_id: connection.stable_id(),
        };
        match self.contains(&node) {
            true => Ok(entered),
            false => Err(LinkClose::NotPinned),
        }
    }

    fn live(&self) -> std::sync::MutexGuard<'_, Vec<(NodeId, quinn::Connection)>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn links(&self) -> usize {
        self.live().len()
    }
}

/// A link's entry; goes with it.
#[derive(Debug)]
pub(super) struct Entered {
    pinned: Arc<Pinned>,
    stable_id: usize,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut live = self.pinned.live();
        let at = live
            .iter()
            .position(|(_, other)| other.stable_id() == self.stable_id);
        let taken = at.map(|at| live.swap_remove(at));
        drop(live);
        drop(taken);
    }
}
