//! `mgp/kernel/lan/*`: discovery of nodes on the local network. For the operator.

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! {
    "mgp/kernel/lan/on" => On,
    "mgp/kernel/lan/off" => Off,
    "mgp/kernel/lan/status" => Status,
}

/// `mgp/kernel/lan/on`: enables it, persistently. Answers [`Presence`].
#[derive(Debug)]
pub struct On;

/// `mgp/kernel/lan/off`: disables it and withdraws the announcement. Answers [`Presence`].
#[derive(Debug)]
pub struct Off;

/// `mgp/kernel/lan/status`; answers [`Presence`].
#[derive(Debug)]
pub struct Status;

/// The answer to `mgp/kernel/lan/*`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// True if it is enabled.
    pub on: bool,
    /// True if this node is announced now: only while it listens for other nodes.
    pub announced: bool,
    /// The network interfaces that are used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// The discovered nodes, unverified: discovery implies no trust.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<LanNode>,
    /// The number of nodes that are not listed or not stored: the table is bounded.
    #[serde(default)]
    pub more: u64,
    /// The current failure, and the fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A discovered node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanNode {
    /// The announced id.
    pub id: String,
    /// Its name, if it is in this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The announced addresses.
    pub addresses: Vec<String>,
    /// True if it announces this cluster.
    pub same_cluster: bool,
    /// The age of the announcement in milliseconds.
    pub ago_ms: u64,
}
