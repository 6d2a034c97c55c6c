//! What the catalog publishes; read by calls, lists and the index.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_engine::tools::catalog::{Catalog, OfferCounts};
use mgp_protocol::ids::ServerId;
use mgp_servers::link::Peer;
use mgp_servers::server::FetchTimes;
use tokio_util::sync::CancellationToken;

/// What is offered, and by which servers.
#[derive(Debug)]
pub struct PublishedCatalog {
    /// The merged lists, and the server of each entry.
    pub catalog: Arc<Catalog>,
    /// The declarations of servers that have listed themselves; the others were restored from pinned definitions.
    pub peers: BTreeMap<ServerId, Peer>,
    /// When their lists were fetched.
    pub fetched: BTreeMap<ServerId, FetchTimes>,
    /// Cancelled when the next one is published.
    pub replaced: CancellationToken,
}

impl PublishedCatalog {
    /// Whether the server has itself listed its entries of the catalog. If not, its tools can be listed, but a call
    /// waits for its own definition.
    #[must_use]
    pub fn is_current(&self, server: &ServerId) -> bool {
        self.peers.contains_key(server)
    }

    /// How much a server offers; `None` before its own lists are there.
    #[must_use]
    pub fn offer_counts(&self, server: &ServerId) -> Option<OfferCounts> {
        let counts = self.catalog.counts(server)?;
        self.is_current(server).then_some(counts)
    }
}
