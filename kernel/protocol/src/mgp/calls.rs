//! `mgp/calls/*`: what became of a call whose answer did not come.

use serde::{Deserialize, Serialize};

use super::audit::Outcome;
use super::request;
use crate::mcp::methods;
use crate::refusal::CallOutcome;

methods! {
    "mgp/calls/show" => Show,
}

request! {
    /// `mgp/calls/show`: for the operator, and for agents about calls of their own.
    Show {
        /// The call's id, which is its trace.
        call_id: String,
    }
}

/// Answer of `mgp/calls/show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallHistory {
    /// As asked for.
    pub call_id: String,
    /// Whether it took effect; unknown where that is so of any call with this id.
    pub outcome: CallOutcome,
    /// Why that is not known, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The records of it, oldest first: more than one where a caller gave one trace to several calls.
    pub records: Vec<CallRecord>,
}

/// A call as it stands in the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// The number of the record.
    pub seq: u64,
    /// When the call ended.
    pub timestamp: String,
    /// Who made it.
    pub actor: String,
    /// Its server; absent where no tool of that name was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
    /// The tool, under the name the server knows it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// How it ended.
    pub result: Outcome,
    /// Whether it took effect.
    pub outcome: CallOutcome,
    /// Why it did not end well, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The task that it goes on as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
}
