//! What is needed to connect to any server; shared by all supervisors.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mgp_cluster::links::LinkTable;
use mgp_cluster::tool_index::HeldTools;
use mgp_engine::servers::health::HealthRules;
use mgp_sync::snapshot::Snapshot;
use mgp_transports::http::client::Client;

use super::resources::ResourceFigures;
use super::spawner::Starts;
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
    pub drain: Duration,
    /// The time instead, once the whole kernel was told to end within one.
    pub hurry: OnceLock<Duration>,
    /// How often the health of servers is checked.
    pub health: HealthRules,
    /// The sandboxes of servers that are trusted least.
    pub sandboxes: Sandboxes,
    /// Starts processes.
    pub starts: Starts,
    /// What they use.
    pub figures: Arc<ResourceFigures>,
    /// The links to other nodes, over which their servers are reached.
    pub links: Arc<Snapshot<LinkTable>>,
    /// What other nodes share.
    pub held: Arc<Snapshot<HeldTools>>,
}

impl Connector {
    /// The whole kernel is ending: calls under way may take this long. The first such time counts.
    pub fn ends_within(&self, time: Duration) {
        let _ = self.hurry.set(time);
    }

    /// How long calls under way may take when a server is to stop now.
    pub(super) fn drain(&self) -> Duration {
        self.hurry.get().copied().unwrap_or(self.drain)
    }
}
