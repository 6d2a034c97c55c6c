//! Where nodes were proven to be: hints for a node that has yet to find them.

use std::net::SocketAddr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::NodeId;

/// Most addresses in one message; more go in several.
pub const ADDRESSES_MAX: usize = 64;

/// Addresses of members, as the handshakes of the sender's own links proved them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddresses {
    /// One for each node; those nobody can dial are left out when they are read.
    #[serde(deserialize_with = "bounded")]
    pub nodes: Vec<NodeAddress>,
}

/// Where one node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddress {
    /// The node.
    pub node: NodeId,
    /// Where it takes links.
    #[serde(serialize_with = "as_text", deserialize_with = "of_text")]
    pub address: SocketAddr,
}

/// Whether somebody could be there at all.
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

fn of_text<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
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

    fn told(nodes: Vec<NodeAddress>) -> Vec<u8> {
        Control::Addresses(NodeAddresses { nodes }).encode()
    }

    /// What nobody can dial leads nowhere, and no message fills a table.
    #[test]
    fn an_address_nobody_can_dial_is_left_out_and_too_many_are_refused() {
        let good = [at("192.0.2.1:4410"), at("[2001:db8::1]:1")];
        let bad = ["0.0.0.0:1", "[::]:1", "224.0.0.251:5353", "192.0.2.1:0"];
        let mut all = good.to_vec();
        all.extend(bad.map(at));
        let nodes = good.to_vec();
        let read = Control::Addresses(NodeAddresses { nodes });
        assert_eq!(Control::decode(&told(all)), Ok(read));
        let many = vec![good[0]; ADDRESSES_MAX];
        assert!(Control::decode(&told(many.clone())).is_ok());
        let beyond = [many, vec![good[0]]].concat();
        assert!(Control::decode(&told(beyond)).is_err());
    }
}
