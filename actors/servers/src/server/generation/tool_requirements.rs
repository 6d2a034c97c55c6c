//! Call requirements of a server's tools that hold for all callers.

use mgp_engine::policy::requirements::RequirementInputs;
use mgp_engine::policy::risk;
use mgp_engine::servers::replica_spec::ReplicaSpec;

use super::ServerGeneration;
use crate::link::{Link, Wire};

impl ServerGeneration {
    /// The inputs for the requirements of its tools.
    pub(super) fn requirement_terms(&self, link: &Link) -> RequirementInputs {
        let active = link.mgp().as_active();
        let claimed = active.and_then(|active| active.peer.trust_level.as_deref());
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

    /// The replica mark of the server, if it has one.
    pub(super) fn replica_mark(&self, link: &Link) -> Option<ReplicaSpec> {
        match link.wire() {
            Wire::Node(node) => node.owner_confirmation().mark,
            Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Lite(_) => {
                self.spec.replica_spec()
            }
        }
    }
}
