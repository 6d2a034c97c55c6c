//! Audit events for operations in the cluster's logs, local and remote.

use mgp_engine::policy::access::Principal;
use mgp_engine::policy::grants::{
    ClusterId, EncodedOperation, GrantChange, GrantResource, Grants, LogChange, MemberChange,
    Subject,
};
use mgp_engine::replication::logs::ClusterLogs;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::ids::{NodeId, NodeServer};
use mgp_protocol::mgp::audit::{Actor, ActorKind, Event, EventType, Outcome, Target, TraceId};
use mgp_runtime::randomness;
use mgp_store::audit::{agent_actor, new_event};
use serde_json::{Value, json};

use super::RequestedBy;

/// The event of a change of this node's membership.
pub(super) fn membership_event(by: &RequestedBy, details: Value) -> Event {
    let target = Target::default();
    new_event(
        EventType::CLUSTER_CHANGED,
        event_actor(by),
        target,
        &by.trace,
        Outcome::Success,
        details,
    )
}

/// The event of a change in the logs; `grants` are those before it, `number` is its sequence number.
pub(super) fn change_event(
    change: &LogChange,
    number: Option<u64>,
    cluster: ClusterId,
    (local, grants): (NodeId, &Grants),
    by: &RequestedBy,
) -> Event {
    let (kind, target, mut details) = describe_change(change, local, grants);
    // Not `operation`, which numbers the entries of the node's own journal.
    details["cluster"] = json!(cluster.to_string());
    details["cluster_operation"] = json!(number);
    new_event(
        kind,
        event_actor(by),
        target,
        &by.trace,
        Outcome::Success,
        details,
    )
}

/// The event of an operation that another node wrote, and that `logs` accepted.
pub(super) fn remote_operation_event(written: &EncodedOperation, logs: &ClusterLogs) -> Event {
    let operation = written.operation();
    let (kind, target, mut details) =
        describe_change(&operation.change, logs.local_node(), logs.grants());
    details["cluster"] = json!(logs.cluster().to_string());
    details["cluster_operation"] = json!(written.position().sequence);
    details["author"] = json!(operation.author);
    details["written_at"] = json!(render_rfc3339_ms(operation.told_at_ms));
    remote_event(written.issuer(), kind, target, details)
}

/// The event of many operations of another node that arrived at once.
pub(super) fn bulk_event(issuer: NodeId, count: usize, logs: &ClusterLogs) -> Event {
    let details = json!({
        "cluster": logs.cluster().to_string(),
        "change": "catch_up",
        "operations": count,
        "cluster_operation": logs.grants().tip(issuer).next.checked_sub(1),
    });
    let kind = EventType::CLUSTER_CHANGED;
    remote_event(issuer, kind, Target::default(), details)
}

/// The event of two live nodes that have this node's key.
pub(super) fn duplicate_key_event(node: NodeId, cluster: ClusterId) -> Event {
    let details = json!({
        "cluster": cluster.to_string(),
        "change": "two_lives",
        "node": node.to_string(),
    });
    let kind = EventType::CLUSTER_CHANGED;
    remote_event(node, kind, Target::default(), details)
}

fn remote_event(issuer: NodeId, kind: EventType, target: Target, details: Value) -> Event {
    let actor = Actor {
        kind: ActorKind::Node,
        id: issuer.to_string(),
    };
    let trace = TraceId::from_random(randomness::random_bytes());
    new_event(kind, actor, target, &trace, Outcome::Success, details)
}

/// Describes a change: its type, target and details.
fn describe_change(
    change: &LogChange,
    local: NodeId,
    grants: &Grants,
) -> (EventType, Target, Value) {
    let mut details = json!({});
    let (kind, target) = match change {
        LogChange::Grants(GrantChange::Grant(grant)) => {
            details["grant_id"] = json!(grant.id.to_string());
            details["permission"] = json!(grant.permission);
            details["expires_at"] = json!(grant.not_after_ms.map(render_rfc3339_ms));
            details["justification"] = json!(grant.justification);
            details["granted_by"] = json!(grant.told_by);
            let replaced = grant.replaces.iter().map(ToString::to_string);
            details["replaced"] = replaced.collect();
            if let Some(group) = grant.joined_group() {
                details["group"] = json!(group.to_string());
            }
            let about = (&grant.subject, &grant.resource);
            (EventType::AccessGranted, grant_target(about, local))
        }
        LogChange::Grants(change @ GrantChange::Revoke(_)) => {
            let revoked = change.revoked_ids().iter().map(ToString::to_string);
            details["revoked"] = revoked.collect();
            let mut scopes = change
                .revoked_ids()
                .iter()
                .flat_map(|id| grants.scopes(*id));
            let first = scopes.next();
            let about =
                first.map(|(subject, resource, _)| grant_target((subject, resource), local));
            (EventType::AccessRevoked, about.unwrap_or_default())
        }
        LogChange::Members(change) => (
            describe_member_change(change, &mut details),
            Target::default(),
        ),
        LogChange::Unknown(kind) => {
            details["change"] = json!(kind);
            (EventType::CLUSTER_CHANGED, Target::default())
        }
    };
    (kind, target, details)
}

fn describe_member_change(change: &MemberChange, details: &mut Value) -> EventType {
    let (action, node, name) = match change {
        MemberChange::Found { key, name, .. } => ("found", Some(key.node_id()), Some(name)),
        MemberChange::Admit { key, role, name } => {
            details["role"] = json!(role);
            ("admit", Some(key.node_id()), Some(name))
        }
        MemberChange::Cut { node, at, stays_as } => {
            details["at"] = json!({"next": at.next, "last": at.id.to_string()});
            details["role"] = json!(stays_as);
            let action = if stays_as.is_some() { "demote" } else { "cut" };
            (action, Some(*node), None)
        }
        MemberChange::Rename { node, name } => ("rename", Some(*node), Some(name)),
        MemberChange::Rest {} => ("rest", None, None),
        MemberChange::Rekey { node, key, .. } => {
            details["goes_on_as"] = json!(key.node_id().to_string());
            ("rekey", Some(*node), None)
        }
        MemberChange::Recover { key, name } => ("recover", Some(key.node_id()), Some(name)),
    };
    details["change"] = json!(action);
    details["node"] = json!(node.map(|node| node.to_string()));
    details["name"] = json!(name);
    EventType::CLUSTER_CHANGED
}

/// The target of a grant, by the ids under which calls are recorded, so that grants and calls are found
/// together.
fn grant_target((subject, resource): (&Subject, &GrantResource), local: NodeId) -> Target {
    let agent = match subject {
        Subject::Agent(agent) if agent.node == local => Some(agent.agent.to_string()),
        other @ (Subject::Agent(_) | Subject::AgentsAt(_) | Subject::AgentEverywhere(_)) => {
            other.agent_id().map(|agent| agent.to_string())
        }
        Subject::Server(_) => None,
    };
    let position = |on: &NodeServer| {
        if on.node == local {
            on.server.to_string()
        } else {
            on.to_string()
        }
    };
    let (server, tool) = match resource {
        GrantResource::Server(on) => (Some(position(on)), None),
        GrantResource::Tool(on, tool) => (Some(position(on)), Some(tool.clone())),
        GrantResource::Tools(on, tools) => (Some(position(on)), Some(tools.to_string())),
        GrantResource::Permission(_) | GrantResource::Group(_) => (None, None),
    };
    Target {
        server_id: server,
        tool_name: tool,
        agent_id: agent,
    }
}

fn event_actor(by: &RequestedBy) -> Actor {
    match &by.principal {
        Principal::Operator(name) => Actor {
            // A node that requested it over its own link.
            kind: match NodeId::parse(name) {
                Some(_) => ActorKind::Node,
                None => ActorKind::Operator,
            },
            id: name.to_string(),
        },
        Principal::Agent(agent) | Principal::InSet(agent, _) | Principal::InGroups(agent, ..) => {
            agent_actor(agent.as_str())
        }
    }
}
