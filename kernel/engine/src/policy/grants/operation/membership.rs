//! Who is in a cluster, as operations of its logs.

use mgp_protocol::ids::NodeId;
use serde::{Deserialize, Serialize};

use super::{BadOperation, OperationId, check_name};
use crate::node_key::PublicKey;

/// What a node may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberRole {
    /// Calls the tools of others.
    Leaf,
    /// Shares tools, too.
    Member,
    /// Signs grants and admits nodes, too.
    Admin,
}

/// The end of a part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LogTip {
    /// How many operations the part has.
    pub next: u64,
    /// The id of the last one; [`OperationId::START`] of none.
    pub id: OperationId,
}

impl LogTip {
    /// Of an empty log.
    pub const EMPTY: Self = Self {
        next: 0,
        id: OperationId::START,
    };
}

/// A change of who is in. A node that was cut never comes back under the same key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberChange {
    /// The first operation of a cluster: its issuer is the first admin.
    Found {
        /// The issuer's key.
        key: PublicKey,
        /// The key that lies in a drawer: it can always admit an admin.
        recovery: PublicKey,
        /// What people call the founder.
        name: String,
    },
    /// Lets a node in.
    Admit {
        /// Its key.
        key: PublicKey,
        /// What it may do.
        role: MemberRole,
        /// What people call it.
        name: String,
    },
    /// Ends what a node may give: of its log only this part counts.
    Cut {
        /// The node.
        node: NodeId,
        /// The part of its log that counts.
        at: LogTip,
        /// It stays in, as no more than this. A build that does not read this takes the node for cut off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stays_as: Option<MemberRole>,
    },
    /// Another name.
    Rename {
        /// The node.
        node: NodeId,
        /// What people call it from now on.
        name: String,
    },
    /// The issuer writes nothing more until it is heard again: nobody has to wait for its word.
    Rest {},
    /// A node goes on under a new key. Of the log of the old one this part counts, and this operation where it
    /// stands in that log itself.
    Rekey {
        /// The node under its old key.
        node: NodeId,
        /// The part of its log that counts.
        at: LogTip,
        /// The new key.
        key: PublicKey,
    },
    /// The recovery key makes a node an admin.
    Recover {
        /// The node's key.
        key: PublicKey,
        /// What people call it.
        name: String,
    },
}

impl MemberChange {
    /// The key that it lets in, or that somebody goes on under.
    #[must_use]
    pub fn admitted_key(&self) -> Option<&PublicKey> {
        match self {
            Self::Found { key, .. }
            | Self::Admit { key, .. }
            | Self::Rekey { key, .. }
            | Self::Recover { key, .. } => Some(key),
            Self::Cut { .. } | Self::Rename { .. } | Self::Rest {} => None,
        }
    }

    pub(super) fn is_granting(&self) -> bool {
        match self {
            Self::Found { .. }
            | Self::Admit { .. }
            | Self::Rename { .. }
            | Self::Rekey { .. }
            | Self::Recover { .. } => true,
            Self::Cut { .. } | Self::Rest {} => false,
        }
    }

    pub(super) fn check(&self) -> Result<(), BadOperation> {
        match self {
            Self::Found { name: text, .. }
            | Self::Admit { name: text, .. }
            | Self::Rename { name: text, .. }
            | Self::Recover { name: text, .. } => check_name("a node's name", text),
            Self::Cut { .. } | Self::Rest {} | Self::Rekey { .. } => Ok(()),
        }
    }
}
