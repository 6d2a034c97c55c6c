//! `mgp/kernel/mcpl/*`: the feature sets of servers that speak MCPL, and what was approved of scopes. For the
//! operator.

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! {
    "mgp/kernel/mcpl/sets" => Sets,
    "mgp/kernel/mcpl/switch" => Switch,
    "mgp/kernel/mcpl/forget" => Forget,
}

/// `mgp/kernel/mcpl/sets`; answers [`FeatureSetList`].
#[derive(Debug)]
pub struct Sets;

/// `mgp/kernel/mcpl/switch`: enables or disables sets of a server for good. Answers [`Switched`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// The server.
    pub server: String,
    /// Its sets: `memory.retrieval`, `memory.*`.
    pub sets: Vec<String>,
    /// On or off; absent, what was switched is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// For sets, or a server, still to come.
    #[serde(default)]
    pub yet_unknown: bool,
}

/// `mgp/kernel/mcpl/forget`: takes back the scopes that were approved. Answers [`Forgotten`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    /// The server.
    pub server: String,
    /// One of its sets; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
}

/// Answer of `mgp/kernel/mcpl/sets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureSetList {
    /// The servers that speak MCPL now, by their ids.
    pub servers: Vec<McplServer>,
    /// What was said of sets that no such server has, in words.
    pub unknown: Vec<String>,
}

/// A server that speaks MCPL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McplServer {
    /// Its id.
    pub server: String,
    /// Its sets, by name.
    pub sets: Vec<ListedFeatureSet>,
}

/// One of its sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedFeatureSet {
    /// Its name.
    pub set: String,
    /// What it is for, in the server's words.
    pub description: String,
    /// What it uses.
    pub uses: Vec<String>,
    /// Its actions need a scope.
    pub scoped: bool,
    /// Its state can be rolled back.
    pub rollback: bool,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Who says so, in words.
    pub by: String,
    /// Its server declares more of it than was approved, which waits in `mgp pending`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// How the scope of a call is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Scopes that are open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub whitelist: Vec<String>,
    /// Scopes that are closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blacklist: Vec<String>,
}

/// Answer of `mgp/kernel/mcpl/switch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switched {
    /// The server.
    pub server: String,
    /// Its sets that are enabled now.
    pub enabled: Vec<String>,
    /// Those that are not.
    pub disabled: Vec<String>,
}

/// Answer of `mgp/kernel/mcpl/forget`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// How many approved scopes were taken back.
    pub scopes: usize,
}
