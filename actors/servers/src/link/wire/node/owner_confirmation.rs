//! Properties of a shared server that the owner's operator confirmed.

use std::collections::BTreeMap;
use std::sync::Arc;

use mgp_cluster::PeerServer;
use mgp_engine::policy::requirements::{ToolRule, ToolRules};
use mgp_engine::servers::replica_spec::ReplicaSpec;

use super::NodeWire;

/// Properties of a server that only an operator can confirm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnerConfirmation {
    /// Set if it is a replica of other servers.
    pub(crate) mark: Option<ReplicaSpec>,
    /// Tools that may be called twice.
    idempotent: Vec<Arc<str>>,
}

impl OwnerConfirmation {
    fn from_peer_server(shared: &PeerServer) -> Self {
        let tools = shared.tools.iter().filter(|(_, tool)| tool.idempotent);
        Self {
            mark: ReplicaSpec::from_record(&shared.record),
            idempotent: tools.map(|(name, _)| name.clone()).collect(),
        }
    }

    /// True if the owner now says otherwise. Tools missing while the server is disconnected do not count.
    fn is_contradicted(&self, now: &PeerServer) -> bool {
        let flag = |name: &Arc<str>| self.idempotent.contains(name);
        let mut tools = now.tools.iter();
        self.mark != ReplicaSpec::from_record(&now.record)
            || tools.any(|(name, tool)| tool.idempotent != flag(name))
    }

    /// The confirmed properties as tool rules; all others stay with the owner.
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
    /// The properties that are confirmed now.
    #[must_use]
    pub(crate) fn owner_confirmation(&self) -> OwnerConfirmation {
        let shared = self.peer_server();
        shared.map_or_else(OwnerConfirmation::default, |shared| {
            OwnerConfirmation::from_peer_server(&shared)
        })
    }

    /// True if the owner's confirmation differs from `before`.
    #[must_use]
    pub(crate) fn has_confirmation_changed(&self, before: &OwnerConfirmation) -> bool {
        self.peer_server()
            .is_some_and(|now| before.is_contradicted(&now))
    }
}
