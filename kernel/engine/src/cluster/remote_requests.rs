//! What a caller may request of this kernel: one closed list of its methods, of its own tools and of the
//! notifications it handles. Each row states which callers of other nodes it is open to, and what is checked for
//! every caller. Anything without a row is closed to other nodes.
//!
//! A row does no more than open a path to a server: whether that server is shared and granted is decided later.
//! MCP-lite, gRPC and the console have no methods of their own: their requests arrive here as one of these.

use mgp_json::lookalike::are_alike;
use mgp_protocol::ids::AgentId;

/// The target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteTarget<'a> {
    /// A method.
    Method(&'a str),
    /// A tool of the kernel, by the method it stands for. Tools of servers are not included.
    KernelTool(&'a str),
    /// A notification.
    Notification(&'a str),
    /// A method of an extension that the kernel does not know, whatever its name: one of a server.
    ExtensionMethod,
}

/// The callers of another node that a row is open to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteCallers {
    /// The node itself, and its agents.
    NodeAndAgents,
    /// Its agents only.
    Agents,
    /// Nobody.
    Nobody,
}

/// What is checked for every caller, of this node and of others, before a method runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodCheck {
    /// Grants and sets, for the called tool.
    Tool,
    /// Grants and sets, for the server as a whole.
    Server,
    /// As [`Self::Server`], and an enabled feature set with that use, which the caller did not disable.
    FeatureSet,
    /// As [`Self::FeatureSet`], and the scopes of the feature set, as the caller narrowed them.
    Channel,
    /// The answer is filtered to what the caller has access to.
    Filtered,
    /// It concerns the connection, calls and tasks of the caller alone.
    CallerOnly,
    /// The authority to administer grants or servers, within the limits of the caller.
    Authority,
    /// The caller is the operator, or presents what only the operator issues.
    Operator,
}

/// Names with the same access for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRule {
    /// Who may request them.
    pub(crate) callers: RemoteCallers,
    /// What is checked for all callers.
    pub check: MethodCheck,
    /// Why access is limited to these callers.
    pub(crate) reason: &'static str,
    names: &'static [&'static str],
}

/// Whether this caller may request the target; callers of this node are not checked here.
#[must_use]
pub fn is_allowed(caller: &AgentId, target: RemoteTarget<'_>) -> bool {
    let Some(foreign) = caller.as_remote() else {
        // A remote id that cannot be parsed belongs to nobody.
        return !caller.is_remote();
    };
    match find_rule(target).map(|row| row.callers) {
        Some(RemoteCallers::NodeAndAgents) => true,
        Some(RemoteCallers::Agents) => *caller != AgentId::for_node(foreign.node),
        Some(RemoteCallers::Nobody) | None => false,
    }
}

/// The rule for a target.
#[must_use]
pub fn find_rule(target: RemoteTarget<'_>) -> Option<&'static RemoteRule> {
    let (rows, name): (&[RemoteRule], &str) = match target {
        RemoteTarget::Method(name) => (&METHODS, name),
        RemoteTarget::KernelTool(name) => (&KERNEL_TOOLS, name),
        RemoteTarget::Notification(name) => (&NOTIFICATIONS, name),
        RemoteTarget::ExtensionMethod => return Some(&EXTENSION_METHODS),
    };
    rows.iter().find(|row| row.names.contains(&name))
}

/// True for a method or notification of this kernel, and for a name that a reader who ignores case takes for one.
#[must_use]
pub(crate) fn is_like_known_method(name: &str) -> bool {
    let rows = METHODS.iter().chain(&NOTIFICATIONS);
    let mut known = rows.flat_map(|row| row.names);
    known.any(|known| are_alike(known, name))
}

/// The methods and notifications with this check.
pub fn methods_with_check(check: MethodCheck) -> impl Iterator<Item = &'static str> {
    let rows = METHODS.iter().chain(&NOTIFICATIONS);
    let rows = rows.filter(move |row| row.check == check);
    rows.flat_map(|row| row.names).copied()
}

const fn open_rule(
    callers: RemoteCallers,
    check: MethodCheck,
    reason: &'static str,
    names: &'static [&'static str],
) -> RemoteRule {
    RemoteRule {
        callers,
        check,
        reason,
        names,
    }
}

const fn closed_rule(
    check: MethodCheck,
    reason: &'static str,
    names: &'static [&'static str],
) -> RemoteRule {
    open_rule(RemoteCallers::Nobody, check, reason, names)
}

/// They have no names here: that the kernel has none of that name, nor one like it, is checked before.
const EXTENSION_METHODS: RemoteRule = open_rule(
    RemoteCallers::Agents,
    MethodCheck::Server,
    "requests to the shared server, which declares their extension, each decided by its grants",
    &[],
);

const METHODS: [RemoteRule; 21] = [
    open_rule(
        RemoteCallers::Agents,
        MethodCheck::Tool,
        "requests to the shared server, each decided by its grants",
        &["tools/call"],
    ),
    open_rule(
        RemoteCallers::Agents,
        MethodCheck::Server,
        "requests to the shared server, each decided by its grants",
        &["prompts/get", "resources/read", "completion/complete"],
    ),
    open_rule(
        RemoteCallers::NodeAndAgents,
        MethodCheck::Filtered,
        "a node shows its agents what a shared server has; a list holds what is open to its caller",
        &[
            "server/discover",
            "tools/list",
            "prompts/list",
            "resources/list",
            "resources/templates/list",
            "subscriptions/listen",
        ],
    ),
    open_rule(
        RemoteCallers::Agents,
        MethodCheck::CallerOnly,
        "an agent follows and ends its own call that goes on as a task",
        &["tasks/get", "tasks/update", "tasks/cancel"],
    ),
    open_rule(
        RemoteCallers::Agents,
        MethodCheck::CallerOnly,
        "an agent ends its own call",
        &["mgp/stream/cancel"],
    ),
    open_rule(
        RemoteCallers::Agents,
        MethodCheck::CallerOnly,
        "an agent answers what a server asked in its own call",
        &["mgp/callback/respond"],
    ),
    open_rule(
        RemoteCallers::Agents,
        MethodCheck::Filtered,
        "an agent follows the events of the shared server, each decided by its grants",
        &["mgp/events/subscribe"],
    ),
    open_rule(
        RemoteCallers::Agents,
        MethodCheck::Server,
        "skills of the shared server, each decided by its grants",
        &["skills/list", "skills/get", "resources/directory/read"],
    ),
    closed_rule(
        MethodCheck::CallerOnly,
        "methods of sessions; requests of other nodes are stateless",
        &["ping", "logging/setLevel", "tasks/result", "tasks/list"],
    ),
    closed_rule(
        MethodCheck::Server,
        "subscriptions of sessions; requests of other nodes are stateless",
        &["resources/subscribe", "resources/unsubscribe"],
    ),
    closed_rule(
        MethodCheck::FeatureSet,
        "a host of MCPL is a session at its own node",
        &[
            "context/beforeInference",
            "context/afterInference",
            "featureSets/update",
            "mcpl/manifest",
            "state/rollback",
        ],
    ),
    closed_rule(
        MethodCheck::Channel,
        "a host of MCPL, and its channels, are a session at its own node",
        &[
            "channels/list",
            "channels/open",
            "channels/close",
            "channels/publish",
        ],
    ),
    closed_rule(
        MethodCheck::Authority,
        "agents are asked at their own node",
        &["mgp/agent/ask"],
    ),
    closed_rule(
        MethodCheck::CallerOnly,
        "the agent's own node keeps its subscriptions and pending callbacks",
        &[
            "mgp/events/unsubscribe",
            "mgp/events/replay",
            "mgp/events/channels",
            "mgp/events/pending_callbacks",
        ],
    ),
    closed_rule(
        MethodCheck::Filtered,
        "the agent's own node searches, and holds the tools of its sessions",
        &[
            "mgp/tools/discover",
            "mgp/tools/request",
            "mgp/tools/session",
            "mgp/tools/session/evict",
        ],
    ),
    closed_rule(
        MethodCheck::Tool,
        "the agent's own node calls what it found",
        &["mgp/tools/call"],
    ),
    closed_rule(
        MethodCheck::Authority,
        "grants and servers of this node are for its operator and agents",
        &[
            "mgp/access/query",
            "mgp/access/grant",
            "mgp/access/revoke",
            "mgp/access/list",
            "mgp/access/explain",
            "mgp/discovery/list",
            "mgp/discovery/register",
            "mgp/discovery/deregister",
        ],
    ),
    closed_rule(
        MethodCheck::Authority,
        "the health, calls and end of this kernel are no business of other nodes' agents",
        &[
            "mgp/health/ping",
            "mgp/health/status",
            "mgp/calls/show",
            "mgp/lifecycle/shutdown",
        ],
    ),
    closed_rule(
        MethodCheck::Operator,
        "the operator's: this kernel and its cluster",
        &[
            "mgp/kernel/status",
            "mgp/kernel/stop",
            "mgp/kernel/upgrade",
            "mgp/kernel/reload",
            "mgp/kernel/tree",
            "mgp/kernel/metrics",
            "mgp/kernel/nodes/id",
            "mgp/kernel/nodes/list",
            "mgp/kernel/nodes/invite",
            "mgp/kernel/nodes/tickets",
            "mgp/kernel/nodes/withdraw",
            "mgp/kernel/nodes/join",
            "mgp/kernel/nodes/admission",
            "mgp/kernel/nodes/approve",
            "mgp/kernel/nodes/refuse",
            "mgp/kernel/nodes/impact",
            "mgp/kernel/nodes/revoke",
            "mgp/kernel/nodes/promote",
            "mgp/kernel/nodes/demote",
            "mgp/kernel/nodes/drain",
            "mgp/kernel/nodes/forget",
            "mgp/kernel/nodes/rename",
            "mgp/kernel/nodes/leave",
            "mgp/kernel/nodes/rekey",
            "mgp/kernel/nodes/recover",
            "mgp/kernel/shares/add",
            "mgp/kernel/shares/remove",
            "mgp/kernel/shares/list",
            "mgp/kernel/lan/on",
            "mgp/kernel/lan/off",
            "mgp/kernel/lan/status",
        ],
    ),
    closed_rule(
        MethodCheck::Operator,
        "the operator's: state, sets, console and recordings",
        &[
            "mgp/kernel/state/log",
            "mgp/kernel/state/rollback",
            "mgp/kernel/groups/list",
            "mgp/kernel/sets/list",
            "mgp/kernel/mcpl/sets",
            "mgp/kernel/mcpl/switch",
            "mgp/kernel/mcpl/forget",
            "mgp/kernel/console/link",
            "mgp/kernel/console/end",
            "mgp/kernel/recorder/follow",
            "mgp/kernel/recorder/play",
        ],
    ),
    closed_rule(
        MethodCheck::Operator,
        "the operator's: agents, servers, audit log and approvals",
        &[
            "mgp/agents/add",
            "mgp/agents/list",
            "mgp/agents/remove",
            "mgp/agents/token",
            "mgp/names/read",
            "mgp/names/list",
            "mgp/index/search",
            "mgp/servers/list",
            "mgp/servers/start",
            "mgp/servers/wait",
            "mgp/servers/stop",
            "mgp/servers/restart",
            "mgp/servers/logs",
            "mgp/servers/pins/list",
            "mgp/servers/pins/show",
            "mgp/servers/pins/confirm",
            "mgp/servers/pins/scan",
            "mgp/audit/replay",
            "mgp/audit/find",
            "mgp/audit/verify",
            "mgp/audit/last",
            "mgp/audit/acknowledge",
            "mgp/approvals/list",
            "mgp/approvals/approve",
            "mgp/approvals/answer",
            "mgp/approvals/deny",
            "mgp/permission/revoke",
            "mgp/permission/grant",
        ],
    ),
];

/// No feature needs one: a node relays its agents' use of its own kernel tools as methods.
const KERNEL_TOOLS: [RemoteRule; 7] = [
    closed_rule(
        MethodCheck::CallerOnly,
        "the agent's own node has this tool, and relays what is open as a method",
        &[
            "mgp/stream/cancel",
            "mgp/stream/pace",
            "mgp/callback/respond",
            "mgp/events/unsubscribe",
            "mgp/events/replay",
            "mgp/events/channels",
            "mgp/events/pending_callbacks",
        ],
    ),
    closed_rule(
        MethodCheck::Filtered,
        "the agent's own node follows events, searches, and holds the tools of its sessions",
        &[
            "mgp/events/subscribe",
            "mgp/tools/discover",
            "mgp/tools/request",
            "mgp/tools/session",
            "mgp/tools/session/evict",
            "mgp/tools/describe",
        ],
    ),
    closed_rule(
        MethodCheck::Tool,
        "the agent's own node calls what it found",
        &[
            "mgp/tools/call",
            "mgp/tools/call_read",
            "mgp/tools/call_write",
        ],
    ),
    closed_rule(
        MethodCheck::FeatureSet,
        "states are rolled back at the agent's own node",
        &["mgp/state/rollback"],
    ),
    closed_rule(
        MethodCheck::Channel,
        "channels are published to at the agent's own node",
        &["mgp/channels/publish"],
    ),
    closed_rule(
        MethodCheck::CallerOnly,
        "results go to other nodes whole; the agent's own node cuts them",
        &["mgp/calls/read"],
    ),
    closed_rule(
        MethodCheck::Authority,
        "this kernel, its grants and its servers are for its operator and agents",
        &[
            "mgp/access/query",
            "mgp/access/grant",
            "mgp/access/revoke",
            "mgp/access/list",
            "mgp/access/explain",
            "mgp/discovery/list",
            "mgp/discovery/register",
            "mgp/discovery/deregister",
            "mgp/agent/ask",
            "mgp/health/ping",
            "mgp/health/status",
            "mgp/lifecycle/shutdown",
            "mgp/audit/replay",
        ],
    ),
];

const NOTIFICATIONS: [RemoteRule; 5] = [
    open_rule(
        RemoteCallers::Agents,
        MethodCheck::CallerOnly,
        "the reader of a call says how fast it reads it, and what it missed",
        &[
            "notifications/mgp.stream.pace",
            "notifications/mgp.stream.gap",
        ],
    ),
    closed_rule(
        MethodCheck::CallerOnly,
        "notifications of sessions; requests of other nodes are stateless",
        &[
            "notifications/progress",
            "notifications/initialized",
            "notifications/roots/list_changed",
        ],
    ),
    closed_rule(
        MethodCheck::CallerOnly,
        "a host of MCPL narrows its own sets, and answers what it was asked, at its own node",
        &["featureSets/update", "inference/chunk"],
    ),
    closed_rule(
        MethodCheck::FeatureSet,
        "a host of MCPL is a session at its own node",
        &["context/afterInference", "inference/lifecycle"],
    ),
    closed_rule(
        MethodCheck::Channel,
        "a host of MCPL, and its channels, are a session at its own node",
        &[
            "channels/publish",
            "channels/outgoing/chunk",
            "channels/outgoing/complete",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use mgp_protocol::ids::{NodeAgent, NodeId};

    use super::*;

    fn alice() -> AgentId {
        let alice = NodeAgent::from_reported(NodeId([7; 32]), "agent.alice");
        AgentId::from_node_agent(&alice.unwrap())
    }

    #[test]
    fn unlisted_requests_are_closed_to_other_nodes_only() {
        let (alice, node) = (alice(), AgentId::for_node(NodeId([7; 32])));
        for target in [
            RemoteTarget::Method("mgp/next/thing"),
            RemoteTarget::KernelTool("mgp/next/thing"),
            RemoteTarget::Notification("notifications/next"),
            RemoteTarget::KernelTool("tools/call"),
            RemoteTarget::Method("mgp/agent/ask"),
            RemoteTarget::KernelTool("mgp/agent/ask"),
        ] {
            assert!(
                !is_allowed(&alice, target) && !is_allowed(&node, target),
                "{target:?}"
            );
            assert!(
                is_allowed(&AgentId::new("agent.alice"), target),
                "{target:?}"
            );
        }
    }

    #[test]
    fn a_node_lists_and_its_agents_call() {
        let (alice, node) = (alice(), AgentId::for_node(NodeId([7; 32])));
        assert!(is_allowed(&alice, RemoteTarget::Method("tools/list")));
        assert!(is_allowed(&node, RemoteTarget::Method("tools/list")));
        assert!(is_allowed(&alice, RemoteTarget::Method("tools/call")));
        assert!(!is_allowed(&node, RemoteTarget::Method("tools/call")));
        let pace = RemoteTarget::Notification("notifications/mgp.stream.pace");
        assert!(is_allowed(&alice, pace) && !is_allowed(&node, pace));
        let extension = RemoteTarget::ExtensionMethod;
        assert!(is_allowed(&alice, extension) && !is_allowed(&node, extension));
    }

    /// A feature that needs a tool of the owner's kernel gets a row of its own here.
    #[test]
    fn no_tool_of_the_kernel_is_open_to_other_nodes() {
        let open = KERNEL_TOOLS
            .iter()
            .filter(|row| row.callers != RemoteCallers::Nobody);
        assert_eq!(open.count(), 0);
    }

    #[test]
    fn each_name_has_one_row() {
        for rows in [&METHODS[..], &KERNEL_TOOLS, &NOTIFICATIONS] {
            let mut names = BTreeSet::new();
            for name in rows.iter().flat_map(|row| row.names) {
                assert!(names.insert(name), "{name}");
            }
        }
    }
}
