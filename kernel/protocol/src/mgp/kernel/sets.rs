//! `mgp/kernel/sets/*`: the named sets of servers and tools. For the operator.

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! { "mgp/kernel/sets/list" => List }

/// `mgp/kernel/sets/list`; answers [`ListedSets`].
#[derive(Debug)]
pub struct List;

/// The answer to `mgp/kernel/sets/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedSets {
    /// Sorted by name.
    pub sets: Vec<ListedSet>,
}

/// A set with its current contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedSet {
    /// `[sets.NAME]`.
    pub name: String,
    /// Servers that are included completely.
    pub servers: Vec<String>,
    /// Included tools, as `server:tool`.
    pub tools: Vec<String>,
    /// Excluded tools, as `server:tool`.
    pub except: Vec<String>,
    /// Agents that are restricted to it.
    pub agents: Vec<String>,
    /// Its available tools, by their visible names; grants may hide some from an agent.
    pub offered: Vec<String>,
    /// Its servers that are starting for the first time: their tools are not known yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starting: Vec<String>,
    /// Unknown names in it, as text.
    pub unknown: Vec<String>,
}
