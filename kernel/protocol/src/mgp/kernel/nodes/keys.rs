//! `mgp/kernel/nodes/rekey` and `mgp/kernel/nodes/recover`: another key for a node, another admin for a cluster.

use serde::{Deserialize, Serialize};

use super::Confirmations;

/// `mgp/kernel/nodes/rekey`: this node gets another key, or another node is said to have one. Answers [`Rekeyed`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rekey {
    /// The other node; this one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The new key of the other node, in 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// Answer of `mgp/kernel/nodes/rekey`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rekeyed {
    /// The node's id under its new key.
    pub id: String,
    /// The same as three words.
    pub words: String,
    /// What the node is called.
    pub name: String,
    /// The new key, for an admin to take where the node could not sign it itself. Not a secret.
    pub key: String,
    /// The cluster the node is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Nodes on which an admin can take the new key, by their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admins: Vec<String>,
    /// Whether the cluster knows the new key as that of this node: the old one, or an admin, has signed it.
    pub signed: bool,
    /// Whether it is taken with the next start of this kernel.
    pub restart: bool,
    /// Who knows of it.
    pub confirmed: Confirmations,
}

/// `mgp/kernel/nodes/recover`: makes this node an admin by the key that was shown when the cluster was founded.
/// Answers [`Recovered`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recover {
    /// The key, as it was printed; white space and case do not matter. A secret.
    pub key: String,
    /// Nodes that are gone, to be cut off with it: nothing is confirmed while they are waited for.
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

/// Answer of `mgp/kernel/nodes/recover`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The cluster.
    pub cluster: String,
    /// What this node, now an admin, is called.
    pub name: String,
    /// The nodes that were cut off with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}
