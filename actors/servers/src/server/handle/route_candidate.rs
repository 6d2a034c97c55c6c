//! A server as a candidate for routing a call.

use std::time::Duration;

use mgp_engine::cluster::routes::RouteCandidate;
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_protocol::mgp::discovery::Status;

use super::ServerHandle;
use crate::link::{NodeWire, Wire};

impl ServerHandle {
    /// The current state of this candidate. `idempotent`: the operator marked the called tool as idempotent.
    #[must_use]
    pub fn candidate(&self, idempotent: bool) -> RouteCandidate {
        let link = self.link();
        let round_trip = link.as_ref().and_then(|link| match link.wire() {
            Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Lite(_) => Some(Duration::ZERO),
            Wire::Node(node) => reachable_round_trip(node),
        });
        RouteCandidate {
            server: self.id.clone(),
            accepts_calls: round_trip.is_some() && self.state() == LifecycleState::Connected,
            load: self.in_flight(),
            round_trip: round_trip.unwrap_or_default(),
            idempotent,
        }
    }
}

/// The round-trip time to the server's node, if it is linked and the server is connected there.
fn reachable_round_trip(node: &NodeWire) -> Option<Duration> {
    let connected = node.peer_server()?.record.state == Status::Connected;
    let peer = node.peer_link().filter(|_| connected)?;
    Some(peer.link.round_trip())
}
