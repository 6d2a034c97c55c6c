//! What the catalog publishes; read by calls, lists and the index.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_engine::tools::catalog::Catalog;
use mgp_protocol::ids::ServerId;
use mgp_servers::link::Peer;
use mgp_servers::server::Fetched;
use tokio_util::sync::CancellationToken;

/// What is offered, and by which servers.
#[derive(Debug)]
pub struct Shown {
    /// The merged lists, and the server of each entry.
    pub catalog: Arc<Catalog>,
    /// What the connected servers declared at their handshake.
    pub peers: BTreeMap<ServerId, Peer>,
    /// When their lists were fetched.
    pub fetched: BTreeMap<ServerId, Fetched>,
    /// Cancelled when the next one is published.
    pub replaced: CancellationToken,
}
