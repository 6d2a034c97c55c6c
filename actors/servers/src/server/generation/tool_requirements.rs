//! What holds for the tools of a server, whoever calls them.

use mgp_engine::policy::requirements::RequirementInputs;
use mgp_engine::policy::risk;
use mgp_engine::servers::replica_spec::ReplicaSpec;

use super::ServerGeneration;
use crate::link::{Link, Wire};

impl ServerGeneration {
    /// The rules for what its tools require.
    pub(super) fn requirement_terms(&self, link: &Link) -> RequirementInputs {
        let said = link.mgp().as_active();
        let claimed = said.and_then(|active| active.peer.trust_level.as_deref());
        RequirementInputs {
            trust: risk::effective_trust(self.spec.mgp.trust_level, claimed),
            rules: match link.wire() {
                Wire::Node(node) => node.owner_confirmation().rules(),
                Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Lite(_) => {
                    self.spec.tools.clone()
                }
            },
        }
    }

    /// Whether it is one of several that are alike.
    pub(super) fn replica_mark(&self, link: &Link) -> Option<ReplicaSpec> {
        match link.wire() {
            Wire::Node(node) => node.owner_confirmation().mark,
            Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Lite(_) => {
                self.spec.replica_spec()
            }
        }
    }
}
