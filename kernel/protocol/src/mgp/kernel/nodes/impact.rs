//! `mgp/kernel/nodes/impact`: the effects of cutting a node off, to be reviewed before.

use serde::{Deserialize, Serialize};

use super::{Role, SharedServer};

/// The most listed entries of each list; further ones are counted.
pub const IMPACT_NAMED: usize = 20;

/// `mgp/kernel/nodes/impact`: the effects of `mgp/kernel/nodes/revoke`. Changes nothing. Answers
/// [`RevokeImpact`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Impact {
    /// The node.
    pub node: String,
}

/// The answer to `mgp/kernel/nodes/impact`. Each list has at most [`IMPACT_NAMED`] entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeImpact {
    /// The whole id of the node.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its id as three words.
    pub words: String,
    /// Its role.
    pub role: Role,
    /// The grants of its agents, as `AGENT@NODE: PLACE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub granted_to: Vec<String>,
    /// The number of these grants.
    #[serde(default)]
    pub granted_to_count: u64,
    /// The grants for its servers, in the same form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub granted_at: Vec<String>,
    /// The number of these grants.
    #[serde(default)]
    pub granted_at_count: u64,
    /// The servers that this node shares with it only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_with: Vec<String>,
    /// The servers it shares with this node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<SharedServer>,
}
