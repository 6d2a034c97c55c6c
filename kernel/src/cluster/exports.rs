//! Follows this node's exports: updates the tool index with its servers' tools, and the rules for agents of other nodes
//! with the servers and shares.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mgp_engine::policy::access::SharedTools;
use mgp_engine::replication::remote_rules::LocalServers;
use mgp_protocol::ids::ServerId;
use mgp_protocol::refusal::Refusal;
use mgp_tools::LocalOffer;

use super::Cluster;

/// Delay before another attempt to publish.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time for peers to learn that nothing is shared any more before their calls are rejected: changes reach all linked
/// nodes sooner.
const WITHDRAW_NOTICE: Duration = Duration::from_millis(500);

impl Cluster {
    /// Sets what the servers of this node offer.
    pub(super) fn set_offer(&self, offer: LocalOffer) {
        self.tool_index.set_offer(offer);
        self.export_wakeup.notify_one();
    }

    /// Publishes the exports after each change.
    pub(super) async fn follow_exports(&self) {
        loop {
            if let Err(error) = self.publish_exports().await {
                tracing::error!(%error, "the shares are not in force yet");
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            }
            self.export_wakeup.notified().await;
        }
    }

    /// Starts or ends draining: new calls of other nodes' agents are rejected. Peers are told first, so that few calls
    /// arrive meanwhile: those fail over to another replica, or are rejected. Calls in flight continue.
    ///
    /// # Errors
    /// A [`Refusal`] when the logs are not reachable.
    pub(crate) async fn set_draining(self: &Arc<Self>, draining: bool) -> Result<(), Refusal> {
        if self.exports_withdrawn.swap(draining, Ordering::AcqRel) != draining {
            self.on_shares_changed(self.shares.current());
            if draining {
                tokio::time::sleep(WITHDRAW_NOTICE).await;
            }
        }
        self.draining.store(draining, Ordering::Release);
        self.publish_exports().await
    }

    /// Resolves when the shares are in force.
    ///
    /// # Errors
    /// A [`Refusal`] when the logs are not reachable.
    pub(crate) async fn publish_exports(&self) -> Result<(), Refusal> {
        let servers = self.servers.load();
        // Servers of other nodes, and instances for one agent, cannot be shared.
        let shareable = servers
            .keys()
            .filter(|id| ServerId::parse(id.as_str()).is_ok());
        let known = LocalServers {
            names: shareable.cloned().collect(),
            shared: if self.is_draining() {
                SharedTools::default()
            } else {
                self.shares.current().to_shared_tools()
            },
        };
        self.replication.set_servers(known).await
    }
}
