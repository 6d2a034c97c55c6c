//! `mgp/kernel/groups/*`: the groups of agents. For the operator. Memberships are entries of `mgp/access/*`.

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! { "mgp/kernel/groups/list" => List }

/// `mgp/kernel/groups/list`; answers [`ListedGroups`].
#[derive(Debug)]
pub struct List;

/// The answer to `mgp/kernel/groups/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedGroups {
    /// Sorted by name.
    pub groups: Vec<ListedGroup>,
}

/// A group, and what makes agents its members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedGroup {
    /// Without the prefix.
    pub name: String,
    /// By entries.
    pub members: Vec<GroupMember>,
    /// The issuer's groups whose members are in it (`groups` in `[oauth]`).
    pub claims: Vec<String>,
    /// True for the group of agents that are in no other (`default_group` in `[access]`).
    pub is_default: bool,
    /// How many grants and denials name it.
    pub entries: usize,
    /// Its limits, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// What its members used of them here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Limits>,
}

/// A member by an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMember {
    /// The agent, or the agents of a node.
    pub agent_id: String,
    /// True in the group of the cluster, false in that of this node.
    pub is_cluster: bool,
    /// The entry.
    pub grant_id: String,
    /// Who decided.
    pub granted_by: String,
    /// When, RFC 3339.
    pub granted_at: String,
    /// Why it counts no more, if it conflicts with a revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<String>,
}

/// Limits, each 0 for none, or what was used of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Calls a minute.
    pub calls_per_minute: u64,
    /// Calls a day.
    pub calls_per_day: u64,
    /// Bytes a day.
    pub bytes_per_day: u64,
}
