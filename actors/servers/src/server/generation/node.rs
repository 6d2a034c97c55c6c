//! A generation of a server on another node. It has no process, and continues while the link is down. Its tools
//! come from the node's announcement, everything else from the server itself.

use std::sync::Arc;

use mgp_cluster::PeerServer;
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::ids::NodeServer;
use mgp_protocol::mgp::health::Health;

use super::ServerGeneration;
use super::end::End;
use super::handshake::{self, DISCOVER, DiscoverOutcome};
use crate::link::{Link, LinkEvent, List, NodeWire, Wire};

impl ServerGeneration {
    /// Runs a generation, once the node is linked and shares the server.
    pub(in crate::server) async fn run_on_node(&self, server: &NodeServer) -> End {
        let at = self.spec.id.remote_parts();
        let node = at.map_or_else(|| server.node.short_id(), |(node, _)| node.to_owned());
        let links = self.connector.links.clone();
        let wire = NodeWire::new(
            server.clone(),
            &node,
            links,
            self.connector.peer_tools.clone(),
        );
        tokio::select! {
            () = wire.wait_until_available() => {}
            end = self.wait_for_stop() => return end,
        }
        let link = self.build_link(Wire::Node(wire.clone()));
        let handshake_future = async { Ok(handshake::handshake_stateless(&link).await?) };
        let end = tokio::select! {
            end = self.serve(&link, handshake_future) => end,
            end = self.watch_node(&link, &wire) => end,
        };
        self.close_link(&link, &end);
        end
    }

    /// Watches the link and the announced tools; resolves when the owner's offer of the server changes.
    async fn watch_node(&self, link: &Arc<Link>, wire: &NodeWire) -> End {
        let (mut peer, mut shared) = (wire.peer_link(), wire.peer_server());
        let confirmed = wire.owner_confirmation();
        loop {
            let (links, tools) = wire.current();
            let (peer_now, shared_now) = (wire.peer_link(), wire.peer_server());
            if !has_same_tools(shared.as_ref(), shared_now.as_ref()) {
                link.emit(LinkEvent::ListChanged(List::Tools));
            }
            if wire.has_confirmation_changed(&confirmed) {
                return End::Failed(format!(
                    "{} changed what it confirms about this server",
                    wire.node()
                ));
            }
            let linked = match (&peer, &peer_now) {
                (Some(before), Some(now)) => !before.link.is_same_link(&now.link),
                (None, Some(_)) => true,
                (Some(_), None) => {
                    self.handle.set_healthy(Health::Unhealthy);
                    let note = format!("{} is away: it is not linked now", wire.node());
                    self.log().push_note(&note);
                    false
                }
                (None, None) => false,
            };
            let record =
                |shared: &Option<Arc<PeerServer>>| shared.as_ref().map(|shared| shared.record);
            let differs = shared_now.is_some() && record(&shared) != record(&shared_now);
            // A starting server does not know its capabilities yet; it is asked when it has started.
            let starting = shared_now
                .as_ref()
                .is_some_and(|shared| shared.record.starting);
            let should_check = (linked || differs) && !starting;
            if !starting && shared.as_ref().is_some_and(|shared| shared.record.starting) {
                // Changes during the gap were not reported.
                link.emit(LinkEvent::ListChanged(List::Prompts));
                link.emit(LinkEvent::ListChanged(List::Resources));
            }
            (peer, shared) = (peer_now, shared_now);
            if linked {
                self.handle.set_healthy(Health::Healthy);
                self.log().push_note(&format!("{} is linked", wire.node()));
            }
            if should_check && has_offer_changed(link).await {
                return End::Failed(format!("{} changed its offer of this server", wire.node()));
            }
            wire.wait_for_change(&links, &tools).await;
        }
    }
}

/// True if the server's capabilities differ from those at the start of the connection.
async fn has_offer_changed(link: &Arc<Link>) -> bool {
    let Some(before) = link.peer_for(ProtocolFamily::Stateless) else {
        return false;
    };
    match handshake::interpret_discover_answer(
        link.request_in(ProtocolFamily::Stateless, DISCOVER, None)
            .await,
    ) {
        DiscoverOutcome::Stateless(now) | DiscoverOutcome::OnlyStateless(now) => {
            now.raw_capabilities != before.raw_capabilities
        }
        // It is asked again when the node is linked again.
        DiscoverOutcome::Other(_) => false,
    }
}

/// True if both have the same definitions. Unchanged definitions are shared pointers.
fn has_same_tools(one: Option<&Arc<PeerServer>>, other: Option<&Arc<PeerServer>>) -> bool {
    let (one, other) = match (one, other) {
        (Some(one), Some(other)) => (one, other),
        (Some(one), None) | (None, Some(one)) => return one.tools.is_empty(),
        (None, None) => return true,
    };
    let mut pairs = one.tools.iter().zip(&other.tools);
    Arc::ptr_eq(one, other)
        || one.tools.len() == other.tools.len()
            && pairs.all(|((name, tool), (other_name, other))| {
                let (tool, other) = (&tool.definition, &other.definition);
                name == other_name && (Arc::ptr_eq(tool, other) || tool == other)
            })
}
