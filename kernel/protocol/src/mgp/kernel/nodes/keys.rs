//! `mgp/kernel/nodes/rekey` and `mgp/kernel/nodes/recover`: a new key for a node, and a new admin for a
//! cluster.

use serde::{Deserialize, Serialize};

use super::Confirmations;

/// `mgp/kernel/nodes/rekey`: gives this node a new key, or records the new key of another node. Answers
/// [`Rekeyed`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rekey {
    /// The other node; this one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The new key of the other node, in 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// The answer to `mgp/kernel/nodes/rekey`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rekeyed {
    /// The node's id under its new key.
    pub id: String,
    /// The id as three words.
    pub words: String,
    /// The name of the node.
    pub name: String,
    /// The new key, for an admin to record if the node could not sign it itself. Not a secret.
    pub key: String,
    /// The cluster of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The names of nodes on which an admin can record the new key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admins: Vec<String>,
    /// True if the cluster accepts the new key: the old one, or an admin, has signed it.
    pub signed: bool,
    /// True if it takes effect with the next start of this kernel.
    pub restart: bool,
    /// The confirmations.
    pub confirmed: Confirmations,
}

/// `mgp/kernel/nodes/recover`: makes this node an admin by the recovery key of the cluster. Answers
/// [`Recovered`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recover {
    /// The printed key; white space and case do not matter. A secret.
    pub key: String,
    /// Lost nodes to cut off at the same time: nothing is confirmed while they are waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

impl std::fmt::Debug for Recover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recover")
            .field("without", &self.without)
            .finish_non_exhaustive()
    }
}

/// The answer to `mgp/kernel/nodes/recover`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The cluster.
    pub cluster: String,
    /// The name of this node, now an admin.
    pub name: String,
    /// The nodes that were cut off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}
