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
        let held = self.nodes.get(&node)?;
        Some((&held.index, held.staleness.stage_at(now)))
    }

    /// All indexes.
    pub fn iter(&self, now: MonotonicTime) -> impl Iterator<Item = (NodeId, &RemoteIndex, Stage)> {
        let nodes = self.nodes.iter();
        nodes.map(move |(node, held)| (*node, &held.index, held.staleness.stage_at(now)))
    }

    /// An admitted node sent something over its own link: it is alive, whatever its index.
    pub fn record_activity(&mut self, node: NodeId, now: MonotonicTime) {
        if let Some(held) = self.nodes.get_mut(&node) {
            held.staleness.refresh(now);
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
        let held = self.nodes.entry(node).or_insert_with(|| RemoteNode {
            index: RemoteIndex::default(),
            staleness: Staleness::new(now),
        });
        held.staleness.refresh(now);
        held.index.handle_digest(digest, now)
    }

    /// A pull from the node was answered with a page.
    pub fn handle_page(
        &mut self,
        node: NodeId,
        page: IndexPage,
        now: MonotonicTime,
    ) -> Vec<IndexEffect> {
        let held = self.nodes.values().map(|held| held.index.bytes());
        let room = REMOTE_BYTES_MAX.saturating_sub(held.sum());
        let Some(held) = self.nodes.get_mut(&node) else {
            return Vec::new();
        };
        held.staleness.refresh(now);
        held.index.handle_page(page, room, now)
    }

    /// A pull from the node failed.
    pub fn handle_pull_failure(
        &mut self,
        node: NodeId,
        number: u64,
        why: PullFailure,
        now: MonotonicTime,
    ) -> Vec<IndexEffect> {
        let held = self.nodes.get_mut(&node);
        let effects = held.map(|held| held.index.handle_pull_failure(number, why, now));
        effects.unwrap_or_default()
    }

    /// The node's link is lost: its tools are stale at once.
    pub fn handle_link_down(&mut self, node: NodeId, now: MonotonicTime) {
        if let Some(held) = self.nodes.get_mut(&node) {
            held.staleness.mark_link_lost(now);
            held.index.handle_link_down();
        }
    }

    /// Removes everything of a node that left the cluster.
    pub fn forget(&mut self, node: NodeId) -> Vec<IndexKey> {
        let held = self.nodes.remove(&node);
        let index = held.iter().flat_map(|held| held.index.entries());
        index.map(|(key, _)| key.clone()).collect()
    }

    /// Handles timeouts: pulls, and indexes of nodes that were unavailable for too long.
    pub fn handle_timeout(&mut self, now: MonotonicTime) -> Vec<(NodeId, IndexEffect)> {
        let mut due = Vec::new();
        let dropped = |held: &RemoteNode| held.staleness.stage_at(now) == Stage::Dropped;
        let away: Vec<_> = self
            .nodes
            .iter()
            .filter(|(_, held)| dropped(held))
            .collect();
        let away: Vec<_> = away.into_iter().map(|(node, _)| *node).collect();
        for node in away {
            let gone = self.forget(node).into_iter().map(IndexEffect::Removed);
            due.extend(gone.map(|effect| (node, effect)));
        }
        for (node, held) in &mut self.nodes {
            due.extend(
                held.index
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
            .filter_map(|held| held.index.next_timeout());
        let stages = self
            .nodes
            .values()
            .filter_map(|held| held.staleness.next_transition(now));
        pulls.chain(stages).min()
    }

    /// The time since a node's last message.
    #[must_use]
    pub fn age(&self, node: NodeId, now: MonotonicTime) -> Option<Duration> {
        Some(self.nodes.get(&node)?.staleness.age(now))
    }
}
