//! The status of each node, for people.

use std::time::Duration;

use mgp_engine::cluster::staleness::Stage;
use mgp_engine::cluster::tool_index::{OmissionReason, RemoteIndex};
use mgp_protocol::federation::tool_index::{EXAMPLES_MAX, IndexReport, RefusedEntry, to_printable};
use mgp_protocol::ids::NodeId;

use super::state::ToolIndexState;

/// The status of a node's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedNode {
    /// The node.
    pub node: NodeId,
    /// Its local name.
    pub name: Option<String>,
    /// True if it is linked.
    pub(crate) linked: bool,
    /// The number of servers it shares with this node.
    pub servers: usize,
    /// The number of their tools.
    pub(crate) tools: usize,
    /// Bytes of their definitions and vectors.
    pub bytes: usize,
    /// Time since its last message; `None` if there was none.
    pub age: Option<Duration>,
    /// The stage of its tools.
    pub(crate) stage: Option<Stage>,
    /// True if the copy equals the node's last digest.
    pub(crate) current: bool,
    /// Why its index is currently rejected.
    pub broken: Option<String>,
    /// The rejected entries of its index.
    pub(crate) rejected: IndexReport,
    /// The entries of this node's index that it reported as rejected.
    pub(crate) reported: Option<IndexReport>,
    /// The entries shared with it that exceed the limits of an index.
    pub(crate) omitted: IndexReport,
}

impl ToolIndexState {
    pub(super) fn status(&self) -> Vec<IndexedNode> {
        let members = self.other_members().map(|(node, _)| node);
        members.map(|node| self.node_status(node)).collect()
    }

    fn node_status(&self, node: NodeId) -> IndexedNode {
        let now = self.elapsed();
        let peer = self.peers.get(&node);
        let held = self.remote.get(node, now);
        let index = held.map(|(index, _)| index);
        let entries = || index.into_iter().flat_map(RemoteIndex::entries);
        let name = self.names.handle_for(node);
        let left_out = self.local.omitted_entries(node);
        let left_out =
            left_out.map(|(key, why): (_, OmissionReason)| (key.to_string(), why.to_string()));
        let refused = index.into_iter().flat_map(RemoteIndex::rejected_entries);
        let refused = refused.map(|(key, why)| (key.to_string(), why.to_string()));
        IndexedNode {
            node,
            name: name.map(ToString::to_string),
            linked: peer.is_some_and(super::peers::IndexPeer::is_linked),
            servers: entries().filter(|(key, _)| key.tool.is_none()).count(),
            tools: entries().filter(|(key, _)| key.tool.is_some()).count(),
            bytes: index.map_or(0, RemoteIndex::bytes),
            age: self.remote.age(node, now),
            stage: held.map(|(_, stage)| stage),
            current: index.is_some_and(RemoteIndex::is_current),
            broken: index
                .and_then(RemoteIndex::error)
                .map(|broken| broken.to_string()),
            rejected: to_report(refused),
            reported: peer.and_then(|peer| peer.report.clone()),
            omitted: to_report(left_out),
        }
    }
}

/// Counts the entries, and lists some of them.
fn to_report(entries: impl Iterator<Item = (String, String)>) -> IndexReport {
    let mut report = IndexReport::default();
    for (entry, reason) in entries {
        report.refused += 1;
        if report.examples.len() < EXAMPLES_MAX {
            let entry = to_printable(&entry);
            report.examples.push(RefusedEntry { entry, reason });
        }
    }
    report
}
