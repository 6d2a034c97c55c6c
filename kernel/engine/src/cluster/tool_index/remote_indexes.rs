//! The indexes of all other nodes, and how stale each is.

use std::collections::BTreeMap;
use std::time::Duration;

use mgp_protocol::federation::tool_index::{IndexDigest, IndexPage, PullFailure};
use mgp_protocol::ids::NodeId;

use super::{IndexEffect, IndexKey, NODES_MAX, REMOTE_BYTES_MAX, RemoteIndex};
use crate::clock::MonotonicTime;
use crate::cluster::staleness::{Stage, Staleness};

/// The copies of all other nodes' indexes.
#[derive(Debug, Default)]
pub struct RemoteIndexes {
    nodes: BTreeMap<NodeId, RemoteNode>,
}

#[derive(Debug)]
struct RemoteNode {
    index: RemoteIndex,
    staleness: Staleness,
}

impl RemoteIndexes {
    /// Restores the index of a node from before this kernel's start, with its age.
    pub fn restore(&mut self, node: NodeId, index: RemoteIndex, age: Duration, now: MonotonicTime) {
        let staleness = Staleness::from_age(age, now);
        self.nodes.insert(node, RemoteNode { index, staleness });
    }

    /// A node's index, and how stale it is.
    #[must_use]
    pub fn get(&self, node: NodeId, now: MonotonicTime) -> Option<(&RemoteIndex, Stage)> {
        let remote = self.nodes.get(&node)?;
        Some((&remote.index, remote.staleness.stage_at(now)))
    }

    /// All indexes.
    pub fn iter(&self, now: MonotonicTime) -> impl Iterator<Item = (NodeId, &RemoteIndex, Stage)> {
        let nodes = self.nodes.iter();
        nodes.map(move |(node, remote)| (*node, &remote.index, remote.staleness.stage_at(now)))
    }

    /// An admitted node sent something over its own link: it is alive, whatever its index.
    pub fn record_activity(&mut self, node: NodeId, now: MonotonicTime) {
        if let Some(remote) = self.nodes.get_mut(&node) {
            remote.staleness.refresh(now);
        }
    }

    /// An admitted node sent its digest over its own link. Nodes beyond the limit are ignored; there are never so
    /// many admitted ones.
    pub fn handle_digest(
        &mut self,
        node: NodeId,
        digest: IndexDigest,
        now: MonotonicTime,
    ) -> Vec<IndexEffect> {
        if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(&node) {
            return Vec::new();
        }
        let remote = self.nodes.entry(node).or_insert_with(|| RemoteNode {
            index: RemoteIndex::default(),
            staleness: Staleness::new(now),
        });
        remote.staleness.refresh(now);
        remote.index.handle_digest(digest, now)
    }

    /// A pull from the node was answered with a page.
    pub fn handle_page(
        &mut self,
        node: NodeId,
        page: IndexPage,
        now: MonotonicTime,
    ) -> Vec<IndexEffect> {
        let used = self.nodes.values().map(|remote| remote.index.bytes());
        let capacity = REMOTE_BYTES_MAX.saturating_sub(used.sum());
        let Some(remote) = self.nodes.get_mut(&node) else {
            return Vec::new();
        };
        remote.staleness.refresh(now);
        remote.index.handle_page(page, capacity, now)
    }

    /// A pull from the node failed.
    pub fn handle_pull_failure(
        &mut self,
        node: NodeId,
        number: u64,
        why: PullFailure,
        now: MonotonicTime,
    ) -> Vec<IndexEffect> {
        let remote = self.nodes.get_mut(&node);
        let effects = remote.map(|remote| remote.index.handle_pull_failure(number, why, now));
        effects.unwrap_or_default()
    }

    /// The node's link is lost: its tools are stale at once.
    pub fn handle_link_down(&mut self, node: NodeId, now: MonotonicTime) {
        if let Some(remote) = self.nodes.get_mut(&node) {
            remote.staleness.mark_link_lost(now);
            remote.index.handle_link_down();
        }
    }

    /// Removes everything of a node that left the cluster.
    pub fn forget(&mut self, node: NodeId) -> Vec<IndexKey> {
        let remote = self.nodes.remove(&node);
        let index = remote.iter().flat_map(|remote| remote.index.entries());
        index.map(|(key, _)| key.clone()).collect()
    }

    /// Handles timeouts: pulls, and indexes of nodes that were unavailable for too long.
    pub fn handle_timeout(&mut self, now: MonotonicTime) -> Vec<(NodeId, IndexEffect)> {
        let mut due = Vec::new();
        let is_dropped = |remote: &RemoteNode| remote.staleness.stage_at(now) == Stage::Dropped;
        let away: Vec<_> = self
            .nodes
            .iter()
            .filter(|(_, remote)| is_dropped(remote))
            .collect();
        let away: Vec<_> = away.into_iter().map(|(node, _)| *node).collect();
        for node in away {
            let removed = self.forget(node).into_iter().map(IndexEffect::Removed);
            due.extend(removed.map(|effect| (node, effect)));
        }
        for (node, remote) in &mut self.nodes {
            due.extend(
                remote
                    .index
                    .handle_timeout(now)
                    .into_iter()
                    .map(|effect| (*node, effect)),
            );
        }
        due
    }

    /// When [`Self::handle_timeout`] must be called next, or the staleness of a node changes.
    #[must_use]
    pub fn next_timeout(&self, now: MonotonicTime) -> Option<MonotonicTime> {
        let pulls = self
            .nodes
            .values()
            .filter_map(|remote| remote.index.next_timeout());
        let stages = self
            .nodes
            .values()
            .filter_map(|remote| remote.staleness.next_transition(now));
        pulls.chain(stages).min()
    }

    /// The time since a node's last message.
    #[must_use]
    pub fn age(&self, node: NodeId, now: MonotonicTime) -> Option<Duration> {
        Some(self.nodes.get(&node)?.staleness.age(now))
    }
}
