//! What the catalog publishes: calls, lists and the index read it.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_engine::tools::catalog::Catalog;
use mgp_protocol::ids::ServerId;
use mgp_servers::link::Peer;
use mgp_servers::server::Fetched;
use tokio_util::sync::CancellationToken;

/// What is offered right now, and by whom.
#[derive(Debug)]
pub struct Shown {
    /// The merged lists and the way to each entry's server.
    pub catalog: Arc<Catalog>,
    /// What the connected servers said of themselves.
    pub peers: BTreeMap<ServerId, Peer>,
    /// When their lists were fetched.
    pub fetched: BTreeMap<ServerId, Fetched>,
    /// Cancelled when something else is published.
    pub replaced: CancellationToken,
}
