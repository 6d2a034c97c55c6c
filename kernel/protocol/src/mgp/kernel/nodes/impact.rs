//! `mgp/kernel/nodes/impact`: what ends when a node is cut off, to be looked at before that is done.

use serde::{Deserialize, Serialize};

use super::{Role, SharedServer};

/// Entries of each list that are named; what is beyond is counted.
pub const IMPACT_NAMED: usize = 20;

/// `mgp/kernel/nodes/impact`: what ends with `mgp/kernel/nodes/revoke`. Changes nothing. Answers [`RevokeImpact`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Impact {
    /// The node.
    pub node: String,
}

/// Answer of `mgp/kernel/nodes/impact`. Each list has at most [`IMPACT_NAMED`] entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeImpact {
    /// All digits of the node's id.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// Its id as three words.
    pub words: String,
    /// What it may do.
    pub role: Role,
    /// What is granted to its agents, as `AGENT@NODE: PLACE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub granted_to: Vec<String>,
    /// How many there are.
    #[serde(default)]
    pub granted_to_count: u64,
    /// What is granted at its servers, in the same form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub granted_at: Vec<String>,
    /// How many there are.
    #[serde(default)]
    pub granted_at_count: u64,
    /// What this node shares with it alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_with: Vec<String>,
    /// What it shares with this node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<SharedServer>,
}
