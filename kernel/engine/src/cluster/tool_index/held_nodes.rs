//! The indexes of all other nodes, and how fresh each is.

use std::collections::BTreeMap;
use std::time::Duration;

use mgp_protocol::federation::tool_index::{IndexDigest, IndexPage, NotBrought};
use mgp_protocol::ids::NodeId;

use super::{HELD_BYTES_MAX, HeldIndex, IndexEffect, IndexKey, NODES_MAX};
use crate::clock::MonotonicTime;
use crate::cluster::staleness::{Stage, Staleness};

/// What is held of other nodes.
#[derive(Debug, Default)]
pub struct HeldIndexes {
    nodes: BTreeMap<NodeId, HeldNode>,
}

#[derive(Debug)]
struct HeldNode {
    index: HeldIndex,
    staleness: Staleness,
}

impl HeldIndexes {
    /// What was kept of a node from before this kernel's start, last heard so long ago.
    pub fn restore(&mut self, node: NodeId, index: HeldIndex, age: Duration, now: MonotonicTime) {
        let staleness = Staleness::kept(age, now);
        self.nodes.insert(node, HeldNode { index, staleness });
    }

    /// A node's index, and how fresh it is.
    #[must_use]
    pub fn get(&self, node: NodeId, now: MonotonicTime) -> Option<(&HeldIndex, Stage)> {
        let held = self.nodes.get(&node)?;
        Some((&held.index, held.staleness.at(now)))
    }

    /// All of them.
    pub fn all(&self, now: MonotonicTime) -> impl Iterator<Item = (NodeId, &HeldIndex, Stage)> {
        let nodes = self.nodes.iter();
        nodes.map(move |(node, held)| (*node, &held.index, held.staleness.at(now)))
    }

    /// An admitted node was heard over its own link: it is there, whatever its index.
    pub fn heard(&mut self, node: NodeId, now: MonotonicTime) {
        if let Some(held) = self.nodes.get_mut(&node) {
            held.staleness.heard(now);
        }
    }

    /// An admitted node told its digest over its own link. Beyond the bound a node is not heard; there are
    /// no more admitted ones.
    pub fn told(
        &mut self,
        node: NodeId,
        digest: IndexDigest,
        now: MonotonicTime,
    ) -> Vec<IndexEffect> {
        if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(&node) {
            return Vec::new();
        }
        let held = self.nodes.entry(node).or_insert_with(|| HeldNode {
            index: HeldIndex::default(),
            staleness: Staleness::new(now),
        });
        held.staleness.heard(now);
        held.index.told(digest, now)
    }

    /// A pull from the node was answered with a page.
    pub fn brought(
        &mut self,
        node: NodeId,
        page: IndexPage,
        now: MonotonicTime,
    ) -> Vec<IndexEffect> {
        let held = self.nodes.values().map(|held| held.index.bytes());
        let room = HELD_BYTES_MAX.saturating_sub(held.sum());
        let Some(held) = self.nodes.get_mut(&node) else {
            return Vec::new();
        };
        held.staleness.heard(now);
        held.index.brought(page, room, now)
    }

    /// A pull from the node brought nothing.
    pub fn not_brought(
        &mut self,
        node: NodeId,
        number: u64,
        why: NotBrought,
        now: MonotonicTime,
    ) -> Vec<IndexEffect> {
        let held = self.nodes.get_mut(&node);
        let effects = held.map(|held| held.index.not_brought(number, why, now));
        effects.unwrap_or_default()
    }

    /// The node's link is lost: its tools are stale at once.
    pub fn unlinked(&mut self, node: NodeId, now: MonotonicTime) {
        if let Some(held) = self.nodes.get_mut(&node) {
            held.staleness.lost(now);
            held.index.unlinked();
        }
    }

    /// The node is no longer of the cluster: nothing of it stays.
    pub fn forget(&mut self, node: NodeId) -> Vec<IndexKey> {
        let held = self.nodes.remove(&node);
        let index = held.iter().flat_map(|held| held.index.entries());
        index.map(|(key, _)| key.clone()).collect()
    }

    /// What has become due: pulls, and what is dropped because its node was away too long.
    pub fn due(&mut self, now: MonotonicTime) -> Vec<(NodeId, IndexEffect)> {
        let mut due = Vec::new();
        let dropped = |held: &HeldNode| held.staleness.at(now) == Stage::Dropped;
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
                    .due(now)
                    .into_iter()
                    .map(|effect| (*node, effect)),
            );
        }
        due
    }

    /// When to ask what is due, or how stale the nodes are.
    #[must_use]
    pub fn next_due(&self, now: MonotonicTime) -> Option<MonotonicTime> {
        let pulls = self.nodes.values().filter_map(|held| held.index.next_due());
        let stages = self
            .nodes
            .values()
            .filter_map(|held| held.staleness.next(now));
        pulls.chain(stages).min()
    }

    /// How long ago a node was heard.
    #[must_use]
    pub fn age(&self, node: NodeId, now: MonotonicTime) -> Option<Duration> {
        Some(self.nodes.get(&node)?.staleness.age(now))
    }
}
