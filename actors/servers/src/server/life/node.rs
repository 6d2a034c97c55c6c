//! One life of a server of another node: there is no process, and it goes on while the link is away. Its tools
//! come from what the node told of it, everything else from the server itself.

use std::sync::Arc;

use mgp_cluster::tool_index::HeldServer;
use mgp_protocol::dialect::Era;
use mgp_protocol::ids::NodeServer;
use mgp_protocol::mgp::health::Health;

use super::ServerLife;
use super::end::End;
use super::handshake::{self, DISCOVER, Found};
use crate::link::{Link, LinkEvent, List, NodeWire, Wire};

impl ServerLife {
    /// A life of a server of another node; begins when that node is linked and shares it.
    pub(in crate::server) async fn of_node(&self, server: &NodeServer) -> End {
        let at = self.spec.id.at_node();
        let node = at.map_or_else(|| server.node.short(), |(node, _)| node.to_owned());
        let links = self.connector.links.clone();
        let wire = NodeWire::new(server.clone(), &node, links, self.connector.held.clone());
        tokio::select! {
            () = wire.there() => {}
            end = self.ordered() => return end,
        }
        let link = self.link(Wire::Node(wire.clone()));
        let shake = async { Ok(handshake::modern(&link).await?) };
        let end = tokio::select! {
            end = self.serve(&link, shake) => end,
            end = self.watched(&link, &wire) => end,
        };
        self.lose(&link, &end);
        end
    }

    /// Follows the link and the tools; resolves when the owner offers something else of the server.
    async fn watched(&self, link: &Arc<Link>, wire: &NodeWire) -> End {
        let (mut peer, mut held) = (wire.linked(), wire.held());
        let confirmed = wire.confirmed();
        loop {
            let (links, tools) = wire.now();
            let (peer_now, held_now) = (wire.linked(), wire.held());
            if !offers_same_tools(held.as_ref(), held_now.as_ref()) {
                link.tells(LinkEvent::ListChanged(List::Tools));
            }
            if wire.contradicts(&confirmed) {
                return End::Failed(format!("{} says something else of it now", wire.node()));
            }
            let linked = match (&peer, &peer_now) {
                (Some(before), Some(now)) => !before.link.is(&now.link),
                (None, Some(_)) => true,
                (Some(_), None) => {
                    self.handle.is_well(Health::Unhealthy);
                    let words = format!("{} is away: it is not linked now", wire.node());
                    self.log().note(&words);
                    false
                }
                (None, None) => false,
            };
            let told = |held: &Option<Arc<HeldServer>>| held.as_ref().map(|held| held.record);
            let differs = held_now.is_some() && told(&held) != told(&held_now);
            // One that is starting cannot say yet what it can do; it is asked when it has started.
            let starting = held_now.as_ref().is_some_and(|held| held.record.starting);
            let asks = (linked || differs) && !starting;
            if !starting && held.as_ref().is_some_and(|held| held.record.starting) {
                // What changed meanwhile was told to nobody.
                link.tells(LinkEvent::ListChanged(List::Prompts));
                link.tells(LinkEvent::ListChanged(List::Resources));
            }
            (peer, held) = (peer_now, held_now);
            if linked {
                self.handle.is_well(Health::Healthy);
                self.log().note(&format!("{} is linked", wire.node()));
            }
            if asks && offers_otherwise(link).await {
                return End::Failed(format!("{} offers something else of it now", wire.node()));
            }
            wire.changed(&links, &tools).await;
        }
    }
}

/// Whether what the server can do is not what the connection began with.
async fn offers_otherwise(link: &Arc<Link>) -> bool {
    let Some(before) = link.peer_in(Era::Modern) else {
        return false;
    };
    match handshake::judge(link.ask_in(Era::Modern, DISCOVER, None).await) {
        Found::Modern(now) | Found::OnlyModern(now) => {
            now.raw_capabilities != before.raw_capabilities
        }
        // It is asked again when it is linked again.
        Found::Other(_) => false,
    }
}

/// Whether both have the same definitions. What did not change is the very same.
fn offers_same_tools(one: Option<&Arc<HeldServer>>, other: Option<&Arc<HeldServer>>) -> bool {
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
