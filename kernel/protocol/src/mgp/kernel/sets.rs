//! `mgp/kernel/sets/*`: the named sets of servers and tools. For the operator.

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! { "mgp/kernel/sets/list" => List }

/// `mgp/kernel/sets/list`; answers [`ListedSets`].
#[derive(Debug)]
pub struct List;

/// Answer of `mgp/kernel/sets/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedSets {
    /// In the order of their names.
    pub sets: Vec<ListedSet>,
}

/// A set, and what it comes to at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedSet {
    /// `[sets.NAME]`.
    pub name: String,
    /// Servers that are in it as a whole.
    pub servers: Vec<String>,
    /// Single tools, as `server:tool`.
    pub tools: Vec<String>,
    /// Tools that are not in it, as `server:tool`.
    pub except: Vec<String>,
    /// Agents that are held to it.
    pub agents: Vec<String>,
    /// The tools there are of it now, under the names agents are shown; grants may close some to an agent.
    pub offered: Vec<String>,
    /// Servers of it that are in their first start: what they offer is not known yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starting: Vec<String>,
    /// What it names and nobody has, in words.
    pub unknown: Vec<String>,
}
