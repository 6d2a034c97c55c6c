//! One tree of checkpoints (MCPL §8.2).
//!
//! A checkpoint never changes its parent, an id is never reused, and a parent must exist before its child. So a tree
//! has no cycle, whatever a server sends.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mgp_protocol::mcpl::state::ResultState;

use super::document::PatchError;
use super::patch;

/// Longest id of a checkpoint, in bytes: a hash or a UUID has 64 at most.
pub(crate) const MAX_ID: usize = 256;
/// Checkpoints of one tree; the oldest is evicted first. As many as a person looks through.
pub(crate) const MAX_CHECKPOINTS: usize = 256;
/// Total size of one tree's checkpoints, in bytes; the oldest is evicted first. Eight times the largest state.
pub(crate) const TREE_BYTES: usize = 4 << 20;
/// Bytes a checkpoint costs in addition to its texts.
const CHECKPOINT_OVERHEAD: usize = 128;

/// A state that a server can be rolled back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The server's own id.
    pub id: Arc<str>,
    /// Its parent, as reported by the server.
    pub parent: Option<Arc<str>>,
    /// When it was saved, in milliseconds since 1970.
    pub saved_at_ms: u64,
    /// The state as JSON text; `None` if the server stores it.
    pub data: Option<Arc<str>>,
}

impl Checkpoint {
    /// Its size in bytes.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        let length = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        self.id.len() + length(&self.parent) + length(&self.data) + CHECKPOINT_OVERHEAD
    }
}

/// The state in the next call of a tree (MCPL §8.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarriedState {
    /// No state yet.
    Nothing,
    /// `state`: the data, as JSON text.
    State(Arc<str>),
    /// `checkpoint`: its id.
    Checkpoint(Arc<str>),
}

/// The effect of a result on its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeStep {
    /// None: it names the current checkpoint.
    Stay,
    /// A new checkpoint.
    Grow(Checkpoint),
    /// Back, or to another branch.
    Move(Arc<str>),
}

/// Why a server's state is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Not the form of MCPL.
    #[error("the state in the result is not as MCPL has it: {0}")]
    Malformed(String),
    /// The id is invalid.
    #[error("a checkpoint's id is a text of 1 to {MAX_ID} bytes without control characters")]
    InvalidId,
    /// The id is another checkpoint's.
    #[error("checkpoint {0:?} is there already, and holds something else")]
    IdTaken(String),
    /// It is its own parent.
    #[error("checkpoint {0:?} cannot be its own parent")]
    OwnParent(String),
    /// `data` and `patch` together.
    #[error("it has `data` and `patch`, which say two things")]
    DataAndPatch,
    /// A patch without a parent.
    #[error("a patch needs a parent, and there is none")]
    NoParent,
    /// The parent is unknown, or was pruned.
    #[error("its parent {0:?} is not known, so the patch is not applied")]
    UnknownParent(String),
    /// The server stores the parent's data itself.
    #[error("of its parent {0:?} the kernel has no data to apply the patch to")]
    OpaqueParent(String),
    /// The patch cannot be applied.
    #[error("the patch is not applied: {0}")]
    Patch(PatchError),
    /// The data cannot be stored.
    #[error("the data is not kept: {0}")]
    Data(PatchError),
    /// The capacity is used up.
    #[error("the states of this server take all the room there is for one server")]
    Full,
}

/// The checkpoints of one server, feature set, agent and session.
#[derive(Clone, Debug, Default)]
pub struct StateTree {
    /// By increasing number.
    checkpoints: BTreeMap<u64, Checkpoint>,
    by_id: HashMap<Arc<str>, u64>,
    next: u64,
    current: Option<u64>,
    bytes: usize,
    pruned: u64,
    /// When its session ended, in milliseconds since 1970.
    pub ended_at_ms: Option<u64>,
}

impl StateTree {
    /// The state in the next call.
    #[must_use]
    pub(crate) fn carried_state(&self) -> CarriedState {
        match self.current() {
            None => CarriedState::Nothing,
            Some(Checkpoint {
                data: Some(data), ..
            }) => CarriedState::State(data.clone()),
            Some(checkpoint) => CarriedState::Checkpoint(checkpoint.id.clone()),
        }
    }

    /// The current checkpoint.
    #[must_use]
    pub fn current(&self) -> Option<&Checkpoint> {
        self.checkpoints.get(&self.current?)
    }

    /// True when it has this checkpoint.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// Size of its checkpoints, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of pruned checkpoints.
    #[must_use]
    pub fn pruned(&self) -> u64 {
        self.pruned
    }

    /// All checkpoints, the oldest first, each with the index of its parent, if it still exists.
    pub fn lineage(&self) -> impl Iterator<Item = (&Checkpoint, Option<usize>)> {
        self.checkpoints.iter().map(|(number, checkpoint)| {
            let parent = checkpoint.parent.as_ref();
            let parent = parent.and_then(|id| self.by_id.get(id));
            let earlier = parent.filter(|parent| *parent < number);
            let index = earlier.map(|parent| self.checkpoints.range(..parent).count());
            (checkpoint, index)
        })
    }

    /// The effect of a server's result at this time.
    ///
    /// # Errors
    /// [`StateError`]: the tree is unchanged.
    pub fn evaluate(&self, result: &ResultState<'_>, now_ms: u64) -> Result<TreeStep, StateError> {
        let id = &*result.checkpoint;
        let parent = result.parent.as_deref();
        if !is_id(id) || !parent.is_none_or(is_id) {
            return Err(StateError::InvalidId);
        }
        if parent == Some(id) {
            return Err(StateError::OwnParent(id.to_owned()));
        }
        let data = match (result.data, result.patch) {
            (Some(_), Some(_)) => return Err(StateError::DataAndPatch),
            (Some(data), None) => {
                Some(patch::normalize_state(data.get()).map_err(StateError::Data)?)
            }
            (None, Some(patch)) => Some(self.apply_patch(parent, patch.get())?),
            (None, None) => None,
        };
        if let Some(number) = self.by_id.get(id) {
            let there = self.checkpoints.get(number);
            let same =
                |there: &Checkpoint| data.is_none() || there.data.as_deref() == data.as_deref();
            return match there.is_some_and(same) {
                true if self.current == Some(*number) => Ok(TreeStep::Stay),
                true => Ok(TreeStep::Move(id.into())),
                false => Err(StateError::IdTaken(id.to_owned())),
            };
        }
        Ok(TreeStep::Grow(Checkpoint {
            id: id.into(),
            parent: parent.map(Into::into),
            saved_at_ms: now_ms,
            data: data.map(Into::into),
        }))
    }

    fn apply_patch(&self, parent: Option<&str>, patch: &str) -> Result<String, StateError> {
        let parent = parent.ok_or(StateError::NoParent)?;
        let known = self.by_id.get(parent);
        let known = known.and_then(|number| self.checkpoints.get(number));
        let known = known.ok_or_else(|| StateError::UnknownParent(parent.to_owned()))?;
        let data = known.data.as_deref();
        let data = data.ok_or_else(|| StateError::OpaqueParent(parent.to_owned()))?;
        patch::apply_patch(data, patch).map_err(StateError::Patch)
    }

    /// Applies an evaluated step, and prunes beyond the limits.
    pub(crate) fn apply(&mut self, step: TreeStep) {
        match step {
            TreeStep::Stay => {}
            TreeStep::Move(id) => {
                self.current = self.by_id.get(&id).copied().or(self.current);
            }
            TreeStep::Grow(checkpoint) => {
                self.bytes += checkpoint.bytes();
                self.by_id.insert(checkpoint.id.clone(), self.next);
                self.checkpoints.insert(self.next, checkpoint);
                self.current = Some(self.next);
                self.next += 1;
            }
        }
        while self.checkpoints.len() > MAX_CHECKPOINTS || self.bytes > TREE_BYTES {
            if !self.prune() {
                break;
            }
        }
    }

    /// Prunes the oldest checkpoint except the current one; false without one.
    pub(crate) fn prune(&mut self) -> bool {
        let current = self.current;
        let mut numbers = self.checkpoints.keys().copied();
        let Some(oldest) = numbers.find(|number| Some(*number) != current) else {
            return false;
        };
        if let Some(pruned) = self.checkpoints.remove(&oldest) {
            self.bytes -= pruned.bytes();
            self.by_id.remove(&pruned.id);
            self.pruned += 1;
        }
        true
    }
}

fn is_id(id: &str) -> bool {
    (1..=MAX_ID).contains(&id.len()) && !id.chars().any(char::is_control)
}
