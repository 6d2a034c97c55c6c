//! A node that was shut down gracefully may be back soon: a call of which nothing was begun waits for it, in its own
//! time.

use std::sync::Arc;
use std::time::Duration;

use mgp_cluster::links::{LinkTable, PeerLink};
use mgp_protocol::federation::close_codes::LinkClose;
use mgp_transports::quic::StreamFailure;
use tokio::time::Instant;

use super::NodeWire;

/// How long after its end a node is waited for: as long as a call waits for a server that is starting. A node that was
/// stopped for good keeps nobody waiting after that.
const RETURN_TIMEOUT: Duration = Duration::from_secs(10);

/// True where the node says that it was shut down, and that it began nothing that it did not answer.
pub(super) fn is_shutdown(failure: &StreamFailure) -> bool {
    *failure == StreamFailure::LinkClosed(LinkClose::Shutdown)
}

impl NodeWire {
    /// The present link, or the next one to a node that was shut down just now.
    pub(super) async fn find_link(&self, until: Instant) -> Option<Arc<PeerLink>> {
        match self.peer_link() {
            Some(peer) => Some(peer),
            None => self.next_link(None, until).await,
        }
    }

    /// The next link to a node that shuts down, or was shut down, while this one is or was there.
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

    /// Until when the node is waited for; `None` where its last link did not end with its shutdown.
    fn deadline(&self, links: &LinkTable, before: Option<&PeerLink>) -> Option<Instant> {
        let soon = Instant::now() + RETURN_TIMEOUT;
        match (
            links.links.get(&self.server.node),
            links.shut_down.get(&self.server.node),
        ) {
            (Some(peer), _) => match peer.link.end_reason() {
                // It said that it is shutting down.
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
