//! Addresses of relayed links: each stands for a node and a relay, and means something at this endpoint alone.

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddr};

use mgp_protocol::ids::NodeId;

/// Ends that have an address: a few relays for each node of a large cluster. The one that was used longest ago makes
/// room.
const ADDRESSES_MAX: usize = 1024;

/// No machine has an address of this network (RFC 6666), so none is mistaken for one.
const NETWORK: u128 = 0x0100 << 112;

/// All of them have this port: nobody is dialed at port 0.
const PORT: u16 = 1;

/// A node, and the relay between.
type RelayedEnds = (NodeId, NodeId);

/// The addresses in use. A number is used once.
#[derive(Debug, Default)]
pub(super) struct RelayAddresses {
    numbers: HashMap<RelayedEnds, u64>,
    ends: HashMap<u64, (RelayedEnds, u64)>,
    last: u64,
    uses: u64,
}

impl RelayAddresses {
    /// The address that stands for these two.
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

    /// What an address stands for.
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
    fn an_address_stands_for_two_nodes_until_others_need_the_room() {
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
            "it is used"
        );
    }
}
