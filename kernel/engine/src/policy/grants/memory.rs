//! How many bytes of memory parts of the logs take, nearly.

use mgp_protocol::ids::NodeId;

use super::{CausalContext, GrantId, GrantResource, LoggedGrant, OperationId, Subject};

/// The counts in front of what is shared.
pub(super) const SHARED_COUNTS: usize = 2 * size_of::<usize>();

/// What a tree of so many takes. Its nodes have room for eleven, and each is two thirds full, or half of it is all
/// that is there.
pub(super) fn tree_memory<T>(len: usize) -> usize {
    match len {
        0 => 0,
        _ => (len * 3 / 2).max(11) * size_of::<T>(),
    }
}

pub(super) fn subject_memory(subject: &Subject) -> usize {
    let name = match subject {
        Subject::Agent(agent) => agent.agent.as_str(),
        Subject::Server(server) => server.server.as_str(),
        Subject::AgentEverywhere(agent) => agent.as_str(),
        Subject::AgentsAt(_) => return 0,
    };
    SHARED_COUNTS + name.len()
}

pub(super) fn resource_memory(resource: &GrantResource) -> usize {
    match resource {
        GrantResource::Server(on) => SHARED_COUNTS + on.server.as_str().len(),
        GrantResource::Tool(on, tool) => SHARED_COUNTS + on.server.as_str().len() + tool.capacity(),
        GrantResource::Tools(on, tools) => {
            let pattern = tools.prefix().map_or(0, str::len) + 1;
            2 * SHARED_COUNTS + on.server.as_str().len() + pattern
        }
        GrantResource::Permission(permission) => permission.capacity(),
    }
}

pub(super) fn granted_memory(granted: &LoggedGrant) -> usize {
    let grant = &granted.grant;
    let texts = [&grant.told_by, &grant.justification];
    let texts = texts.into_iter().flatten().map(String::capacity);
    subject_memory(&grant.subject)
        + resource_memory(&grant.resource)
        + texts.sum::<usize>()
        + grant.replaces.capacity() * size_of::<GrantId>()
        + granted.author.capacity()
}

/// Besides itself.
pub(super) fn context_memory(context: &CausalContext) -> usize {
    tree_memory::<(NodeId, u64)>(context.logs.len())
        + context.branches.capacity() * size_of::<OperationId>()
}
