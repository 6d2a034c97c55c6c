//! What a caller is told where the other node, or the way to it, is why its request was not done.

use std::time::Duration;

use mgp_cluster::links::PeerLink;
use mgp_protocol::federation::call::CallRefused;
use mgp_protocol::federation::hello::WireFeatures;
use mgp_protocol::refusal::owner_refusal::{OwnerRefusal, OwnerRefusalCause};
use mgp_protocol::refusal::{CallOutcome, Refusal};
use serde_json::value::RawValue;

use super::{NodeRequest, NodeWire};
use crate::link::Link;

impl NodeWire {
    /// Nothing of the request was sent.
    pub(super) fn away(&self, link: &Link) -> Refusal {
        not_done(link, format!("{} is not linked now", self.node))
    }

    pub(super) fn overdue(&self, link: &Link, limit: Duration) -> Refusal {
        Refusal::TimedOut {
            server: link.server.clone(),
            after_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            remote: true,
        }
    }

    /// The owner's own answer. Each says as much of whether the call took effect as the node does
    /// ([`CallRefused::outcome`]).
    pub(super) fn refused(&self, link: &Link, refused: &CallRefused) -> Refusal {
        let node = &self.node;
        match refused {
            CallRefused::AnswerTooLarge { limit, .. } => Refusal::TooLarge {
                server: link.server.clone(),
                limit: *limit,
            },
            CallRefused::CallTooLarge { .. } => Refusal::BadRequest(refused.to_string()),
            CallRefused::Busy => Refusal::Overloaded {
                what: format!("the list of calls under way at {node}"),
            },
            CallRefused::Late => not_done(link, refused.to_string()),
            CallRefused::UnknownAssertion
            | CallRefused::BadAssertion { .. }
            | CallRefused::TooManyHops
            | CallRefused::Malformed { .. } => Refusal::Forbidden(format!("{node}: {refused}")),
            CallRefused::Unknown => link.lost(&refused.to_string()),
        }
    }

    /// An error frame: the server's own error, byte for byte. A node of an older version sends what its kernel refuses
    /// so, too; nothing in the error tells them apart.
    pub(super) fn relay_error(&self, link: &Link, peer: &PeerLink, error: &[u8]) -> Refusal {
        let raw = std::str::from_utf8(error).ok();
        let raw = raw.and_then(|text| RawValue::from_string(text.to_owned()).ok());
        match (raw, has_refusal_frames(peer)) {
            (None, _) => link.faulty("its error cannot be read"),
            (Some(raw), true) => Refusal::Peer(raw),
            (Some(raw), false) => Refusal::Unattributed(raw),
        }
    }

    /// What the owner's kernel refused. A tool that the owner shares and has not for the agent is one that is not
    /// open to it: who is shown it here may know that.
    pub(super) fn refuse_for_owner(
        &self,
        link: &Link,
        peer: &PeerLink,
        request: &NodeRequest<'_>,
        refusal: OwnerRefusal,
    ) -> Refusal {
        if !has_refusal_frames(peer) {
            return link.faulty("its node sent a frame that was not agreed on");
        }
        let unknown = refusal.cause == OwnerRefusalCause::NotFound
            && refusal.outcome == CallOutcome::NotExecuted;
        let tool = request.tool.as_deref().filter(|_| unknown);
        match (tool, &request.agent) {
            (Some(tool), Some(agent)) if self.holds(tool) => Refusal::Closed(format!(
                "{agent} may not call tool {tool} of server {}: nothing allows it at {}, which decides; a grant \
                 for this agent opens it (`mgp grant`)",
                link.server, self.node
            )),
            _ => Refusal::Owner(Box::new(refusal)),
        }
    }

    fn holds(&self, tool: &str) -> bool {
        self.held()
            .is_some_and(|held| held.tools.contains_key(tool))
    }
}

/// Whether the node sends what its kernel refuses as frames of their own.
fn has_refusal_frames(peer: &PeerLink) -> bool {
    let features = peer.link.agreed().features;
    features.contains(WireFeatures::REFUSALS)
}

/// The request did not reach the server.
fn not_done(link: &Link, why: String) -> Refusal {
    Refusal::NotReady {
        server: link.server.clone(),
        state: "disconnected",
        reason: Some(why),
        retry_after_ms: None,
        unreachable: true,
    }
}
