//! The audit events of what is written to the cluster's logs, here and elsewhere.

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

/// Of a change of this node's membership.
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

/// Of a change in the logs; `grants` are the ones before it, `number` is its place.
pub(super) fn change_event(
    change: &LogChange,
    number: Option<u64>,
    cluster: ClusterId,
    (here, grants): (NodeId, &Grants),
    by: &RequestedBy,
) -> Event {
    let (kind, target, mut details) = describe_change(change, here, grants);
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

/// Of an operation that another node wrote, and `logs` hold.
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

/// Of so many operations of another node that came at once.
pub(super) fn bulk_event(issuer: NodeId, many: usize, logs: &ClusterLogs) -> Event {
    let details = json!({
        "cluster": logs.cluster().to_string(),
        "change": "catch_up",
        "operations": many,
        "cluster_operation": logs.grants().tip(issuer).next.checked_sub(1),
    });
    let kind = EventType::CLUSTER_CHANGED;
    remote_event(issuer, kind, Target::default(), details)
}

/// Of two living nodes that have this node's key.
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

/// What a change is, about what, and what else there is to say of it.
fn describe_change(
    change: &LogChange,
    here: NodeId,
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
            let about = (&grant.subject, &grant.resource);
            (EventType::AccessGranted, grant_target(about, here))
        }
        LogChange::Grants(change @ GrantChange::Revoke(_)) => {
            let revoked = change.revoked_ids().iter().map(ToString::to_string);
            details["revoked"] = revoked.collect();
            let mut scopes = change
                .revoked_ids()
                .iter()
                .flat_map(|id| grants.scopes(*id));
            let first = scopes.next();
            let about = first.map(|(subject, resource, _)| grant_target((subject, resource), here));
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
    let (what, node, name) = match change {
        MemberChange::Found { key, name, .. } => ("found", Some(key.node_id()), Some(name)),
        MemberChange::Admit { key, role, name } => {
            details["role"] = json!(role);
            ("admit", Some(key.node_id()), Some(name))
        }
        MemberChange::Cut { node, at, stays_as } => {
            details["at"] = json!({"next": at.next, "last": at.id.to_string()});
            details["role"] = json!(stays_as);
            let what = if stays_as.is_some() { "demote" } else { "cut" };
            (what, Some(*node), None)
        }
        MemberChange::Rename { node, name } => ("rename", Some(*node), Some(name)),
        MemberChange::Rest {} => ("rest", None, None),
        MemberChange::Rekey { node, key, .. } => {
            details["goes_on_as"] = json!(key.node_id().to_string());
            ("rekey", Some(*node), None)
        }
        MemberChange::Recover { key, name } => ("recover", Some(key.node_id()), Some(name)),
    };
    details["change"] = json!(what);
    details["node"] = json!(node.map(|node| node.to_string()));
    details["name"] = json!(name);
    EventType::CLUSTER_CHANGED
}

/// By the ids that calls are recorded under, so that what was granted is found with what was called.
fn grant_target((subject, resource): (&Subject, &GrantResource), here: NodeId) -> Target {
    let agent = match subject {
        Subject::Agent(agent) if agent.node == here => Some(agent.agent.to_string()),
        other @ (Subject::Agent(_) | Subject::AgentsAt(_) | Subject::AgentEverywhere(_)) => {
            other.agent_id().map(|agent| agent.to_string())
        }
        Subject::Server(_) => None,
    };
    let place = |on: &NodeServer| {
        if on.node == here {
            on.server.to_string()
        } else {
            on.to_string()
        }
    };
    let (server, tool) = match resource {
        GrantResource::Server(on) => (Some(place(on)), None),
        GrantResource::Tool(on, tool) => (Some(place(on)), Some(tool.clone())),
        GrantResource::Tools(on, tools) => (Some(place(on)), Some(tools.to_string())),
        GrantResource::Permission(_) => (None, None),
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
            // A node that asked by its own link.
            kind: match NodeId::parse(name) {
                Some(_) => ActorKind::Node,
                None => ActorKind::Operator,
            },
            id: name.to_string(),
        },
        Principal::Agent(agent) | Principal::InSet(agent, _) => agent_actor(agent.as_str()),
    }
}
