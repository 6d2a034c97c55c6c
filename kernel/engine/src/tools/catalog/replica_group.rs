//! What makes tools one entry.

use std::sync::Arc;

use mgp_protocol::federation::tool_index::IndexRoot;

use crate::cluster::tool_index::hash_schemas;
use crate::servers::replica_spec::ReplicaSpec;

/// What makes tools one entry: their servers are started as the same thing, they have the same name and the
/// same schemas, and each owner marked its server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaGroup {
    /// What the servers are started as, hashed. Those that remember their callers do so for all their tools.
    pub spec_hash: IndexRoot,
    tool: Arc<str>,
    schemas: IndexRoot,
}

/// The group that a tool is in.
#[derive(Debug)]
pub struct CatalogReplica {
    /// The group.
    pub group: ReplicaGroup,
    /// Its server remembers its callers between calls.
    pub stateful: bool,
}

impl CatalogReplica {
    /// `None` for a definition that two readers read differently.
    pub(super) fn new(own_name: &Arc<str>, raw: &str, mark: &ReplicaSpec) -> Option<Self> {
        let group = ReplicaGroup {
            spec_hash: mark.spec_hash,
            tool: Arc::clone(own_name),
            schemas: hash_schemas(raw)?,
        };
        Some(Self {
            group,
            stateful: mark.stateful,
        })
    }
}
