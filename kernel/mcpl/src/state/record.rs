//! Journal records of one server's trees, in order. A journal entry is shorter than a state may be, so a record is
//! split into pieces.

use std::sync::Arc;

use mgp_engine::store::journal::PAYLOAD_MAX;
use mgp_protocol::ids::AgentId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::checkpoint_tree::{Checkpoint, TreeStep};

/// Identifies a tree at one server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TreeKey {
    /// The feature set, by the server's own name.
    pub set: Arc<str>,
    /// The agent; `None` if all agents share the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// The agent's session; `None` if all of its sessions share the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Arc<str>>,
}

/// A change of a tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateRecord {
    /// A new checkpoint.
    Grown(GrownRecord),
    /// The current checkpoint changed.
    Moved {
        /// Which tree.
        tree: TreeKey,
        /// Where it stands.
        id: Arc<str>,
    },
    /// Its session ended.
    Ended {
        /// Which tree.
        tree: TreeKey,
        /// When, in milliseconds since 1970.
        at: u64,
    },
    /// The tree was removed.
    Dropped {
        /// Which tree.
        tree: TreeKey,
    },
}

/// A new checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrownRecord {
    tree: TreeKey,
    id: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<Arc<str>>,
    at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

/// First byte of a piece: it begins a record.
const BEGINS: u8 = 1;
/// First byte of a piece: it ends one.
const ENDS: u8 = 2;

impl StateRecord {
    /// The record of a step; `None` if it changes nothing.
    #[must_use]
    pub fn from_step(tree: &TreeKey, step: &TreeStep) -> Option<Self> {
        let tree = tree.clone();
        match step {
            TreeStep::Stay => None,
            TreeStep::Move(id) => Some(Self::Moved {
                tree,
                id: id.clone(),
            }),
            TreeStep::Grow(checkpoint) => Some(Self::new_checkpoint(tree, checkpoint)),
        }
    }

    /// A checkpoint of this tree.
    #[must_use]
    pub(crate) fn new_checkpoint(tree: TreeKey, checkpoint: &Checkpoint) -> Self {
        let raw = |data: &Arc<str>| RawValue::from_string(data.to_string()).ok();
        Self::Grown(GrownRecord {
            tree,
            id: checkpoint.id.clone(),
            parent: checkpoint.parent.clone(),
            at: checkpoint.saved_at_ms,
            data: checkpoint.data.as_ref().and_then(raw),
        })
    }

    /// The tree and its change.
    pub(super) fn into_parts(self) -> (TreeKey, TreeChange) {
        match self {
            Self::Grown(grown) => (
                grown.tree,
                TreeChange::Step(TreeStep::Grow(Checkpoint {
                    id: grown.id,
                    parent: grown.parent,
                    saved_at_ms: grown.at,
                    data: grown.data.map(|data| data.get().into()),
                })),
            ),
            Self::Moved { tree, id } => (tree, TreeChange::Step(TreeStep::Move(id))),
            Self::Ended { tree, at } => (tree, TreeChange::Ended(at)),
            Self::Dropped { tree } => (tree, TreeChange::Dropped),
        }
    }

    /// The journal entries, to be appended together.
    #[must_use]
    pub fn to_pieces(&self) -> Vec<Vec<u8>> {
        let text = serde_json::to_vec(self).expect("a record is always JSON");
        let mut pieces: Vec<Vec<u8>> = text
            .chunks(PAYLOAD_MAX - 1)
            .map(|piece| [&[0], piece].concat())
            .collect();
        if let Some(first) = pieces.first_mut() {
            first[0] |= BEGINS;
        }
        if let Some(last) = pieces.last_mut() {
            last[0] |= ENDS;
        }
        pieces
    }

    /// The records of these entries. Incomplete ones were never acknowledged and are skipped, as are entries of unknown
    /// form.
    #[must_use]
    pub fn from_entries(entries: &[Vec<u8>]) -> Vec<Self> {
        let (mut records, mut text) = (Vec::new(), Vec::new());
        for entry in entries {
            let Some((flags, piece)) = entry.split_first() else {
                continue;
            };
            if flags & BEGINS != 0 {
                text.clear();
            }
            text.extend_from_slice(piece);
            if flags & ENDS != 0 {
                records.extend(serde_json::from_slice(&text).ok());
                text.clear();
            }
        }
        records
    }
}

/// A change, without its tree.
pub(super) enum TreeChange {
    Step(TreeStep),
    Ended(u64),
    Dropped,
}
