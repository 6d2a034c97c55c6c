//! Changes of a cluster's members, as operations of its logs.

use mgp_protocol::ids::NodeId;
use serde::{Deserialize, Serialize};

use super::{BadOperation, OperationId, check_name};
use crate::node_key::PublicKey;

/// The role of a node.
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
    /// The number of operations in the part.
    pub next: u64,
    /// The id of the last one; [`OperationId::START`] if there is none.
    pub id: OperationId,
}

impl LogTip {
    /// The end of an empty log.
    pub const EMPTY: Self = Self {
        next: 0,
        id: OperationId::START,
    };
}

/// A change of the members. A node that was cut off never returns under the same key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberChange {
    /// The first operation of a cluster: its issuer is the first admin.
    Found {
        /// The issuer's key.
        key: PublicKey,
        /// The offline recovery key: it can always admit an admin.
        recovery: PublicKey,
        /// The name of the founder.
        name: String,
    },
    /// Admits a node.
    Admit {
        /// Its key.
        key: PublicKey,
        /// Its role.
        role: MemberRole,
        /// Its name.
        name: String,
    },
    /// Ends what a node may grant: of its log only this part counts.
    Cut {
        /// The node.
        node: NodeId,
        /// The part of its log that counts.
        at: LogTip,
        /// It stays a member, with at most this role. A build that does not parse this treats the node as cut off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stays_as: Option<MemberRole>,
    },
    /// Renames a node.
    Rename {
        /// The node.
        node: NodeId,
        /// Its new name.
        name: String,
    },
    /// The issuer appends nothing until it is active again: no node has to wait for its lease.
    Rest {},
    /// A node continues under a new key. Of the log of the old key this part counts, and this operation itself if it
    /// is in that log.
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
        /// Its name.
        name: String,
    },
}

impl MemberChange {
    /// The key that it admits, or that a node continues under.
    #[must_use]
    pub(crate) fn admitted_key(&self) -> Option<&PublicKey> {
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
