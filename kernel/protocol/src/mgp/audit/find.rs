//! `mgp/audit/find`: records of the log by who, what and when. For the operator.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Outcome;

/// `mgp/audit/find`: records that are all of what is said here, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Find {
    /// An agent that did it, or was given or denied something: `agent.alice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// A server that it was done to, or that reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// A tool, under the name its server knows it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// A trace, as it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Outcome>,
    /// Not before this moment, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// At most this many; 100 when absent, and never more than 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Go on where an answer ended: its `next_cursor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Answer of `mgp/audit/find`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FindResult {
    /// Newest first, each with its `seq`.
    pub events: Vec<Box<RawValue>>,
    /// There may be more; an answer may have one and no events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Nothing is missing among the records up to this one.
    pub complete_through: u64,
    /// The last record of the log when this was asked.
    pub newest: u64,
    /// Why something may be missing, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
