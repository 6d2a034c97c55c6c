//! A server as one of several places where a call can go.

use std::time::Duration;

use mgp_engine::cluster::routes::RouteCandidate;
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_protocol::mgp::discovery::Status;

use super::ServerHandle;
use crate::link::{NodeWire, Wire};

impl ServerHandle {
    /// How it is as a place now. `idempotent`: its operator says so of the tool that is called.
    #[must_use]
    pub fn candidate(&self, idempotent: bool) -> RouteCandidate {
        let link = self.link();
        let way = link.as_ref().and_then(|link| match link.wire() {
            Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Lite(_) => Some(Duration::ZERO),
            Wire::Node(node) => reachable_round_trip(node),
        });
        RouteCandidate {
            server: self.id.clone(),
            accepts_calls: way.is_some() && self.state() == LifecycleState::Connected,
            load: self.in_flight(),
            round_trip: way.unwrap_or_default(),
            idempotent,
        }
    }
}

/// The way to its node and back, when the node is linked and says that the server takes calls.
fn reachable_round_trip(node: &NodeWire) -> Option<Duration> {
    let connected = node.peer_server()?.record.state == Status::Connected;
    let peer = node.peer_link().filter(|_| connected)?;
    Some(peer.link.round_trip())
}
