//! Descriptions of replicated servers.

use mgp_engine::cluster::routes;
use mgp_engine::tools::catalog::Catalog;
use mgp_protocol::ids::ServerId;

use super::Operator;

impl Operator {
    /// Where the tools of a server can be called, and where the next call without affinity goes.
    pub(super) fn replica_locations(&self, catalog: &Catalog, server: &ServerId) -> Vec<String> {
        let Some(tool) = catalog.replica_tool(server, None) else {
            return Vec::new();
        };
        let servers = self.servers.load();
        let locations = catalog.replicas(tool).iter().filter_map(|tool| {
            let handle = servers.get(&tool.server)?;
            Some(handle.candidate(tool.requirements.idempotent))
        });
        routes::describe_candidates(&locations.collect::<Vec<_>>(), None)
    }
}
