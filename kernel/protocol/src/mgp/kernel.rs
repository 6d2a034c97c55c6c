//! `mgp/kernel/*`: requests about the kernel itself. For the operator.

pub mod console;
pub mod groups;
pub mod lan;
pub mod mcpl;
pub mod nodes;
pub mod recorder;
pub mod sets;
pub mod shares;
pub mod state;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::health::ResourcesInUse;
use super::index::IndexCoverage;
use super::servers::Server;
use crate::mcp::methods;

methods! {
    "mgp/kernel/status" => Status,
    "mgp/kernel/stop" => Stop,
    "mgp/kernel/upgrade" => Upgrade,
    "mgp/kernel/reload" => Reload,
    "mgp/kernel/tree" => Tree,
    "mgp/kernel/metrics" => Metrics,
}

/// `mgp/kernel/status`.
#[derive(Debug)]
pub struct Status;

/// `mgp/kernel/stop`: drains every server and ends the kernel.
#[derive(Debug)]
pub struct Stop;

/// `mgp/kernel/upgrade`: another program takes the kernel's place, in the same process. Answers [`Upgraded`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Upgrade {
    /// Its path, from the root of the file system.
    pub program: String,
    /// Time for calls under way, in milliseconds; a minute without it, and at most ten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// The answer to `mgp/kernel/upgrade`, before the program is executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgraded {
    /// Its version.
    pub version: String,
}

/// `mgp/kernel/reload`: reloads the configuration now, without waiting for the file watcher.
#[derive(Debug)]
pub struct Reload;

/// `mgp/kernel/tree`: the running actors and tasks.
#[derive(Debug)]
pub struct Tree;

/// `mgp/kernel/metrics`: the metrics served at `/metrics` of the HTTP endpoint, and its address. Answers
/// [`MetricsText`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Metrics {
    /// True for the OpenMetrics format in place of that of Prometheus.
    #[serde(default)]
    pub open_metrics: bool,
}

/// The answer to `mgp/kernel/metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsText {
    /// The metrics.
    pub text: String,
    /// The address of `/metrics`, if the HTTP endpoint serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The file with the token of that path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// True if programs on this machine need no token.
    #[serde(default)]
    pub loopback: bool,
}

/// The answer to `mgp/kernel/tree`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningTree {
    /// The actors, each below its supervisor.
    pub actors: ActorNode,
    /// The tasks, by name.
    pub tasks: BTreeMap<String, TaskCount>,
}

/// A running actor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorNode {
    /// Its name; for a server with the id: `server:ID`.
    pub name: String,
    /// Its children.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub under: Vec<ActorNode>,
}

/// The tasks of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCount {
    /// The number of running tasks.
    pub running: u64,
    /// The number of panics since the start of the kernel.
    pub panicked: u64,
}

/// The answer to `mgp/kernel/status`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KernelStatus {
    /// The version of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since the start.
    pub uptime_secs: u64,
    /// The data folder.
    pub data_dir: String,
    /// The configuration files in force, in order of precedence.
    pub config_files: Vec<String>,
    /// Project files that are not trusted in their current version.
    #[serde(default)]
    pub untrusted: Vec<Untrusted>,
    /// The file for new servers; `None` if no file is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers_file: Option<String>,
    /// The problems of the configuration, one text for each.
    pub config_problems: Vec<String>,
    /// Configuration sections that take effect only after a restart, one text for each.
    #[serde(default)]
    pub restart: Vec<String>,
    /// The endpoints for agents: the socket's path, the HTTP address.
    pub doors: Vec<String>,
    /// The number of connected clients, without the requesting one.
    pub connections: u64,
    /// The first connected clients, at most [`CLIENTS_MAX`].
    #[serde(default)]
    pub clients: Vec<Client>,
    /// The coverage of the tool index.
    #[serde(default)]
    pub index: IndexCoverage,
    /// Live actors by kind.
    pub actors: BTreeMap<String, u64>,
    /// Current problems of the kernel, with causes and fixes.
    #[serde(default)]
    pub troubles: Vec<String>,
    /// Why the program that should have taken over from this kernel did not; until its next start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_upgrade: Option<String>,
    /// The resources used by the kernel's own process; its children are the first processes of servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<ResourcesInUse>,
    /// Every server.
    pub servers: Vec<Server>,
}

/// The most clients listed in a status; a person does not read more.
pub const CLIENTS_MAX: usize = 1000;

/// One client: an open connection or session, or a client with an HTTP request within the last 5 minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Its identity: `agent.NAME`, or `operator`.
    pub agent: String,
    /// The reported name, unverified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The reported version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The negotiated MCP version; `None` before its first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaks: Option<String>,
    /// Its endpoint: `socket` or `http`.
    pub door: String,
    /// The server in its view, if the view has one server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The set of its view, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// The time since the connection, in milliseconds.
    pub since_ms: u64,
    /// The time since its last request, in milliseconds.
    pub silent_ms: u64,
    /// The number of its tool calls.
    pub calls: u64,
    /// The number of tools in its session cache (MGP §16.7).
    #[serde(default)]
    pub holds: u64,
    /// The first 20 of them, as `server:tool`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
}

/// A project file that is not trusted in its current version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untrusted {
    /// Its path.
    pub file: String,
    /// True if its last trusted version is in force; otherwise it is ignored.
    pub held: bool,
    /// The reason, and the fix.
    pub why: String,
}
