//! Follows what other nodes share: each of their servers becomes one of the tree while it is imported.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_engine::servers::spec::ServerSpec;
use mgp_protocol::ids::{NodeServer, ServerId};
use mgp_tools::registrar::ServerTree;

use super::Cluster;
use crate::supervision_tree::TreeHandle;

impl Cluster {
    /// Updates the tree whenever imported servers or names of nodes change.
    pub(super) async fn follow_imports(&self, tree: &TreeHandle) {
        let mut running: BTreeMap<ServerId, NodeServer> = BTreeMap::new();
        loop {
            let (peer_tools, names) = (self.imported_tools.load(), self.names.load());
            let desired: BTreeMap<ServerId, NodeServer> = peer_tools
                .servers
                .keys()
                .filter_map(|server| {
                    let node = names.names.handle_for(server.node)?;
                    let id = ServerId::new_remote(node.as_str(), &server.server);
                    Some((id, server.clone()))
                })
                .collect();
            // First, so that denials of this node apply to a server from its start on.
            let _ = self
                .access
                .set_remote_servers(Arc::new(desired.clone()))
                .await;
            let removed = running.extract_if(.., |id, server| desired.get(id) != Some(server));
            for (id, _) in removed.collect::<Vec<_>>() {
                if let Some(stopped) = tree.stop_server(id).await {
                    // Another server may take its name at once.
                    let _ = stopped.await;
                }
            }
            for (id, server) in desired {
                if running.contains_key(&id) {
                    continue;
                }
                let spec = id.remote_parts().map(|(node, _)| {
                    let results = self.config.results.clone();
                    ServerSpec::for_node_server(node, server.clone(), results)
                });
                if let Some(spec) = spec
                    && tree.start_server(spec).await
                {
                    running.insert(id, server);
                }
            }
            tokio::select! {
                () = peer_tools.replaced.cancelled() => {}
                () = names.replaced.cancelled() => {}
            }
        }
    }
}
