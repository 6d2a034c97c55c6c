//! The tree as it runs, read off the links between the actors themselves.

use std::collections::HashMap;

use mgp_callers::exchange::call_stream::CallStreamMsg;
use mgp_callers::tool_cache::ToolCacheMsg;
use mgp_calls::listener::ListenerMsg;
use mgp_doors::session::SessionMsg;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::kernel::ActorNode;
use mgp_runtime::mailbox::Queued;
use mgp_servers::server::ServerMsg;
use ractor::{ActorCell, ActorId, Message};

use super::RootActor;

/// All actors below the tree, in the order of their names.
pub(super) fn actors(
    root: &[RootActor],
    servers: &HashMap<ActorId, (ActorCell, ServerId)>,
) -> ActorNode {
    let root = root.iter().map(|actor| node(actor.name, &actor.cell));
    let servers = servers.values();
    let servers = servers.map(|(cell, id)| node(&format!("server:{id}"), cell));
    sorted("tree", root.chain(servers).collect())
}

fn node(name: &str, cell: &ActorCell) -> ActorNode {
    let under = cell.get_children();
    let under = under.iter().map(|child| node(kind(child), child));
    sorted(name, under.collect())
}

fn sorted(name: &str, mut under: Vec<ActorNode>) -> ActorNode {
    under.sort_by(|one, other| one.name.cmp(&other.name));
    let name = name.to_owned();
    ActorNode { name, under }
}

/// What an actor is that is not at the root, by what it is told.
fn kind(cell: &ActorCell) -> &'static str {
    fn hears<M: Message>(cell: &ActorCell) -> bool {
        cell.is_message_type_of::<M>() == Some(true)
    }
    if hears::<Queued<ServerMsg>>(cell) {
        "instance"
    } else if hears::<Queued<SessionMsg>>(cell) {
        "session"
    } else if hears::<Queued<ToolCacheMsg>>(cell) {
        "tool_cache"
    } else if hears::<Queued<CallStreamMsg>>(cell) {
        "call_stream"
    } else if hears::<ListenerMsg>(cell) {
        "listener"
    } else {
        "connection"
    }
}
