//! Estimates the memory use of parts of the logs, in bytes.

use mgp_protocol::ids::NodeId;

use super::{CausalContext, GrantId, GrantResource, LoggedGrant, OperationId, Subject};

/// The reference counts in front of a shared value.
pub(super) const SHARED_COUNTS: usize = 2 * size_of::<usize>();

/// The memory of a B-tree of this length. Its nodes have space for eleven items; each is about two thirds full, or
/// half full if it is the only one.
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
        GrantResource::Group(group) => SHARED_COUNTS + group.as_str().len(),
    }
}

pub(super) fn granted_memory(granted: &LoggedGrant) -> usize {
    let grant = &granted.grant;
    let texts = [&grant.told_by, &grant.justification, &grant.when];
    let texts = texts.into_iter().flatten().map(String::capacity);
    subject_memory(&grant.subject)
        + resource_memory(&grant.resource)
        + texts.sum::<usize>()
        + grant.replaces.capacity() * size_of::<GrantId>()
        + granted.author.capacity()
}

/// Besides the value itself.
pub(super) fn context_memory(context: &CausalContext) -> usize {
    tree_memory::<(NodeId, u64)>(context.logs.len())
        + context.branches.capacity() * size_of::<OperationId>()
}
