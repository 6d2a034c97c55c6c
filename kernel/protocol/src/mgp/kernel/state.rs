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
    /// The server.
    pub server: String,
    /// Only this feature set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// Only this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// `mgp/kernel/state/rollback`: returns one state to an earlier checkpoint. Answers
/// [`RollbackResult`](crate::mcpl::valid_state::RollbackResult); invalid params, with a message, if the
/// state is ambiguous.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The server.
    pub server: String,
    /// The checkpoint to return to.
    pub checkpoint: String,
    /// The feature set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// The agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The session, or a prefix of its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// The answer to `mgp/kernel/state/log`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateHistoryList {
    /// The server.
    pub server_id: String,
    /// Sorted by feature set, agent and session.
    pub states: Vec<StateHistory>,
}

/// One state with its history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateHistory {
    /// The feature set.
    pub feature_set: String,
    /// Its agent; shared by all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Its session, if it is specific to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// When that session ended, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Oldest first.
    pub checkpoints: Vec<CheckpointEntry>,
    /// The number of older checkpoints that were removed.
    pub pruned: u64,
    /// Their size, in bytes.
    pub bytes: u64,
}

/// One checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointEntry {
    /// The server's own id.
    pub checkpoint: String,
    /// The previous one, as reported by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The index of the previous one in this list; absent if it is not listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_at: Option<usize>,
    /// When it was stored, RFC 3339.
    pub at: String,
    /// The length of the state; absent if the server stores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// True for the checkpoint of the next call.
    pub current: bool,
}
