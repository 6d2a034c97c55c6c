//! All checkpoint trees of one server. Each server has its own, so a state cannot reach the wrong server and no
//! server uses another's capacity.

use std::collections::BTreeMap;

use mgp_protocol::ids::AgentId;

use super::checkpoint_tree::{CarriedState, Checkpoint, StateError, StateTree, TreeStep};
use super::record::{StateRecord, TreeChange, TreeKey};

/// Most trees of one server: more sessions than one machine's agents have open at once. Beyond it the tree whose
/// session ended first is evicted, and if none has ended, a new one is rejected.
pub(crate) const MAX_TREES: usize = 1024;
/// Most trees of one agent at one server, so that one agent does not use up those of all.
pub(crate) const MAX_TREES_OF_AGENT: usize = 256;
/// Total size of one server's trees, in bytes. Beyond it trees of ended sessions are evicted first, then the oldest
/// checkpoints; if only current ones are left, a new state is rejected.
pub(crate) const SERVER_BYTES: usize = 32 << 20;

/// No capacity for another tree.
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
    /// Replays these records.
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

    /// Their total size, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The state in the next call of this tree.
    #[must_use]
    pub fn carried_state(&self, key: &TreeKey) -> CarriedState {
        self.trees
            .get(key)
            .map_or(CarriedState::Nothing, StateTree::carried_state)
    }

    /// Checks that a tree exists, or that there is capacity for it.
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

    /// Checks the capacity for an evaluated step.
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

    /// Applies a new record, or replays a stored one.
    pub fn apply(&mut self, record: StateRecord) {
        let (key, happened) = record.into_parts();
        match happened {
            TreeChange::Step(TreeStep::Stay) => {}
            TreeChange::Step(step) => {
                let tree = self.trees.entry(key.clone()).or_default();
                let before = tree.bytes();
                tree.apply(step);
                // An ended session does not start again.
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

    /// The records that end the trees of this session.
    #[must_use]
    pub fn session_end_records(&self, agent: &AgentId, session: &str, at: u64) -> Vec<StateRecord> {
        let of = |key: &&TreeKey| {
            key.agent.as_ref() == Some(agent) && key.session.as_deref() == Some(session)
        };
        let keys = self.trees.keys().filter(of).cloned();
        keys.map(|tree| StateRecord::Ended { tree, at }).collect()
    }

    /// The records that end every session, as no session outlives the kernel; for a removed server (`gone`), all trees.
    #[must_use]
    pub fn all_end_records(&self, gone: bool, at: u64) -> Vec<StateRecord> {
        let open = |(key, tree): &(&TreeKey, &StateTree)| {
            (gone || key.session.is_some()) && tree.ended_at_ms.is_none()
        };
        let keys = self.trees.iter().filter(open).map(|(key, _)| key.clone());
        keys.map(|tree| StateRecord::Ended { tree, at }).collect()
    }

    /// The records that remove trees of sessions that ended more than `keep` milliseconds ago.
    #[must_use]
    pub fn expire_records(&self, now: u64, keep: u64) -> Vec<StateRecord> {
        let old = |ended: u64| now.saturating_sub(ended) >= keep;
        let old = |(_, tree): &(&TreeKey, &StateTree)| tree.ended_at_ms.is_some_and(old);
        let keys = self.trees.iter().filter(old).map(|(key, _)| key.clone());
        keys.map(|tree| StateRecord::Dropped { tree }).collect()
    }

    /// Records of the same trees, without pruned checkpoints.
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

    /// Evicts beyond the limits: first ended trees, in order of their end, then the oldest checkpoints of the largest
    /// tree. The tree that just grew keeps its current checkpoint.
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
