//! `mgp/kernel/*`: the kernel about itself. For the operator.

use serde::{Deserialize, Serialize};

use super::servers::Server;
use crate::mcp::methods;

methods! {
    "mgp/kernel/status" => Status,
    "mgp/kernel/stop" => Stop,
    "mgp/kernel/reload" => Reload,
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

/// Answer of `mgp/kernel/status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// What is wrong with the configuration, one text for each problem.
    pub config_problems: Vec<String>,
    /// Where agents come in: the socket's path, the HTTP address.
    pub doors: Vec<String>,
    /// Open agent connections and sessions.
    pub connections: u64,
    /// Live actors by kind.
    pub actors: std::collections::BTreeMap<String, u64>,
    /// Every server.
    pub servers: Vec<Server>,
}
