//! Proven addresses of nodes: a node proved its key there in a link's handshake.
//!
//! Other sources of addresses (announcements, files) are hints and do not count here.

use std::collections::HashMap;
use std::net::SocketAddr;

use mgp_protocol::ids::NodeId;

/// Addresses stored: a few for each node of a large cluster. The one proven longest ago is evicted.
pub(crate) const ADDRESSES_MAX: usize = 1024;

/// The last proof for each address.
#[derive(Debug, Default)]
pub(crate) struct ProvenAddresses {
    nodes: HashMap<SocketAddr, (NodeId, u64)>,
    proof_count: u64,
}

impl ProvenAddresses {
    /// The node proved its key at this address now. Returns the other node that was there before, and is not any
    /// more.
    pub(crate) fn record(&mut self, address: SocketAddr, node: NodeId) -> Option<NodeId> {
        self.proof_count += 1;
        if self.nodes.len() >= ADDRESSES_MAX && !self.nodes.contains_key(&address) {
            let oldest = self.nodes.iter().min_by_key(|(_, (_, proof))| *proof);
            if let Some(address) = oldest.map(|(address, _)| *address) {
                self.nodes.remove(&address);
            }
        }
        let before = self.nodes.insert(address, (node, self.proof_count));
        before
            .map(|(node, _)| node)
            .filter(|before| *before != node)
    }

    /// The node last proven at this address.
    #[cfg(test)]
    pub(crate) fn node_at(&self, address: SocketAddr) -> Option<NodeId> {
        self.nodes.get(&address).map(|(node, _)| *node)
    }

    /// The proven addresses of a node, latest first.
    #[must_use]
    pub(crate) fn addresses_of(&self, node: NodeId) -> Vec<SocketAddr> {
        let proofs = self.nodes.iter();
        let proofs = proofs.filter(|(_, (proven, _))| *proven == node);
        let mut proofs: Vec<_> = proofs
            .map(|(address, (_, proof))| (*proof, *address))
            .collect();
        proofs.sort_unstable_by(|a, b| b.cmp(a));
        proofs.into_iter().map(|(_, address)| address).collect()
    }

    /// Removes all addresses of a revoked node.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.nodes.retain(|_, (at, _)| *at != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_new_proof_replaces_the_older_one() {
        let (a, b) = (NodeId([1; 32]), NodeId([2; 32]));
        let mut proven = ProvenAddresses::default();
        assert_eq!(proven.record(at(1), a), None);
        assert_eq!(proven.record(at(2), a), None);
        assert_eq!(proven.record(at(1), a), None);
        assert_eq!(proven.addresses_of(a), [at(1), at(2)]);
        assert_eq!(proven.record(at(1), b), Some(a));
        assert_eq!(
            (proven.node_at(at(1)), proven.addresses_of(a)),
            (Some(b), vec![at(2)])
        );
        proven.forget(b);
        assert_eq!(proven.node_at(at(1)), None);
    }

    #[test]
    fn the_oldest_proof_is_evicted() {
        let mut proven = ProvenAddresses::default();
        for port in 0..=ADDRESSES_MAX {
            proven.record(at(u16::try_from(port).unwrap()), NodeId([1; 32]));
        }
        assert_eq!(
            (
                proven.node_at(at(0)),
                proven.addresses_of(NodeId([1; 32])).len()
            ),
            (None, ADDRESSES_MAX)
        );
        assert!(proven.node_at(at(1)).is_some());
    }
}
