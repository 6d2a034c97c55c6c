//! What holds for the tools of a server, whoever calls them.

use mgp_engine::policy::requirements::RequirementTerms;
use mgp_engine::policy::risk;
use mgp_engine::servers::replica_mark::ReplicaMark;

use super::ServerLife;
use crate::link::{Link, Wire};

impl ServerLife {
    /// The rules for what its tools require.
    pub(super) fn terms(&self, link: &Link) -> RequirementTerms {
        let said = link.mgp().active();
        let claimed = said.and_then(|active| active.peer.trust_level.as_deref());
        RequirementTerms {
            trust: risk::trust(self.spec.mgp.trust_level, claimed),
            rules: match link.wire() {
                Wire::Node(node) => node.confirmed().rules(),
                Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Lite(_) => {
                    self.spec.tools.clone()
                }
            },
        }
    }

    /// Whether it is one of several that are alike.
    pub(super) fn mark(&self, link: &Link) -> Option<ReplicaMark> {
        match link.wire() {
            Wire::Node(node) => node.confirmed().mark,
            Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Lite(_) => self.spec.mark(),
        }
    }
}
