//! The running tree, read from the links between actors.

use std::collections::HashMap;

use mgp_callers::CallStreamMsg;
use mgp_callers::tool_cache::ToolCacheMsg;
use mgp_calls::listener::ListenerMsg;
use mgp_doors::SessionMsg;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::kernel::ActorNode;
use mgp_runtime::Queued;
use mgp_servers::ServerMsg;
use ractor::{ActorCell, ActorId, Message};

use super::RootActor;

/// All actors below the tree, sorted by name.
pub(super) fn actor_tree(
    root: &[RootActor],
    servers: &HashMap<ActorId, (ActorCell, ServerId)>,
) -> ActorNode {
    let root = root.iter().map(|actor| actor_node(actor.name, &actor.cell));
    let servers = servers.values();
    let servers = servers.map(|(cell, id)| actor_node(&format!("server:{id}"), cell));
    sorted_node("tree", root.chain(servers).collect())
}

fn actor_node(name: &str, cell: &ActorCell) -> ActorNode {
    let children = cell.get_children();
    let kind = |child| match name {
        // All its children are subscriptions.
        "events" => "subscription",
        _ => actor_kind(child),
    };
    let children = children.iter().map(|child| actor_node(kind(child), child));
    sorted_node(name, children.collect())
}

fn sorted_node(name: &str, mut under: Vec<ActorNode>) -> ActorNode {
    under.sort_by(|a, b| a.name.cmp(&b.name));
    let name = name.to_owned();
    ActorNode { name, under }
}

/// The kind of an actor below the root, by its message type.
fn actor_kind(cell: &ActorCell) -> &'static str {
    fn accepts<M: Message>(cell: &ActorCell) -> bool {
        cell.is_message_type_of::<M>() == Some(true)
    }
    if accepts::<Queued<ServerMsg>>(cell) {
        "instance"
    } else if accepts::<Queued<SessionMsg>>(cell) {
        "session"
    } else if accepts::<Queued<ToolCacheMsg>>(cell) {
        "tool_cache"
    } else if accepts::<Queued<CallStreamMsg>>(cell) {
        "call_stream"
    } else if accepts::<ListenerMsg>(cell) {
        "listener"
    } else {
        "connection"
    }
}
