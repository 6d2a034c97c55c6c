//! `mgp/kernel/mcpl/*`: the feature sets of MCPL servers, and approved scopes. For the operator.

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

/// `mgp/kernel/mcpl/switch`: enables or disables sets of a server permanently. Answers [`Switched`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// The server.
    pub server: String,
    /// Its sets: `memory.retrieval`, `memory.*`.
    pub sets: Vec<String>,
    /// Enabled or disabled; absent to remove the setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Also for a set, or a server, that does not exist yet.
    #[serde(default)]
    pub yet_unknown: bool,
}

/// `mgp/kernel/mcpl/forget`: revokes approved scopes. Answers [`Forgotten`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    /// The server.
    pub server: String,
    /// One of its sets; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
}

/// The answer to `mgp/kernel/mcpl/sets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureSetList {
    /// The connected MCPL servers, by id.
    pub servers: Vec<McplServer>,
    /// Settings for unknown sets, as text.
    pub unknown: Vec<String>,
}

/// An MCPL server.
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
    /// Its purpose, as described by the server.
    pub description: String,
    /// The features it uses.
    pub uses: Vec<String>,
    /// True if its actions need a scope.
    pub scoped: bool,
    /// True if its state can be rolled back.
    pub rollback: bool,
    /// True if it is enabled.
    pub enabled: bool,
    /// The origin of the setting, as text.
    pub by: String,
    /// True if its server declares more than was approved, which is pending in `mgp pending`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// The template of a call's scope label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The allowed scopes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub whitelist: Vec<String>,
    /// The denied scopes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blacklist: Vec<String>,
}

/// The answer to `mgp/kernel/mcpl/switch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switched {
    /// The server.
    pub server: String,
    /// Its enabled sets.
    pub enabled: Vec<String>,
    /// Its disabled sets.
    pub disabled: Vec<String>,
}

/// The answer to `mgp/kernel/mcpl/forget`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// The number of revoked scopes.
    pub scopes: usize,
}
