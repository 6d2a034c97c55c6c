//! Detects two running nodes with one key: a cloned machine, or a started copy of its files.
//!
//! Each start of a kernel has a random instance id. A restarted node changes from one instance to the next, and never
//! back. Only a response to a request proves that an instance runs; any other message may be late. So if a previous
//! instance answers a request that was sent after the next one was seen, both run, and neither is trusted until the node
//! has a new key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::ids::NodeId;

/// Instances remembered for each node. A clone of a node that restarts more often meanwhile is detected by its forked
/// log.
const PREVIOUS_MAX: usize = 64;

#[derive(Clone, Debug, Default, Hash)]
struct InstanceHistory {
    /// The instance that answered last.
    current: Option<LifeId>,
    previous: VecDeque<LifeId>,
    has_duplicate: bool,
}

/// The status of the instance that sent a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstanceStatus {
    /// It answered last.
    Current,
    /// It runs in place of an earlier one: requests sent until now prove nothing about others.
    New,
    /// It may have stopped: it has not answered a request.
    Unproven,
    /// A later instance has replaced it.
    Previous,
}

/// The instances of all nodes.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct NodeInstances(BTreeMap<NodeId, InstanceHistory>);

impl NodeInstances {
    /// Restores the nodes with duplicate keys after a start.
    #[must_use]
    pub(crate) fn new(duplicates: &BTreeSet<NodeId>) -> Self {
        let history = InstanceHistory {
            has_duplicate: true,
            ..InstanceHistory::default()
        };
        let nodes = duplicates.iter();
        Self(nodes.map(|node| (*node, history.clone())).collect())
    }

    /// Classifies a message. `is_response` is true if it answers a request that was sent after every other instance of
    /// the key was seen; other messages may be late.
    pub(crate) fn observe(
        &mut self,
        node: NodeId,
        instance: LifeId,
        is_response: bool,
    ) -> InstanceStatus {
        let history = self.0.entry(node).or_default();
        if history.current == Some(instance) {
            return InstanceStatus::Current;
        }
        if history.previous.contains(&instance) {
            history.has_duplicate |= is_response;
            return InstanceStatus::Previous;
        }
        if !is_response {
            return InstanceStatus::Unproven;
        }
        history.previous.extend(history.current.replace(instance));
        if history.previous.len() > PREVIOUS_MAX {
            history.previous.pop_front();
        }
        InstanceStatus::New
    }

    /// True for the instance that answered last.
    #[must_use]
    pub(crate) fn is_current(&self, node: NodeId, instance: LifeId) -> bool {
        self.0
            .get(&node)
            .is_some_and(|history| history.current == Some(instance))
    }

    /// True if two running nodes have this key.
    #[must_use]
    pub(crate) fn has_duplicate(&self, node: NodeId) -> bool {
        self.0
            .get(&node)
            .is_some_and(|history| history.has_duplicate)
    }

    /// The nodes whose keys were found to run twice.
    pub(crate) fn duplicates(&self) -> impl Iterator<Item = NodeId> {
        let duplicates = self.0.iter().filter(|(_, history)| history.has_duplicate);
        duplicates.map(|(node, _)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId([1; 32]);

    fn instance(n: u8) -> LifeId {
        LifeId([n; 16])
    }

    /// FED-053.
    #[test]
    fn a_restart_is_no_duplicate() {
        let mut instances = NodeInstances::default();
        for n in 0..100 {
            instances.observe(NODE, instance(n), true);
            // A late message of the previous instance.
            instances.observe(NODE, instance(n.saturating_sub(1)), false);
        }
        assert!(!instances.has_duplicate(NODE));
        assert_eq!(
            instances.observe(NODE, instance(98), false),
            InstanceStatus::Previous
        );
        assert_eq!(
            instances.observe(NODE, instance(99), true),
            InstanceStatus::Current
        );
    }

    /// This node started after both instances, and gets a late message of the first.
    #[test]
    fn a_late_message_of_an_unknown_instance_is_no_duplicate() {
        let mut instances = NodeInstances::default();
        assert_eq!(
            instances.observe(NODE, instance(1), false),
            InstanceStatus::Unproven
        );
        assert_eq!(
            instances.observe(NODE, instance(2), true),
            InstanceStatus::New
        );
        assert_eq!(
            instances.observe(NODE, instance(1), false),
            InstanceStatus::Unproven
        );
        assert_eq!(
            instances.observe(NODE, instance(2), true),
            InstanceStatus::Current
        );
        assert!(!instances.has_duplicate(NODE));
    }

    #[test]
    fn a_previous_instance_that_answers_is_a_duplicate() {
        let mut instances = NodeInstances::default();
        instances.observe(NODE, instance(1), true);
        instances.observe(NODE, instance(2), true);
        instances.observe(NODE, instance(1), true);
        assert!(instances.has_duplicate(NODE));
        instances.observe(NODE, instance(3), true);
        assert!(instances.has_duplicate(NODE), "only a new key clears it");
        let restarted = NodeInstances::new(&instances.duplicates().collect());
        assert!(
            restarted.has_duplicate(NODE),
            "a restart of this node does not"
        );
    }
}
