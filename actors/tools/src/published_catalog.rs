//! The published catalog; read by calls, lists and the index.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_engine::tools::catalog::{Catalog, OfferCounts};
use mgp_protocol::ids::ServerId;
use mgp_servers::FetchTimes;
use mgp_servers::link::Peer;
use tokio_util::sync::CancellationToken;

/// All offers with their servers.
#[derive(Debug)]
pub struct PublishedCatalog {
    /// The merged lists, and the server of each entry.
    pub catalog: Arc<Catalog>,
    /// The declarations of servers that sent their own lists; other offers were restored from pinned definitions.
    pub peers: BTreeMap<ServerId, Peer>,
    /// When these lists were fetched.
    pub fetched: BTreeMap<ServerId, FetchTimes>,
    /// Cancelled when the next catalog is published.
    pub replaced: CancellationToken,
}

impl PublishedCatalog {
    /// Whether the server sent its own lists. If not, its tools can be listed, but a call waits for the server's own
    /// definition.
    #[must_use]
    pub fn is_current(&self, server: &ServerId) -> bool {
        self.peers.contains_key(server)
    }

    /// How much a server offers; `None` until it sent its own lists.
    #[must_use]
    pub fn offer_counts(&self, server: &ServerId) -> Option<OfferCounts> {
        let counts = self.catalog.counts(server)?;
        self.is_current(server).then_some(counts)
    }
}
