//! `mgp/audit/find`: searches the log by actor, target and time. For the operator.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Outcome;

/// `mgp/audit/find`: records that match all given members, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Find {
    /// The agent that is the actor or the target: `agent.alice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The server that is the target or the reporter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The tool, by its server's own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The trace, verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Outcome>,
    /// Not before this time, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// The most records; 100 if absent, and never more than 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Continue an earlier answer: its `next_cursor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The answer to `mgp/audit/find`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FindResult {
    /// Newest first, each with its `seq`.
    pub events: Vec<Box<RawValue>>,
    /// Set if there may be more; an answer may have a cursor and no events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The records up to this one are complete.
    pub complete_through: u64,
    /// The last record of the log at the time of the search.
    pub newest: u64,
    /// Why records may be missing, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
