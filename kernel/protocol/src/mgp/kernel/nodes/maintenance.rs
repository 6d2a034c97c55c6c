//! `mgp/kernel/nodes/promote`, `demote`, `drain` and `forget`: what is done with a node over its life.

use serde::{Deserialize, Serialize};

use super::{Confirmations, Role};

/// `mgp/kernel/nodes/promote`: lets a node do more. Answers [`RoleChanged`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promote {
    /// The node.
    pub node: String,
    /// What it may do from now on; [`Role::Admin`] when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

/// `mgp/kernel/nodes/demote`: lets a node do less, for good under its key. Answers [`RoleChanged`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demote {
    /// The node; its name, or that of this one.
    pub node: String,
    /// What it may do from now on; [`Role::Member`] when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Also where a linked node runs a version that takes it for cut off.
    #[serde(default)]
    pub with_older: bool,
}

/// Answer of `mgp/kernel/nodes/promote` and `mgp/kernel/nodes/demote`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleChanged {
    /// All digits of the node's id.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// What it may do now.
    pub role: Role,
    /// Who knows.
    pub confirmed: Confirmations,
}

/// `mgp/kernel/nodes/drain`: this node takes no new call of another node's agents, until that is ended or its kernel is
/// started again. Answers [`Drained`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// It takes them again.
    #[serde(default)]
    pub end: bool,
}

/// Answer of `mgp/kernel/nodes/drain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// Whether it is drained.
    pub draining: bool,
    /// Calls of other nodes' agents that are under way here.
    pub calls: u64,
}

/// `mgp/kernel/nodes/forget`: lists nodes that left or were cut off no more, at this node. What the cluster knows of them
/// stays. Answers [`ForgetResult`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    /// Those of this name, this id or these words; all of them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Answer of `mgp/kernel/nodes/forget`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetResult {
    /// What they were called, with their words.
    pub nodes: Vec<String>,
}
