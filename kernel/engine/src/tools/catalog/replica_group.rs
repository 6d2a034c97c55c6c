//! The group key of replicated tools.

use std::sync::Arc;

use mgp_protocol::federation::tool_index::IndexRoot;

use crate::cluster::tool_index::hash_schemas;
use crate::servers::replica_spec::ReplicaSpec;

/// Tools are replicas if their servers have the same command line or URL and are marked as replicas, and the tools have the
/// same name and schemas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaGroup {
    /// Hash of the servers' command line or URL. A stateful server is stateful for all its tools.
    pub spec_hash: IndexRoot,
    tool: Arc<str>,
    schemas: IndexRoot,
}

/// The group of a tool.
#[derive(Debug)]
pub struct CatalogReplica {
    /// The group.
    pub group: ReplicaGroup,
    /// Its server keeps state of its callers between calls.
    pub stateful: bool,
}

impl CatalogReplica {
    /// `None` for a definition that parsers read differently.
    pub(super) fn new(own_name: &Arc<str>, raw: &str, spec: &ReplicaSpec) -> Option<Self> {
        let group = ReplicaGroup {
            spec_hash: spec.spec_hash,
            tool: Arc::clone(own_name),
            schemas: hash_schemas(raw)?,
        };
        Some(Self {
            group,
            stateful: spec.stateful,
        })
    }
}
