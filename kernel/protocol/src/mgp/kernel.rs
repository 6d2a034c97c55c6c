//! `mgp/kernel/*`: the kernel about itself. For the operator.

pub mod console;
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

/// `mgp/kernel/reload`: reads the configuration again now, without waiting for the file watcher.
#[derive(Debug)]
pub struct Reload;

/// `mgp/kernel/tree`: the actors and tasks that run.
#[derive(Debug)]
pub struct Tree;

/// `mgp/kernel/metrics`: the figures that `/metrics` of the HTTP door shows, and how they are got there. Answers
/// [`MetricsText`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Metrics {
    /// In the form of OpenMetrics, not of Prometheus.
    #[serde(default)]
    pub open_metrics: bool,
}

/// Answer of `mgp/kernel/metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsText {
    /// The figures.
    pub text: String,
    /// The address of `/metrics`, where the HTTP door shows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The file that holds the token of that path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// Programs of this machine need no token.
    #[serde(default)]
    pub loopback: bool,
}

/// Answer of `mgp/kernel/tree`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningTree {
    /// The actors, each below its supervisor.
    pub actors: ActorNode,
    /// The tasks beside them, by name.
    pub tasks: BTreeMap<String, TaskCount>,
}

/// An actor that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorNode {
    /// What it is; of a server, which one, too: `server:ID`.
    pub name: String,
    /// Those it supervises.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub under: Vec<ActorNode>,
}

/// The tasks of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCount {
    /// They run now.
    pub running: u64,
    /// They panicked since the start of the kernel.
    pub panicked: u64,
}

/// Answer of `mgp/kernel/status`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KernelStatus {
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since the start.
    pub uptime_secs: u64,
    /// Where the kernel keeps what lasts.
    pub data_dir: String,
    /// The configuration files in force, the most important first.
    pub config_files: Vec<String>,
    /// Files of projects that are there and not in force as they are.
    #[serde(default)]
    pub untrusted: Vec<Untrusted>,
    /// Where a new server is written down; `None` where no file is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers_file: Option<String>,
    /// What is wrong with the configuration, one text for each problem.
    pub config_problems: Vec<String>,
    /// What of the configuration takes effect only when the kernel is started again, one text for each
    /// section.
    #[serde(default)]
    pub restart: Vec<String>,
    /// Where agents come in: the socket's path, the HTTP address.
    pub doors: Vec<String>,
    /// Clients that are there, without the one that asks.
    pub connections: u64,
    /// Those of them that came first, [`CLIENTS_MAX`] at most.
    #[serde(default)]
    pub clients: Vec<Client>,
    /// How far the index of tools is.
    #[serde(default)]
    pub index: IndexCoverage,
    /// Live actors by kind.
    pub actors: BTreeMap<String, u64>,
    /// What the kernel cannot do at the moment, or found wrong at its start: why, and what to do.
    #[serde(default)]
    pub troubles: Vec<String>,
    /// What the kernel's own process uses; its children are the first processes of servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<ResourcesInUse>,
    /// Every server.
    pub servers: Vec<Server>,
}

/// Most clients that a status tells of one by one: more are not read by a person.
pub const CLIENTS_MAX: usize = 1000;

/// One client: an open connection or session, or one that asked over HTTP within the last 5 minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Who it is to the kernel: `agent.NAME`, or `operator`.
    pub agent: String,
    /// What it calls itself; nobody proves that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Which version it says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The MCP version spoken with it; `None` before its first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaks: Option<String>,
    /// How it came in: `socket` or `http`.
    pub door: String,
    /// The one server it is shown, where it is not shown all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The set it is shown, where it came by the door of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// How long it has been there, in milliseconds.
    pub since_ms: u64,
    /// How long ago it last asked for something, in milliseconds.
    pub silent_ms: u64,
    /// Tools it has called.
    pub calls: u64,
    /// How many tools its session holds because it called or found them (MGP §16.7).
    #[serde(default)]
    pub holds: u64,
    /// The first 20 of them, as `server:tool`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
}

/// A project's file that its user has not trusted as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untrusted {
    /// Its path.
    pub file: String,
    /// Whether it is in force as it was when it was trusted; else it is left out.
    pub held: bool,
    /// Why, and what to do.
    pub why: String,
}
