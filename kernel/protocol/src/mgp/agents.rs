//! `mgp/agents/*`: the agents that have a token of their own. For the operator.

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! {
    "mgp/agents/add" => Add,
    "mgp/agents/list" => List,
    "mgp/agents/remove" => Remove,
    "mgp/agents/token" => Token,
}

/// `mgp/agents/add`: makes an agent and its token. Answers [`Made`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Add {
    /// `alice` or `agent.alice`.
    pub name: String,
    /// The token is good for this long; for ever when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_secs: Option<u64>,
}

/// `mgp/agents/list`; answers `{"agents": [`[`Agent`]`, …]}`.
#[derive(Debug)]
pub struct List;

/// `mgp/agents/remove`: the token is good for nothing from now on, and what the agent has under way
/// ends. Answers the [`Agent`] there was.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    /// The agent's name.
    pub name: String,
}

/// `mgp/agents/token`: with `rotate` a new token in place of the one before: answers [`Made`], and what
/// the agent has under way ends. Without, answers the [`Agent`]; a token is never shown again.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// The agent's name.
    pub name: String,
    /// Make a new one.
    #[serde(default)]
    pub rotate: bool,
    /// The new one is good for this long; for ever when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_secs: Option<u64>,
}

/// One agent, as shown to the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// `agent.alice`.
    pub id: String,
    /// When it was added, RFC 3339.
    pub added_at: String,
    /// When its token was made, RFC 3339.
    pub token_made_at: String,
    /// From then on its token is good for nothing, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// It has expired.
    pub expired: bool,
}

/// A token that was just made. The only time it is shown.
#[derive(Serialize, Deserialize)]
pub struct Made {
    /// Whose it is.
    #[serde(flatten)]
    pub agent: Agent,
    /// For `Authorization: Bearer …`.
    pub token: String,
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Made")
            .field("agent", &self.agent)
            .finish_non_exhaustive()
    }
}
