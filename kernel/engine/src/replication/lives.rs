//! Two lives of one key: a machine that was cloned, or a copy of its files that was started beside it.
//!
//! Each start of a kernel has a random life. A node that was restarted goes from one life to the next and never
//! back. So when a life that was left answers a question asked after the next one was heard, both live, and
//! neither is believed until the node has a new key.

use std::collections::{BTreeMap, VecDeque};

use mgp_protocol::hex_id;
use mgp_protocol::ids::NodeId;

/// Lives remembered of each node. A clone that waits while its original is restarted more often than this is
/// noticed by its log instead.
const LEFT_MAX: usize = 64;

hex_id! {
    /// A start of a kernel: random.
    LifeId, 16
}

#[derive(Clone, Debug)]
struct Lives {
    now: LifeId,
    left: VecDeque<LifeId>,
    twice: bool,
}

/// The lives of all nodes that were heard.
#[derive(Clone, Debug, Default)]
pub struct NodeLives(BTreeMap<NodeId, Lives>);

impl NodeLives {
    /// A node was heard. `answers` is true when it answers a question that was asked after every other life of
    /// its key had been heard; without that, a message of a left life may just be late.
    /// True when this life is new.
    pub fn heard(&mut self, node: NodeId, life: LifeId, answers: bool) -> bool {
        let lives = self.0.entry(node).or_insert_with(|| Lives {
            now: life,
            left: VecDeque::new(),
            twice: false,
        });
        if lives.now == life {
            return false;
        }
        if lives.left.contains(&life) {
            lives.twice |= answers;
            return false;
        }
        let before = std::mem::replace(&mut lives.now, life);
        lives.left.push_back(before);
        if lives.left.len() > LEFT_MAX {
            lives.left.pop_front();
        }
        true
    }

    /// True when two lives of the node's key were found alive.
    #[must_use]
    pub fn is_twice(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(|lives| lives.twice)
    }

    /// True when this life of the node was left for another one.
    #[must_use]
    pub fn is_left(&self, node: NodeId, life: LifeId) -> bool {
        self.0
            .get(&node)
            .is_some_and(|lives| lives.left.contains(&life))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId([1; 32]);

    fn life(n: u8) -> LifeId {
        LifeId([n; 16])
    }

    #[test]
    fn a_restart_is_not_a_second_life() {
        let mut lives = NodeLives::default();
        for n in 0..100 {
            lives.heard(NODE, life(n), true);
            // Late messages of the one before.
            lives.heard(NODE, life(n.saturating_sub(1)), false);
        }
        assert!(!lives.is_twice(NODE));
        assert!(lives.is_left(NODE, life(98)) && !lives.is_left(NODE, life(99)));
    }

    #[test]
    fn a_life_that_answers_after_it_was_left_is_a_second_one() {
        let mut lives = NodeLives::default();
        lives.heard(NODE, life(1), true);
        lives.heard(NODE, life(2), true);
        lives.heard(NODE, life(1), true);
        assert!(lives.is_twice(NODE));
        lives.heard(NODE, life(3), true);
        assert!(lives.is_twice(NODE), "only a new key ends it");
    }
}
