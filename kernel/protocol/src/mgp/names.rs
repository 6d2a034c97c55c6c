//! `mgp/names/*`: what people type for agents, servers and tools, read by the kernel that has them.
//! For the operator.

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! {
    "mgp/names/read" => Read,
    "mgp/names/list" => List,
}

/// `mgp/names/read`: reads names in any of their spellings. Answers [`Meant`]; invalid params, in words, for
/// what cannot be read or could be two things.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Read {
    /// An agent, with or without `agent.`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// A server as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// A server, or a tool as `SERVER:TOOL`, `SERVER/TOOL` or as agents are shown it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The same, of a tool alone: its bare name is read where only one server has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// What names mean.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meant {
    /// `agent.alice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Of `server`, `place` or `tool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
    /// The server's own name for the tool of `place` or `tool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// What of it is not there, in words that name the nearest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// What of it cannot be looked up now, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
}

/// `mgp/names/list`; answers `{"tools": [`[`Named`]`, …]}`: every tool that is offered now.
#[derive(Debug)]
pub struct List;

/// One tool by all its names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// What agents are shown.
    pub shown: String,
    /// `server:tool`.
    pub tool_id: String,
    /// Its server.
    pub server_id: String,
}
