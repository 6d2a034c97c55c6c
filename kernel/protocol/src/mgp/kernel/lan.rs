//! `mgp/kernel/lan/*`: whether this node is seen on the local network, and looks for others there. For the
//! operator.

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! {
    "mgp/kernel/lan/on" => On,
    "mgp/kernel/lan/off" => Off,
    "mgp/kernel/lan/status" => Status,
}

/// `mgp/kernel/lan/on`: from now on, over restarts. Answers [`Presence`].
#[derive(Debug)]
pub struct On;

/// `mgp/kernel/lan/off`: takes back what was announced. Answers [`Presence`].
#[derive(Debug)]
pub struct Off;

/// `mgp/kernel/lan/status`; answers [`Presence`].
#[derive(Debug)]
pub struct Status;

/// Answer of `mgp/kernel/lan/*`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Whether it is on.
    pub on: bool,
    /// Whether this node is announced now: only one that listens for others is.
    pub announced: bool,
    /// The network interfaces that are used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// Who was seen. Being seen means nothing: nobody is trusted because of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<LanNode>,
    /// How many are not told of, or were not taken down: the table is bounded.
    #[serde(default)]
    pub more: u64,
    /// Why it does not work, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A node that says it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanNode {
    /// The id it says it has.
    pub id: String,
    /// What it is called, where it is of this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it says it is.
    pub addresses: Vec<String>,
    /// Whether it says it is of this cluster.
    pub same_cluster: bool,
    /// So many milliseconds ago.
    pub ago_ms: u64,
}
