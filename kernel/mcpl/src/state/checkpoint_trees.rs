//! All checkpoint trees of one server. Each server has its own, so a state cannot reach the wrong server and no
//! server uses another's capacity.

use std::collections::BTreeMap;

use mgp_protocol::ids::AgentId;

use super::checkpoint_tree::{CarriedState, Checkpoint, StateError, StateTree, TreeStep};
use super::record::{StateRecord, TreeChange, TreeKey};

/// Trees of one server. More sessions than one machine's agents have open at once; at the bound the one whose session
/// ended first goes, and where none has ended, a new one is refused.
pub(crate) const MAX_TREES: usize = 1024;
/// Trees of one agent at one server, so that one agent does not use up those of all.
pub(crate) const MAX_TREES_OF_AGENT: usize = 256;
/// What the trees of one server hold together, in bytes. At the bound first the trees of sessions that have ended go,
/// then the oldest checkpoints; where only current ones are left, a new state is refused.
pub(crate) const SERVER_BYTES: usize = 32 << 20;

/// No room for another tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{MAX_TREES} states of this server are in use, or {MAX_TREES_OF_AGENT} by this agent; end some sessions, or keep its state by agent"
)]
pub struct TreeLimitError;

/// The trees of one server.
#[derive(Clone, Debug, Default)]
pub struct StateTrees {
    trees: BTreeMap<TreeKey, StateTree>,
    bytes: usize,
}

impl StateTrees {
    /// The trees that these records make.
    #[must_use]
    pub fn from_records(records: Vec<StateRecord>) -> Self {
        let mut trees = Self::default();
        for record in records {
            trees.apply(record);
        }
        trees
    }

    /// All trees in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&TreeKey, &StateTree)> {
        self.trees.iter()
    }

    /// One tree.
    #[must_use]
    pub fn tree(&self, key: &TreeKey) -> Option<&StateTree> {
        self.trees.get(key)
    }

    /// What all of them take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the next call of this tree carries.
    #[must_use]
    pub fn carried_state(&self, key: &TreeKey) -> CarriedState {
        self.trees
            .get(key)
            .map_or(CarriedState::Nothing, StateTree::carried_state)
    }

    /// Whether a tree may be in use: it is there, or there is room for it.
    ///
    /// # Errors
    /// [`TreeLimitError`]
    pub fn check_capacity(&self, key: &TreeKey) -> Result<(), TreeLimitError> {
        if self.trees.contains_key(key) {
            return Ok(());
        }
        let live = |(_, tree): &(&TreeKey, &StateTree)| tree.ended_at_ms.is_none();
        let of_agent = self.trees.iter().filter(live);
        let of_agent = of_agent.filter(|(other, _)| other.agent == key.agent);
        if self.trees.iter().filter(live).count() < MAX_TREES
            && of_agent.count() < MAX_TREES_OF_AGENT
        {
            Ok(())
        } else {
            Err(TreeLimitError)
        }
    }

    /// Whether there is room for a step that was judged.
    ///
    /// # Errors
    /// [`StateError::Accept`]: the tree stays as it is.
    pub fn check_step(&self, key: &TreeKey, step: &TreeStep) -> Result<(), StateError> {
        let TreeStep::Grow(checkpoint) = step else {
            return Ok(());
        };
        let stays = |(other, tree): (&TreeKey, &StateTree)| match tree.ended_at_ms {
            None if other != key => tree.current().map_or(0, Checkpoint::bytes),
            Some(_) | None => 0,
        };
        let least: usize = self.trees.iter().map(stays).sum();
        if least + checkpoint.bytes() > SERVER_BYTES || self.check_capacity(key).is_err() {
            Err(StateError::Full)
        } else {
            Ok(())
        }
    }

    /// Carries out what was judged, or reads what was written down.
    pub fn apply(&mut self, record: StateRecord) {
        let (key, happened) = record.into_parts();
        match happened {
            TreeChange::Step(TreeStep::Stay) => {}
            TreeChange::Step(step) => {
                let tree = self.trees.entry(key.clone()).or_default();
                let before = tree.bytes();
                tree.apply(step);
                // A session that has ended does not begin again.
                tree.ended_at_ms = tree.ended_at_ms.filter(|_| key.session.is_some());
                self.bytes = self.bytes + tree.bytes() - before;
                self.evict(&key);
            }
            TreeChange::Ended(at) => {
                if let Some(tree) = self.trees.get_mut(&key) {
                    tree.ended_at_ms = Some(at);
                }
            }
            TreeChange::Dropped => self.drop_tree(&key),
        }
    }

    /// The records of the trees whose sessions end with this one.
    #[must_use]
    pub fn session_end_records(&self, agent: &AgentId, session: &str, at: u64) -> Vec<StateRecord> {
        let of = |key: &&TreeKey| {
            key.agent.as_ref() == Some(agent) && key.session.as_deref() == Some(session)
        };
        let keys = self.trees.keys().filter(of).cloned();
        keys.map(|tree| StateRecord::Ended { tree, at }).collect()
    }

    /// The records that end every session, as no session outlives the kernel; of a server that is not there any more
    /// (`gone`) those that end everything.
    #[must_use]
    pub fn all_end_records(&self, gone: bool, at: u64) -> Vec<StateRecord> {
        let open = |(key, tree): &(&TreeKey, &StateTree)| {
            (gone || key.session.is_some()) && tree.ended_at_ms.is_none()
        };
        let keys = self.trees.iter().filter(open).map(|(key, _)| key.clone());
        keys.map(|tree| StateRecord::Ended { tree, at }).collect()
    }

    /// The records that take out the trees of sessions that ended longer than `keep` milliseconds ago.
    #[must_use]
    pub fn expire_records(&self, now: u64, keep: u64) -> Vec<StateRecord> {
        let old = |ended: u64| now.saturating_sub(ended) >= keep;
        let old = |(_, tree): &(&TreeKey, &StateTree)| tree.ended_at_ms.is_some_and(old);
        let keys = self.trees.iter().filter(old).map(|(key, _)| key.clone());
        keys.map(|tree| StateRecord::Dropped { tree }).collect()
    }

    /// Records that make the same trees, without what was pruned.
    #[must_use]
    pub fn to_records(&self) -> Vec<StateRecord> {
        let mut records = Vec::new();
        for (key, tree) in &self.trees {
            for (checkpoint, _) in tree.lineage() {
                records.push(StateRecord::new_checkpoint(key.clone(), checkpoint));
            }
            let current = tree.current().map(|current| current.id.clone());
            records.extend(current.map(|id| StateRecord::Moved {
                tree: key.clone(),
                id,
            }));
            records.extend(tree.ended_at_ms.map(|at| StateRecord::Ended {
                tree: key.clone(),
                at,
            }));
        }
        records
    }

    fn drop_tree(&mut self, key: &TreeKey) {
        if let Some(tree) = self.trees.remove(key) {
            self.bytes -= tree.bytes();
        }
    }

    /// Takes out what is too much: first trees that have ended, the one that ended first before others, then the
    /// oldest checkpoints of the largest tree. The tree that just grew keeps where it stands.
    fn evict(&mut self, grown: &TreeKey) {
        while self.trees.len() > MAX_TREES || self.bytes > SERVER_BYTES {
            let ended = self.trees.iter().filter(|(key, _)| *key != grown);
            let ended = ended.filter_map(|(key, tree)| Some((tree.ended_at_ms?, key.clone())));
            if let Some((_, first)) = ended.min() {
                self.drop_tree(&first);
                continue;
            }
            let mut pruned = false;
            let mut by_size: Vec<_> = self.trees.iter_mut().collect();
            by_size.sort_by_key(|(_, tree)| std::cmp::Reverse(tree.bytes()));
            for (_, tree) in by_size {
                let before = tree.bytes();
                if tree.prune() {
                    self.bytes -= before - tree.bytes();
                    pruned = true;
                    break;
                }
            }
            if !pruned {
                break;
            }
        }
    }
}
