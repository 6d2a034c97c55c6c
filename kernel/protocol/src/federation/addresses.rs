//! Verified addresses of nodes: hints for a node that has not found them yet.

use std::net::SocketAddr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::NodeId;

/// The most addresses in one message; more are sent in several messages.
pub const ADDRESSES_MAX: usize = 64;

/// Addresses of members, as verified by the handshakes of the sender's own links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddresses {
    /// One for each node; addresses that cannot be dialed are dropped by the decoder.
    #[serde(deserialize_with = "bounded")]
    pub nodes: Vec<NodeAddress>,
}

/// The address of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddress {
    /// The node.
    pub node: NodeId,
    /// The address of its link listener.
    #[serde(serialize_with = "as_text", deserialize_with = "from_text")]
    pub address: SocketAddr,
}

/// True if an address can be dialed at all.
#[must_use]
pub fn is_dialable(address: SocketAddr) -> bool {
    let ip = address.ip();
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast()
}

fn bounded<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<NodeAddress>, D::Error> {
    let mut nodes = Vec::<NodeAddress>::deserialize(from)?;
    if nodes.len() > ADDRESSES_MAX {
        return Err(D::Error::invalid_length(
            nodes.len(),
            &"at most 64 addresses",
        ));
    }
    nodes.retain(|node| is_dialable(node.address));
    Ok(nodes)
}

fn as_text<S: Serializer>(address: &SocketAddr, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(address)
}

fn from_text<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::super::control::Control;
    use super::*;

    fn at(address: &str) -> NodeAddress {
        NodeAddress {
            node: NodeId([1; 32]),
            address: address.parse().unwrap(),
        }
    }

    fn encoded(nodes: Vec<NodeAddress>) -> Vec<u8> {
        Control::Addresses(NodeAddresses { nodes }).encode()
    }

    /// Undialable addresses are dropped, and the number of addresses is bounded.
    #[test]
    fn undialable_addresses_are_dropped_and_too_many_rejected() {
        let dialable = [at("192.0.2.1:4410"), at("[2001:db8::1]:1")];
        let undialable = ["0.0.0.0:1", "[::]:1", "224.0.0.251:5353", "192.0.2.1:0"];
        let mut all = dialable.to_vec();
        all.extend(undialable.map(at));
        let nodes = dialable.to_vec();
        let read = Control::Addresses(NodeAddresses { nodes });
        assert_eq!(Control::decode(&encoded(all)), Ok(read));
        let addresses = vec![dialable[0]; ADDRESSES_MAX];
        assert!(Control::decode(&encoded(addresses.clone())).is_ok());
        let too_many = [addresses, vec![dialable[0]]].concat();
        assert!(Control::decode(&encoded(too_many)).is_err());
    }
}
