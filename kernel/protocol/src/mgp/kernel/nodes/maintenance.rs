//! `mgp/kernel/nodes/promote`, `demote`, `drain` and `forget`: maintenance of nodes.

use serde::{Deserialize, Serialize};

use super::{Confirmations, Role};

/// `mgp/kernel/nodes/promote`: gives a node a role with more rights. Answers [`RoleChanged`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promote {
    /// The node.
    pub node: String,
    /// Its new role; [`Role::Admin`] if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

/// `mgp/kernel/nodes/demote`: gives a node a role with fewer rights, permanently under its key. Answers
/// [`RoleChanged`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demote {
    /// The node; this one's name for this node.
    pub node: String,
    /// Its new role; [`Role::Member`] if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Proceed even if a linked node runs a version that reads it as a cut-off.
    #[serde(default)]
    pub with_older: bool,
}

/// The answer to `mgp/kernel/nodes/promote` and `mgp/kernel/nodes/demote`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleChanged {
    /// The whole id of the node.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its new role.
    pub role: Role,
    /// The confirmations.
    pub confirmed: Confirmations,
}

/// `mgp/kernel/nodes/drain`: this node rejects new calls of other nodes' agents, until that is ended or its
/// kernel is restarted. Answers [`Drained`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// Accept calls again.
    #[serde(default)]
    pub end: bool,
}

/// The answer to `mgp/kernel/nodes/drain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// True while it drains.
    pub draining: bool,
    /// The number of in-flight calls of other nodes' agents.
    pub calls: u64,
}

/// `mgp/kernel/nodes/forget`: hides nodes that left or were cut off from the lists of this node. The
/// cluster's logs are unchanged. Answers [`ForgetResult`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    /// The nodes with this name, id or words; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// The answer to `mgp/kernel/nodes/forget`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetResult {
    /// Their former names, with their words.
    pub nodes: Vec<String>,
}
