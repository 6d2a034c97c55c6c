//! Nodes that announce themselves on the local network. Announcements are not authenticated: they only fill this
//! bounded table and give addresses to try, at a bounded pace.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use mgp_protocol::ids::NodeId;

use crate::clock::MonotonicTime;

/// Most nodes: more than a local network has.
pub(crate) const NODES_MAX: usize = 256;
/// Most addresses of one node; the newest are kept.
pub(crate) const ADDRESSES_MAX: usize = 8;
/// An address that is announced again may be tried again after this.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Most addresses tried in a second, whoever announces them. One that is skipped will be announced again.
pub(crate) const TRIES_PER_SECOND: u32 = 64;
/// A node without announcements for so long is not listed any more: announcements are repeated within two minutes.
pub(crate) const FORGET_AFTER: Duration = Duration::from_secs(600);

/// A node that announced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredNode {
    /// The id it claims.
    pub node: NodeId,
    /// The addresses it claims, newest first.
    pub addresses: Vec<SocketAddr>,
    /// Whether it claims to be in this node's cluster.
    pub same_cluster: bool,
    /// When its last announcement arrived.
    pub last_seen: MonotonicTime,
}

/// All discovered nodes.
#[derive(Debug, Default)]
pub struct DiscoveredNodes {
    nodes: BTreeMap<NodeId, DiscoveryEntry>,
    dropped: u64,
    /// The current second, and the tries in it.
    tries: (u64, u32),
}

#[derive(Debug)]
struct DiscoveryEntry {
    /// Each with the time of its last try; newest first.
    addresses: Vec<(SocketAddr, Option<MonotonicTime>)>,
    same_cluster: bool,
    last_seen: MonotonicTime,
}

impl DiscoveredNodes {
    /// Records an announcement and returns which of the addresses to try now.
    pub fn record_announcement(
        &mut self,
        node: NodeId,
        addresses: &[SocketAddr],
        same_cluster: bool,
        now: MonotonicTime,
    ) -> Vec<SocketAddr> {
        self.nodes
            .retain(|_, entry| now.duration_since(entry.last_seen) < FORGET_AFTER);
        if !self.evict_for(node, same_cluster) {
            self.dropped += 1;
            return Vec::new();
        }
        let second = now.since_start().as_secs();
        if self.tries.0 != second {
            self.tries = (second, 0);
        }
        let entry = self.nodes.entry(node).or_insert(DiscoveryEntry {
            addresses: Vec::new(),
            same_cluster,
            last_seen: now,
        });
        (entry.same_cluster, entry.last_seen) = (same_cluster, now);
        let mut to_try = Vec::new();
        for address in addresses.iter().take(ADDRESSES_MAX) {
            let index = entry
                .addresses
                .iter()
                .position(|(known, _)| known == address);
            let (_, last) = index.map_or((*address, None), |index| entry.addresses.remove(index));
            let is_due = last.is_none_or(|last| now.duration_since(last) >= RETRY_INTERVAL);
            let should_try = is_due && self.tries.1 < TRIES_PER_SECOND;
            if should_try {
                self.tries.1 += 1;
                to_try.push(*address);
            }
            let last = if should_try { Some(now) } else { last };
            entry.addresses.insert(0, (*address, last));
        }
        entry.addresses.truncate(ADDRESSES_MAX);
        to_try
    }

    /// The recently announced nodes, those that claim to be in this cluster first.
    #[must_use]
    pub fn list(&self, now: MonotonicTime) -> Vec<DiscoveredNode> {
        let recent = self
            .nodes
            .iter()
            .filter(|(_, entry)| now.duration_since(entry.last_seen) < FORGET_AFTER);
        let mut all: Vec<DiscoveredNode> = recent
            .map(|(node, entry)| DiscoveredNode {
                node: *node,
                addresses: entry.addresses.iter().map(|(at, _)| *at).collect(),
                same_cluster: entry.same_cluster,
                last_seen: entry.last_seen,
            })
            .collect();
        all.sort_by_key(|seen| (!seen.same_cluster, seen.node));
        all
    }

    /// How many announcements were dropped because the table was full.
    #[must_use]
    pub fn dropped_count(&self) -> u64 {
        self.dropped
    }

    /// Makes room for a node: one that claims to be in this cluster replaces the longest silent one that does not.
    /// False where that is impossible.
    fn evict_for(&mut self, node: NodeId, same_cluster: bool) -> bool {
        if self.nodes.len() < NODES_MAX || self.nodes.contains_key(&node) {
            return true;
        }
        let evictable = self
            .nodes
            .iter()
            .filter(|(_, entry)| !entry.same_cluster && same_cluster);
        let oldest = evictable.min_by_key(|(_, entry)| entry.last_seen);
        let Some(evicted) = oldest.map(|(node, _)| *node) else {
            return false;
        };
        self.nodes.remove(&evicted);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: usize) -> NodeId {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&n.to_be_bytes());
        NodeId(id)
    }

    fn at(n: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], n))
    }

    fn secs(secs: u64) -> MonotonicTime {
        MonotonicTime::new(Duration::from_secs(secs))
    }

    /// PRJ-012, FED-014: nodes of the cluster are not evicted, and the number of tried addresses is bounded.
    #[test]
    fn a_flood_of_announcements_is_bounded() {
        let mut seen = DiscoveredNodes::default();
        assert_eq!(
            seen.record_announcement(node(0), &[at(1)], true, secs(1)),
            [at(1)]
        );
        let mut tried = 0;
        for n in 1..10_000 {
            tried += seen
                .record_announcement(node(n), &[at(2), at(3)], false, secs(2))
                .len();
        }
        assert_eq!(tried, usize::try_from(TRIES_PER_SECOND).unwrap());
        let all = seen.list(secs(2));
        assert_eq!((all.len(), all[0].node), (NODES_MAX, node(0)));
        assert!(seen.dropped_count() > 9000);
        // A node of the cluster is recorded.
        assert_eq!(
            seen.record_announcement(node(20_000), &[at(9)], true, secs(3)),
            [at(9)]
        );
        let all = seen.list(secs(3));
        assert_eq!((all.len(), all[1].node), (NODES_MAX, node(20_000)));
    }

    /// Only the newest addresses of a node are stored.
    #[test]
    fn an_address_is_retried_after_the_interval() {
        let mut seen = DiscoveredNodes::default();
        assert_eq!(
            seen.record_announcement(node(1), &[at(1)], false, secs(1)),
            [at(1)]
        );
        assert!(
            seen.record_announcement(node(1), &[at(1)], false, secs(5))
                .is_empty()
        );
        assert_eq!(
            seen.record_announcement(node(1), &[at(1), at(2)], false, secs(11)),
            [at(1), at(2)]
        );
        for n in 3..40 {
            seen.record_announcement(node(1), &[at(n)], false, secs(u64::from(n) * 20));
        }
        let all = seen.list(secs(780));
        assert_eq!(all[0].addresses.len(), ADDRESSES_MAX);
        assert_eq!(all[0].addresses[0], at(39));
        assert!(seen.list(secs(780) + FORGET_AFTER).is_empty());
    }

    /// Addresses skipped by the rate limit are tried at their next announcement.
    #[test]
    fn skipped_addresses_are_tried_later() {
        let mut seen = DiscoveredNodes::default();
        for n in 0..usize::try_from(TRIES_PER_SECOND).unwrap() {
            assert_eq!(
                seen.record_announcement(node(n), &[at(1)], false, secs(1))
                    .len(),
                1
            );
        }
        assert!(
            seen.record_announcement(node(500), &[at(7)], false, secs(1))
                .is_empty()
        );
        assert_eq!(
            seen.record_announcement(node(500), &[at(7)], false, secs(2)),
            [at(7)]
        );
    }
}
