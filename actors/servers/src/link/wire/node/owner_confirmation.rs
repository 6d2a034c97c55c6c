//! What the owner's operator confirmed of a server.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_cluster::PeerServer;
use mgp_engine::policy::requirements::{ToolRule, ToolRules};
use mgp_engine::servers::replica_spec::ReplicaSpec;

use super::NodeWire;

/// What an operator says of a server and nobody can find out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnerConfirmation {
    /// It is one of several that are alike.
    pub(crate) mark: Option<ReplicaSpec>,
    /// Tools that may be called twice.
    idempotent: Vec<Arc<str>>,
}

impl OwnerConfirmation {
    fn from_peer_server(held: &PeerServer) -> Self {
        let tools = held.tools.iter().filter(|(_, tool)| tool.idempotent);
        Self {
            mark: ReplicaSpec::from_record(&held.record),
            idempotent: tools.map(|(name, _)| name.clone()).collect(),
        }
    }

    /// Whether the owner says something else now. A tool that is not told of while its server is away is none.
    fn is_contradicted(&self, now: &PeerServer) -> bool {
        let flag = |name: &Arc<str>| self.idempotent.contains(name);
        let mut tools = now.tools.iter();
        self.mark != ReplicaSpec::from_record(&now.record)
            || tools.any(|(name, tool)| tool.idempotent != flag(name))
    }

    /// As rules for its tools; all others are the owner's alone.
    #[must_use]
    pub(crate) fn rules(&self) -> Arc<ToolRules> {
        let rule = |name: &Arc<str>| {
            let rule = ToolRule {
                idempotent: true,
                ..ToolRule::default()
            };
            (name.to_string(), rule)
        };
        let tools: BTreeMap<String, ToolRule> = self.idempotent.iter().map(rule).collect();
        Arc::new(ToolRules {
            tools,
            ..ToolRules::default()
        })
    }
}

impl NodeWire {
    /// What is confirmed of the server now.
    #[must_use]
    pub(crate) fn owner_confirmation(&self) -> OwnerConfirmation {
        let held = self.peer_server();
        held.map_or_else(OwnerConfirmation::default, |held| {
            OwnerConfirmation::from_peer_server(&held)
        })
    }

    /// Whether the owner says something else now than it did then.
    #[must_use]
    pub(crate) fn has_confirmation_changed(&self, before: &OwnerConfirmation) -> bool {
        self.peer_server()
            .is_some_and(|now| before.is_contradicted(&now))
    }
}
