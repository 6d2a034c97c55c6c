//! Where a node may be dialed: proven addresses first, then reported ones, then configured names. A hint only directs
//! a dial: the node that answers has to prove its key.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use mgp_protocol::federation::addresses::is_dialable;
use mgp_protocol::ids::NodeId;

use super::proven_addresses::ProvenAddresses;

/// Hints stored for each node and source; the newest are kept.
const HINTS_MAX: usize = 4;
/// Addresses tried in one dial.
pub(crate) const DIAL_TARGETS_MAX: usize = 8;

/// The possible addresses of one node.
#[derive(Debug, Default)]
struct NodeHints {
    /// Addresses from the node's own announcements.
    announced: Vec<SocketAddr>,
    /// Addresses reported by other members.
    reported: Vec<SocketAddr>,
}

/// All known addresses of nodes. Only those of pinned nodes are stored.
#[derive(Debug, Default)]
pub struct AddressHints {
    proven: ProvenAddresses,
    nodes: BTreeMap<NodeId, NodeHints>,
    /// Configured names, and the node that answered there last.
    names: BTreeMap<String, Option<NodeId>>,
}

impl AddressHints {
    /// Sets the pinned nodes; hints of others are dropped.
    pub fn set_pinned(&mut self, pinned: impl Iterator<Item = NodeId>) {
        let mut before = std::mem::take(&mut self.nodes);
        for node in pinned {
            let hints = before.remove(&node).unwrap_or_default();
            self.nodes.insert(node, hints);
        }
        for node in before.into_keys() {
            self.proven.forget(node);
            let answered = self.names.values_mut();
            for answer in answered.filter(|answer| **answer == Some(node)) {
                *answer = None;
            }
        }
    }

    /// Sets the configured names.
    pub fn set_names(&mut self, names: impl Iterator<Item = String>) {
        let before = std::mem::take(&mut self.names);
        let known = |name: &String| before.get(name).copied().flatten();
        self.names = names
            .map(|name| (known(&name), name))
            .map(|(at, name)| (name, at))
            .collect();
    }

    /// The node proved its key at this address.
    pub fn add_proven(&mut self, node: NodeId, address: SocketAddr) {
        if self.nodes.contains_key(&node) {
            self.proven.record(address, node);
        }
    }

    /// Records which node answered at the address of a name.
    pub fn record_answer(&mut self, name: &str, node: NodeId) {
        if let Some(answer) = self.names.get_mut(name) {
            *answer = Some(node);
        }
    }

    /// Adds an address from an announcement, which may be forged. True when it is new.
    pub fn add_announced(&mut self, node: NodeId, address: SocketAddr) -> bool {
        let hints = self.nodes.get_mut(&node);
        hints.is_some_and(|hints| push_front(&mut hints.announced, address))
    }

    /// Adds an address that a peer reports for the node. `by` is the peer's own address, unless it is linked through
    /// another node. True when it is new.
    pub fn add_reported(
        &mut self,
        by: Option<SocketAddr>,
        node: NodeId,
        address: SocketAddr,
    ) -> bool {
        // The loopback address of another machine is not this machine.
        if address.ip().is_loopback() && !by.is_some_and(|by| by.ip().is_loopback()) {
            return false;
        }
        let hints = self.nodes.get_mut(&node);
        hints.is_some_and(|hints| push_front(&mut hints.reported, address))
    }

    /// The addresses to dial for a node, the most likely first. Names of nodes that are linked already are left out.
    pub fn dial_targets(&self, node: NodeId, is_linked: impl Fn(NodeId) -> bool) -> Vec<String> {
        let hints = self.nodes.get(&node);
        let reported = hints
            .into_iter()
            .flat_map(|hints| hints.announced.iter().chain(&hints.reported));
        let proven = self.proven.addresses_of(node).into_iter().take(HINTS_MAX);
        let addresses = proven
            .chain(reported.copied())
            .map(|address| address.to_string());
        let is_confirmed = |answer: &Option<NodeId>| *answer == Some(node);
        let is_possible =
            |answer: &Option<NodeId>| !answer.is_some_and(&is_linked) && !is_confirmed(answer);
        let confirmed = self.names.iter().filter(|(_, answer)| is_confirmed(answer));
        let possible = self.names.iter().filter(|(_, answer)| is_possible(answer));
        let names = confirmed.chain(possible).map(|(name, _)| name.clone());
        let mut targets = Vec::new();
        for target in addresses.chain(names) {
            if targets.len() < DIAL_TARGETS_MAX && !targets.contains(&target) {
                targets.push(target);
            }
        }
        targets
    }
}

/// Moves the address to the front. True when it was not in the list.
fn push_front(known: &mut Vec<SocketAddr>, address: SocketAddr) -> bool {
    if !is_dialable(address) {
        return false;
    }
    let before = known.iter().position(|other| *other == address);
    if let Some(index) = before {
        known.remove(index);
    }
    known.insert(0, address);
    known.truncate(HINTS_MAX);
    before.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    fn pinned(nodes: &[NodeId]) -> AddressHints {
        let mut hints = AddressHints::default();
        hints.set_pinned(nodes.iter().copied());
        hints
    }

    const A: NodeId = NodeId([1; 32]);
    const B: NodeId = NodeId([2; 32]);

    #[test]
    fn proven_addresses_come_first_and_names_last() {
        let mut hints = pinned(&[A, B]);
        hints.set_names(["a.example:1".to_owned(), "b.example:1".to_owned()].into_iter());
        assert!(hints.add_announced(A, at(1)));
        assert!(!hints.add_announced(A, at(1)));
        assert!(hints.add_reported(Some(at(9)), A, at(2)));
        hints.add_proven(A, at(3));
        let text = |port| at(port).to_string();
        let mut expected = vec![text(3), text(1), text(2)];
        expected.extend(["a.example:1".to_owned(), "b.example:1".to_owned()]);
        assert_eq!(hints.dial_targets(A, |_| false), expected);
        hints.record_answer("b.example:1", A);
        hints.record_answer("a.example:1", B);
        expected.swap(3, 4);
        assert_eq!(hints.dial_targets(A, |_| false), expected);
        expected.pop();
        assert_eq!(
            hints.dial_targets(A, |node| node == B),
            expected,
            "b is linked"
        );
        // Names that stay keep who answered there.
        hints.set_names(["a.example:1".to_owned()].into_iter());
        assert_eq!(hints.dial_targets(A, |node| node == B), expected[..3]);
    }

    /// Hints of nodes that are not pinned are dropped.
    #[test]
    fn hints_are_bounded_and_only_for_pinned_nodes() {
        let mut hints = pinned(&[A]);
        assert!(!hints.add_announced(B, at(1)) && !hints.add_reported(Some(at(9)), B, at(1)));
        hints.add_proven(B, at(1));
        assert!(hints.dial_targets(B, |_| false).is_empty());
        for port in 1..100 {
            hints.add_announced(A, at(port));
            hints.add_reported(Some(at(9)), A, at(1000 + port));
            hints.add_proven(A, at(2000 + port));
        }
        let places = hints.dial_targets(A, |_| false);
        assert_eq!(places.len(), DIAL_TARGETS_MAX);
        assert_eq!(places[0], at(2099).to_string());
        assert_eq!(places[HINTS_MAX], at(99).to_string());
        assert!(!hints.add_announced(A, at(0)), "nobody is at port 0");
        hints.set_pinned(std::iter::once(B));
        hints.set_pinned(std::iter::once(A));
        assert!(
            hints.dial_targets(A, |_| false).is_empty(),
            "it was revoked"
        );
    }

    #[test]
    fn reported_loopback_addresses_of_other_machines_are_ignored() {
        let mut hints = pinned(&[A]);
        let own = SocketAddr::from(([127, 0, 0, 1], 4));
        assert!(!hints.add_reported(Some(at(9)), A, own));
        assert!(
            !hints.add_reported(None, A, own),
            "who is relayed may be anywhere"
        );
        assert!(hints.add_reported(Some(own), A, own));
    }
}
