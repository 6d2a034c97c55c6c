//! `mgp/approvals/*`: what waits for a person. For the operator.

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
    /// The name of the question.
    pub id: String,
    /// For how long, in milliseconds; for good when absent. Only of a question about permissions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// These parts of the question only; all of it when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
}

/// `mgp/approvals/deny`; answers [`DecisionResult`] when the decision is on disk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deny {
    /// The name of the question.
    pub id: String,
    /// These parts of the question only; all of it when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// Not now: it goes on without, and the question stays open.
    #[serde(default)]
    pub later: bool,
}

/// `mgp/approvals/answer`: answers a question that takes a value. Answers [`DecisionResult`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The name of the question.
    pub id: String,
    /// The answer: one of the options, or any text where there are none.
    pub value: String,
}

/// What kind of question it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Permissions a server asks for.
    Permissions,
    /// A dangerous call that wants a person's consent.
    Confirmation,
    /// Tools that are not what they were when they were approved.
    Pins,
    /// A question a server asks of its client.
    Callback,
    /// A server that an agent registered, and whose code cannot be read before it runs.
    Registration,
    /// An action in a scope that no list decides about.
    Scope,
}

impl Subject {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Permissions => "permissions",
            Self::Confirmation => "confirmation",
            Self::Pins => "pins",
            Self::Callback => "callback",
            Self::Registration => "registration",
            Self::Scope => "scope",
        }
    }

    /// Whether an approval can be limited in time. What else is approved is one call or one definition.
    #[must_use]
    pub const fn can_expire(self) -> bool {
        match self {
            Self::Permissions => true,
            Self::Confirmation | Self::Pins | Self::Callback | Self::Registration | Self::Scope => {
                false
            }
        }
    }
}

/// One question that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name, for the answer.
    pub id: String,
    /// What kind it is.
    pub subject: Subject,
    /// The server that asks, or that it is about.
    pub server: Option<String>,
    /// The agent whose call waits.
    pub agent: Option<String>,
    /// What is asked, in one sentence.
    pub text: String,
    /// What to read before the answer, line by line.
    pub details: Vec<String>,
    /// What can be decided on its own.
    pub parts: Vec<String>,
    /// What `mgp/approvals/answer` takes: one of these, or any text where the list is empty. Absent where
    /// the question is yes or no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<String>>,
    /// Since when it waits, RFC 3339.
    pub since: String,
    /// When it is over without an answer, RFC 3339.
    pub until: Option<String>,
}

/// Answer of `mgp/approvals/list`, and the text of [`PENDING_URI`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingList {
    /// The longest first.
    pub pending: Vec<Entry>,
    /// The nodes that ask to join the cluster; their words are their names here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<WaitingNode>,
    /// The logins that servers want, by server; they are answered with `mgp logins add`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub logins: BTreeMap<String, PendingLogin>,
}

/// Answer of `mgp/approvals/approve` and `mgp/approvals/deny`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionResult {
    /// The name of the question.
    pub id: String,
    /// What it was about.
    pub text: String,
    /// What was decided.
    pub verdict: super::permission::Verdict,
    /// About which parts.
    pub parts: Vec<String>,
    /// The answer to a question that takes a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// When an approval ends, RFC 3339.
    pub until: Option<String>,
}
