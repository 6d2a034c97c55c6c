//! Addresses of relayed links: each maps to a node and a relay, and is valid at this endpoint alone.

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddr};

use mgp_protocol::ids::NodeId;

/// Mapped ends: a few relays for each node of a large cluster. The least recently used one is replaced.
const ADDRESSES_MAX: usize = 1024;

/// The discard prefix (RFC 6666): no machine has such an address.
const NETWORK: u128 = 0x0100 << 112;

/// The port of all of them: QUIC does not dial port 0.
const PORT: u16 = 1;

/// A node and its relay.
type RelayedEnds = (NodeId, NodeId);

/// The addresses in use. Numbers are not reused.
#[derive(Debug, Default)]
pub(super) struct RelayAddresses {
    numbers: HashMap<RelayedEnds, u64>,
    ends: HashMap<u64, (RelayedEnds, u64)>,
    last: u64,
    uses: u64,
}

impl RelayAddresses {
    /// The address of a node through a relay.
    pub(super) fn address(&mut self, node: NodeId, relay: NodeId) -> SocketAddr {
        self.uses += 1;
        let ends = (node, relay);
        let number = match self.numbers.get(&ends) {
            Some(number) => *number,
            None => self.assign(ends),
        };
        self.ends.insert(number, (ends, self.uses));
        SocketAddr::from((Ipv6Addr::from(NETWORK | u128::from(number)), PORT))
    }

    /// The node and relay of an address.
    pub(super) fn resolve(&self, address: SocketAddr) -> Option<RelayedEnds> {
        let SocketAddr::V6(address) = address else {
            return None;
        };
        let number = u64::try_from(u128::from(*address.ip()) ^ NETWORK).ok()?;
        self.ends.get(&number).map(|(ends, _)| *ends)
    }

    fn assign(&mut self, ends: RelayedEnds) -> u64 {
        if self.ends.len() >= ADDRESSES_MAX {
            let oldest = self.ends.iter().min_by_key(|(_, (_, used))| *used);
            if let Some((number, ends)) = oldest.map(|(number, (ends, _))| (*number, *ends)) {
                self.ends.remove(&number);
                self.numbers.remove(&ends);
            }
        }
        self.last += 1;
        self.numbers.insert(ends, self.last);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_valid_until_the_table_is_full() {
        let mut addresses = RelayAddresses::default();
        let node = |n: usize| {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&n.to_be_bytes());
            NodeId(id)
        };
        let first = addresses.address(node(1), node(2));
        assert_eq!(addresses.resolve(first), Some((node(1), node(2))));
        assert_eq!(addresses.address(node(1), node(2)), first);
        assert_ne!(addresses.address(node(2), node(1)), first);
        assert_eq!(addresses.resolve("192.0.2.1:1".parse().unwrap()), None);
        assert_eq!(addresses.resolve("[::1]:1".parse().unwrap()), None);
        for n in 0..2 * ADDRESSES_MAX {
            addresses.address(node(n), node(3));
            addresses.address(node(1), node(2));
        }
        assert_eq!(addresses.ends.len(), ADDRESSES_MAX);
        assert_eq!(addresses.numbers.len(), ADDRESSES_MAX);
        assert_eq!(
            addresses.resolve(first),
            Some((node(1), node(2))),
            "it is in use"
        );
    }
}
