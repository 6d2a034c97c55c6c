//! `mgp/kernel/shares/*`: what this node shares with the others of its cluster. For the operator.

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
    /// With whom: `cluster`, or `node:` and a node's name or id.
    pub to: String,
    /// The server's own name of a tool, or the beginning of several and `*`; all of them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// The tools need not be there yet.
    #[serde(default)]
    pub yet_unknown: bool,
}

/// `mgp/kernel/shares/remove`: ends what is shared. Answers [`Changed`] when it is on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    /// The server.
    pub server: String,
    /// With whom no more; with nobody when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The rule of just this pattern; all of them when absent.
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
    /// The pattern; `*` is all.
    pub tools: String,
    /// How many tools it means now; `None` while its server has listed none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub means: Option<u64>,
    /// What keeps it from being of use, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Answer of `mgp/kernel/shares/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// By server.
    pub shares: Vec<Share>,
}

/// Answer of `mgp/kernel/shares/add` and `mgp/kernel/shares/remove`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The rules that are new, or at an end; empty where all was so already.
    pub changed: Vec<Share>,
    /// What is worth knowing: nobody of other nodes may call it yet, and how that is granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
