//! Follows what other nodes share: each of their servers is one of the tree for as long as it is held.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_engine::servers::spec::ServerSpec;
use mgp_protocol::ids::{NodeServer, ServerId};
use mgp_tools::registrar::ServerTree;

use super::Cluster;
use crate::tree::TreeHandle;

impl Cluster {
    /// Makes the servers of the tree those that are held, whenever these or the names of nodes change.
    pub(super) async fn follow_imports(&self, tree: &TreeHandle) {
        let mut running: BTreeMap<ServerId, NodeServer> = BTreeMap::new();
        loop {
            let (held, names) = (self.imported_tools.load(), self.names.load());
            let wanted: BTreeMap<ServerId, NodeServer> = held
                .servers
                .keys()
                .filter_map(|server| {
                    let node = names.names.handle_for(server.node)?;
                    let id = ServerId::new_remote(node.as_str(), &server.server);
                    Some((id, server.clone()))
                })
                .collect();
            // First, so that what this node denies its agents counts at a server from its start on.
            let _ = self
                .access
                .set_remote_servers(Arc::new(wanted.clone()))
                .await;
            let gone = running.extract_if(.., |id, server| wanted.get(id) != Some(server));
            for (id, _) in gone.collect::<Vec<_>>() {
                if let Some(stopped) = tree.stop_server(id).await {
                    // Its name may be another one's at once.
                    let _ = stopped.await;
                }
            }
            for (id, server) in wanted {
                if running.contains_key(&id) {
                    continue;
                }
                let spec = id
                    .remote_parts()
                    .map(|(node, _)| ServerSpec::for_node_server(node, server.clone()));
                if let Some(spec) = spec
                    && tree.start_server(spec).await
                {
                    running.insert(id, server);
                }
            }
            tokio::select! {
                () = held.replaced.cancelled() => {}
                () = names.replaced.cancelled() => {}
            }
        }
    }
}
