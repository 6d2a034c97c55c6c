//! What is needed to connect to any server; shared by all supervisors.

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

/// Fixed at construction, but for `hurry`.
#[derive(Debug)]
pub struct Connector {
    /// For servers reached over HTTP.
    pub client: Client,
    /// Their logins.
    pub logins: Arc<Logins>,
    /// Version of this program, told to servers.
    pub version: String,
    /// Marks every process of this kernel.
    pub mark: String,
    /// Working folder of children whose entry names none.
    pub folder: PathBuf,
    /// How long calls under way may take when a server is to stop.
    pub drain_timeout: Duration,
    /// The time instead, once the whole kernel was told to end within one.
    pub shutdown_drain_timeout: OnceLock<Duration>,
    /// How often the health of servers is checked.
    pub health: HealthCheckConfig,
    /// The sandboxes of servers that are trusted least.
    pub sandboxes: Sandboxes,
    /// Starts processes.
    pub spawner: ProcessSpawner,
    /// What they use.
    pub resource_usage: Arc<ResourceMonitor>,
    /// The links to other nodes, over which their servers are reached.
    pub links: Arc<Snapshot<LinkTable>>,
    /// What other nodes share.
    pub peer_tools: Arc<Snapshot<PeerTools>>,
}

impl Connector {
    /// The whole kernel is ending: calls under way may take this long. The first such time counts.
    pub fn set_shutdown_drain_timeout(&self, time: Duration) {
        let _ = self.shutdown_drain_timeout.set(time);
    }

    /// How long calls under way may take when a server is to stop now.
    pub(super) fn drain_timeout(&self) -> Duration {
        self.shutdown_drain_timeout
            .get()
            .copied()
            .unwrap_or(self.drain_timeout)
    }
}
