//! The shared resources for connecting to servers.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mgp_cluster::PeerTools;
use mgp_cluster::links::LinkTable;
use mgp_engine::servers::health::HealthCheckConfig;
use mgp_sync::Snapshot;
use mgp_transports::http::client::Client;

use super::resource_usage::ResourceMonitor;
use super::spawner::ProcessSpawner;
use crate::login::Logins;
use crate::sandbox::Sandboxes;

/// Shared by all supervisors; fixed except for `shutdown_drain_timeout`.
#[derive(Debug)]
pub struct Connector {
    /// The client for HTTP servers.
    pub client: Client,
    /// The logins at HTTP servers.
    pub logins: Arc<Logins>,
    /// The version of this program, sent to servers.
    pub version: String,
    /// Marks all processes of this kernel.
    pub mark: String,
    /// The working folder of child processes whose entry names none.
    pub folder: PathBuf,
    /// How long in-flight calls may take when a server stops.
    pub drain_timeout: Duration,
    /// How long they may take when the whole kernel shuts down.
    pub shutdown_drain_timeout: OnceLock<Duration>,
    /// The settings of health checks.
    pub health: HealthCheckConfig,
    /// The sandboxes of untrusted servers.
    pub sandboxes: Sandboxes,
    /// Starts processes.
    pub spawner: ProcessSpawner,
    /// Monitors the resource usage of processes.
    pub resource_usage: Arc<ResourceMonitor>,
    /// The links to other nodes.
    pub links: Arc<Snapshot<LinkTable>>,
    /// The servers that other nodes share.
    pub peer_tools: Arc<Snapshot<PeerTools>>,
}

impl Connector {
    /// Sets the drain timeout of the kernel's shutdown. Only the first call counts.
    pub fn set_shutdown_drain_timeout(&self, time: Duration) {
        let _ = self.shutdown_drain_timeout.set(time);
    }

    /// How long in-flight calls may take if a server stops now.
    pub(super) fn drain_timeout(&self) -> Duration {
        self.shutdown_drain_timeout
            .get()
            .copied()
            .unwrap_or(self.drain_timeout)
    }
}
