//! Two lives of one key: a machine that was cloned, or a copy of its files that was started beside it.
//!
//! Each start of a kernel has a random life. A node that was restarted goes from one life to the next and never
//! back. Only an answer to a question proves which one lives: what else a life says that is not known may be late.
//! So when a life that was left answers a question asked after the next one was heard, both live, and neither is
//! believed until the node has a new key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::ids::NodeId;

/// Lives remembered of each node. A clone that waits while its original is restarted more often than this is
/// noticed by its log instead.
const PREVIOUS_MAX: usize = 64;

#[derive(Clone, Debug, Default, Hash)]
struct InstanceHistory {
    /// The one that answered last.
    current: Option<LifeId>,
    previous: VecDeque<LifeId>,
    has_duplicate: bool,
}

/// What is known of the life that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstanceStatus {
    /// It is the one that lives.
    Current,
    /// It lives, and is not the one that did before: no question that was asked until now proves another one.
    New,
    /// It is not known whether it lives: an answer of it would prove it.
    Unproven,
    /// The node has left it.
    Previous,
}

/// The lives of all nodes that were heard.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct NodeInstances(BTreeMap<NodeId, InstanceHistory>);

impl NodeInstances {
    /// After a start, with the nodes of which two lives were found before.
    #[must_use]
    pub(crate) fn new(twice: &BTreeSet<NodeId>) -> Self {
        let lives = |node: &NodeId| {
            let twice = true;
            (
                *node,
                InstanceHistory {
                    has_duplicate: twice,
                    ..InstanceHistory::default()
                },
            )
        };
        Self(twice.iter().map(lives).collect())
    }

    /// A node was heard. `answers` is true when it answers a question that was asked after every other life of
    /// its key had been heard; without that, a message may just be late.
    pub(crate) fn observe(&mut self, node: NodeId, life: LifeId, answers: bool) -> InstanceStatus {
        let lives = self.0.entry(node).or_default();
        if lives.current == Some(life) {
            return InstanceStatus::Current;
        }
        if lives.previous.contains(&life) {
            lives.has_duplicate |= answers;
            return InstanceStatus::Previous;
        }
        if !answers {
            return InstanceStatus::Unproven;
        }
        lives.previous.extend(lives.current.replace(life));
        if lives.previous.len() > PREVIOUS_MAX {
            lives.previous.pop_front();
        }
        InstanceStatus::New
    }

    /// True for the life that answered last.
    #[must_use]
    pub(crate) fn is_current(&self, node: NodeId, life: LifeId) -> bool {
        self.0
            .get(&node)
            .is_some_and(|lives| lives.current == Some(life))
    }

    /// True when two lives of the node's key were found alive.
    #[must_use]
    pub(crate) fn has_duplicate(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(|lives| lives.has_duplicate)
    }

    /// The nodes of which two lives were found alive.
    pub(crate) fn duplicates(&self) -> impl Iterator<Item = NodeId> {
        let twice = self.0.iter().filter(|(_, lives)| lives.has_duplicate);
        twice.map(|(node, _)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId([1; 32]);

    fn life(n: u8) -> LifeId {
        LifeId([n; 16])
    }

    /// FED-053.
    #[test]
    fn a_restart_is_not_a_second_life() {
        let mut lives = NodeInstances::default();
        for n in 0..100 {
            lives.observe(NODE, life(n), true);
            // Late messages of the one before.
            lives.observe(NODE, life(n.saturating_sub(1)), false);
        }
        assert!(!lives.has_duplicate(NODE));
        assert_eq!(
            lives.observe(NODE, life(98), false),
            InstanceStatus::Previous
        );
        assert_eq!(lives.observe(NODE, life(99), true), InstanceStatus::Current);
    }

    /// Whoever started later than both never heard of the first life, and hears of it last.
    #[test]
    fn a_late_message_of_a_life_that_was_never_heard_is_no_second_one() {
        let mut lives = NodeInstances::default();
        assert_eq!(
            lives.observe(NODE, life(1), false),
            InstanceStatus::Unproven
        );
        assert_eq!(lives.observe(NODE, life(2), true), InstanceStatus::New);
        assert_eq!(
            lives.observe(NODE, life(1), false),
            InstanceStatus::Unproven
        );
        assert_eq!(lives.observe(NODE, life(2), true), InstanceStatus::Current);
        assert!(!lives.has_duplicate(NODE));
    }

    #[test]
    fn a_life_that_answers_after_it_was_left_is_a_second_one() {
        let mut lives = NodeInstances::default();
        lives.observe(NODE, life(1), true);
        lives.observe(NODE, life(2), true);
        lives.observe(NODE, life(1), true);
        assert!(lives.has_duplicate(NODE));
        lives.observe(NODE, life(3), true);
        assert!(lives.has_duplicate(NODE), "only a new key ends it");
        let other_start = NodeInstances::new(&lives.duplicates().collect());
        assert!(
            other_start.has_duplicate(NODE),
            "nor does a start of this node"
        );
    }
}
