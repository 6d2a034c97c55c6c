//! `mgp/approvals/*`: pending entries that need a person's decision. For the operator.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::kernel::nodes::WaitingNode;
use super::servers::PendingLogin;
use crate::mcp::methods;

methods! {
    "mgp/approvals/list" => List,
    "mgp/approvals/approve" => Approve,
    "mgp/approvals/deny" => Deny,
    "mgp/approvals/answer" => Answer,
}

/// The list as a resource, for the operator's own connections.
pub const PENDING_URI: &str = "mgp://kernel/pending";

/// `mgp/approvals/list`; answers [`PendingList`].
#[derive(Debug)]
pub struct List;

/// `mgp/approvals/approve`; answers [`DecisionResult`] when the decision is on disk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approve {
    /// The id of the entry.
    pub id: String,
    /// The duration of the approval, in milliseconds; unlimited if absent. Only for permissions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// Only these parts of the entry; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
}

/// `mgp/approvals/deny`; answers [`DecisionResult`] when the decision is on disk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deny {
    /// The id of the entry.
    pub id: String,
    /// Only these parts of the entry; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// Postpone: continue without a decision, and keep the entry pending.
    #[serde(default)]
    pub later: bool,
}

/// `mgp/approvals/answer`: answers an entry that needs a value. Answers [`DecisionResult`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The id of the entry.
    pub id: String,
    /// The answer: one of the options, or any text if there are none.
    pub value: String,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Requested permissions of a server.
    Permissions,
    /// A dangerous call that needs a person's confirmation.
    Confirmation,
    /// Tools whose definitions differ from the approved ones.
    Pins,
    /// A callback of a server to its client.
    Callback,
    /// A server that an agent registered, and whose code cannot be checked before it runs.
    Registration,
    /// An action in a scope that no list covers.
    Scope,
    /// A result with text that reads like instructions.
    Result,
}

impl Subject {
    /// The value on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Permissions => "permissions",
            Self::Confirmation => "confirmation",
            Self::Pins => "pins",
            Self::Callback => "callback",
            Self::Registration => "registration",
            Self::Scope => "scope",
            Self::Result => "result",
        }
    }

    /// True if an approval can be limited in time. Other approvals are for one call or one definition.
    #[must_use]
    pub const fn can_expire(self) -> bool {
        match self {
            Self::Permissions => true,
            Self::Confirmation
            | Self::Pins
            | Self::Callback
            | Self::Registration
            | Self::Scope
            | Self::Result => false,
        }
    }
}

/// One pending entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// Its kind.
    pub subject: Subject,
    /// The server that requests it, or that it concerns.
    pub server: Option<String>,
    /// The agent whose call waits.
    pub agent: Option<String>,
    /// The summary, in one sentence.
    pub text: String,
    /// The details, line by line.
    pub details: Vec<String>,
    /// The parts that can be decided separately.
    pub parts: Vec<String>,
    /// The values for `mgp/approvals/answer`; any text if the list is empty. Absent if the entry is
    /// approved or denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<String>>,
    /// When it was created, RFC 3339.
    pub since: String,
    /// When it expires without a decision, RFC 3339.
    pub until: Option<String>,
}

/// The answer to `mgp/approvals/list`, and the text of [`PENDING_URI`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingList {
    /// The entries, oldest first.
    pub pending: Vec<Entry>,
    /// The nodes that request to join the cluster; their words are their ids here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<WaitingNode>,
    /// The pending logins by server; answered with `mgp logins add`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub logins: BTreeMap<String, PendingLogin>,
}

/// The answer to `mgp/approvals/approve` and `mgp/approvals/deny`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionResult {
    /// The id of the entry.
    pub id: String,
    /// The summary of the entry.
    pub text: String,
    /// The decision.
    pub verdict: super::permission::Verdict,
    /// The decided parts.
    pub parts: Vec<String>,
    /// The answer to an entry that needs a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// When the approval expires, RFC 3339.
    pub until: Option<String>,
}
