//! Follows what this node has to share: the index is told what its servers offer, the rules for agents of other
//! nodes which servers there are and what of them is shared.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mgp_engine::policy::access::SharedTools;
use mgp_engine::replication::remote_rules::LocalServers;
use mgp_protocol::ids::ServerId;
use mgp_protocol::refusal::Refusal;
use mgp_tools::offering::LocalOffer;

use super::Cluster;

/// How soon it is tried again to tell what there is.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long others have to hear that nothing is shared any more, before their calls are refused: a change is with all
/// that are linked in less.
const WITHDRAW_NOTICE: Duration = Duration::from_millis(500);

impl Cluster {
    /// The servers of this node offer this.
    pub(super) fn set_offer(&self, offer: LocalOffer) {
        self.tool_index.set_offer(offer);
        self.export_wakeup.notify_one();
    }

    /// Tells the rules whenever something has changed.
    pub(super) async fn follow_exports(&self) {
        loop {
            if let Err(error) = self.publish_exports().await {
                tracing::error!(%error, "what is shared is not in force yet");
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            }
            self.export_wakeup.notified().await;
        }
    }

    /// Takes no new call of other nodes' agents, or takes them again. Others are told first, so that few calls come
    /// meanwhile: those go to another replica, or are refused. What is under way goes on.
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

    /// What is shared is in force when this resolves.
    ///
    /// # Errors
    /// A [`Refusal`] when the logs are not reachable.
    pub(crate) async fn publish_exports(&self) -> Result<(), Refusal> {
        let servers = self.servers.load();
        // Servers of other nodes, and instances for one agent, are nobody's to share.
        let own = servers
            .keys()
            .filter(|id| ServerId::parse(id.as_str()).is_ok());
        let known = LocalServers {
            names: own.cloned().collect(),
            shared: if self.is_draining() {
                SharedTools::default()
            } else {
                self.shares.current().to_shared_tools()
            },
        };
        self.replication.set_servers(known).await
    }
}
