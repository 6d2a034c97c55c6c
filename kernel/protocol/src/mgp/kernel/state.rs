//! `mgp/kernel/state/*`: the checkpoints of stateful tools (MCPL §8). For the operator.

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! {
    "mgp/kernel/state/log" => Log,
    "mgp/kernel/state/rollback" => Rollback,
}

/// `mgp/kernel/state/log`; answers [`StateHistoryList`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// Whose tools they are.
    pub server: String,
    /// Of this feature set alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// Of this agent alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// `mgp/kernel/state/rollback`: brings one state back to an earlier checkpoint. Answers
/// [`RolledBack`](crate::mcpl::valid_state::RollbackResult); invalid params, in words, where it could be more than one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// Whose tools they are.
    pub server: String,
    /// Where to go back to.
    pub checkpoint: String,
    /// The feature set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// The agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The session, or the beginning of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// Answer of `mgp/kernel/state/log`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateHistoryList {
    /// Whose tools they are.
    pub server_id: String,
    /// By feature set, agent and session.
    pub states: Vec<StateHistory>,
}

/// One state, and how it came to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateHistory {
    /// The feature set.
    pub feature_set: String,
    /// Whose it is; everybody's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Of which session alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// When that session ended, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// The oldest first.
    pub checkpoints: Vec<CheckpointEntry>,
    /// How many older ones were taken out for room.
    pub pruned: u64,
    /// What they take, in bytes.
    pub bytes: u64,
}

/// One checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointEntry {
    /// The server's own id of it.
    pub checkpoint: String,
    /// The one it came from, as the server said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The place of that one in this list; absent where it is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_at: Option<usize>,
    /// When it was kept, RFC 3339.
    pub at: String,
    /// Length of the state; absent where the server keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The next call goes on from here.
    pub current: bool,
}
