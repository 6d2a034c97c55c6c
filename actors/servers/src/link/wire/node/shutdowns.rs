//! Waits for nodes that were shut down gracefully: a call that was not started there may wait for the node's
//! return until its deadline.

use std::sync::Arc;
use std::time::Duration;

use mgp_cluster::links::{LinkTable, PeerLink};
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_transports::quic::StreamFailure;
use tokio::time::Instant;

use super::NodeWire;

/// How long a node is expected to return after its shutdown: as long as calls wait for a starting server. A node
/// that was stopped for good delays calls no longer than this.
const RETURN_TIMEOUT: Duration = Duration::from_secs(10);

/// True if the node reported its shutdown, and started nothing that it did not answer.
pub(super) fn is_shutdown(failure: &StreamFailure) -> bool {
    *failure == StreamFailure::LinkClosed(LinkClose::Shutdown)
}

impl NodeWire {
    /// The current link, or the next one to a node that was just shut down.
    pub(super) async fn find_link(&self, until: Instant) -> Option<Arc<PeerLink>> {
        match self.peer_link() {
            Some(peer) => Some(peer),
            None => self.next_link(None, until).await,
        }
    }

    /// The next link to a node that shuts down or was shut down, after this link.
    pub(super) async fn await_next_link(
        &self,
        before: &PeerLink,
        until: Instant,
    ) -> Option<Arc<PeerLink>> {
        self.next_link(Some(before), until).await
    }

    async fn next_link(&self, before: Option<&PeerLink>, until: Instant) -> Option<Arc<PeerLink>> {
        let latest = until.min(Instant::now() + RETURN_TIMEOUT);
        loop {
            let (links, _) = self.current();
            let is_next = |peer: &Arc<PeerLink>| {
                before.is_none_or(|before| !peer.link.is_same_link(&before.link))
            };
            if let Some(next) = self.peer_link().filter(is_next) {
                return Some(next);
            }
            let latest = latest.min(self.deadline(&links, before)?);
            let replaced = links.replaced.cancelled();
            tokio::time::timeout_at(latest, replaced).await.ok()?;
        }
    }

    /// The time until which the node is waited for; `None` if its last link did not end by a shutdown.
    fn deadline(&self, links: &LinkTable, before: Option<&PeerLink>) -> Option<Instant> {
        let soon = Instant::now() + RETURN_TIMEOUT;
        match (
            links.links.get(&self.server.node),
            links.shut_down.get(&self.server.node),
        ) {
            (Some(peer), _) => match peer.link.end_reason() {
                // The node announced its shutdown.
                None => before
                    .filter(|before| peer.link.is_same_link(&before.link))
                    .map(|_| soon),
                Some(gone) => is_shutdown(&gone.0).then_some(soon),
            },
            (None, Some(ended)) => Some(Instant::from_std(*ended) + RETURN_TIMEOUT),
            (None, None) => None,
        }
    }
}
