//! The status of each node, for people.

use std::time::Duration;

use mgp_engine::cluster::staleness::Stage;
use mgp_engine::cluster::tool_index::{OmissionReason, RemoteIndex};
use mgp_protocol::federation::tool_index::{EXAMPLES_MAX, IndexReport, RefusedEntry, to_printable};
use mgp_protocol::ids::NodeId;

use super::state::ToolIndexState;

/// A node of the cluster, by what it shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedNode {
    /// The node.
    pub node: NodeId,
    /// What it is called here.
    pub name: Option<String>,
    /// Whether there is a link to it.
    pub(crate) linked: bool,
    /// Servers it shares with this node.
    pub servers: usize,
    /// Tools of these.
    pub(crate) tools: usize,
    /// Bytes of their definitions and vectors.
    pub bytes: usize,
    /// Time since its last message; `None` if there was none.
    pub age: Option<Duration>,
    /// What is done with its tools.
    pub(crate) stage: Option<Stage>,
    /// Whether the copy is what the node last told of.
    pub(crate) current: bool,
    /// Why nothing more is taken of it for now.
    pub broken: Option<String>,
    /// What was not taken of it.
    pub(crate) rejected: IndexReport,
    /// What it did not take of this node's index, as it says.
    pub(crate) reported: Option<IndexReport>,
    /// What is shared with it and not told, since it is beyond what a node may tell.
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

/// How many there are, and some of them.
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
