//! `mgp/kernel/shares/*`: the servers and tools that this node shares with its cluster. For the operator.

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! {
    "mgp/kernel/shares/add" => Add,
    "mgp/kernel/shares/remove" => Remove,
    "mgp/kernel/shares/list" => List,
}

/// `mgp/kernel/shares/add`: shares a server of this node, or some of its tools. Answers [`Changed`] when it
/// is on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Add {
    /// The server.
    pub server: String,
    /// The audience: `cluster`, or `node:` and a node's name or id.
    pub to: String,
    /// The server's own name of a tool, or a prefix and `*`; all tools if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// The tools need not exist yet.
    #[serde(default)]
    pub yet_unknown: bool,
}

/// `mgp/kernel/shares/remove`: removes shares. Answers [`Changed`] when it is on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    /// The server.
    pub server: String,
    /// The audience; every one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The rule with this pattern; all rules if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
}

/// `mgp/kernel/shares/list`; answers [`Shares`].
#[derive(Debug)]
pub struct List;

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The server.
    pub server: String,
    /// `cluster`, or `node:` and the node's name.
    pub to: String,
    /// The pattern; `*` for all.
    pub tools: String,
    /// The number of matching tools; `None` before its server has listed its tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub means: Option<u64>,
    /// Why it has no effect, with the fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The answer to `mgp/kernel/shares/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// Sorted by server.
    pub shares: Vec<Share>,
}

/// The answer to `mgp/kernel/shares/add` and `mgp/kernel/shares/remove`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The new or removed rules; empty if nothing changed.
    pub changed: Vec<Share>,
    /// Notes, such as missing grants for agents of other nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
