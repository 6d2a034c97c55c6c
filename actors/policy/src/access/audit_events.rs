//! The audit events of decisions.

use mgp_engine::policy::access::Principal;
use mgp_engine::policy::grants::{Grant, GrantChange, GrantResource, Grants, Operation, Subject};
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_protocol::ids::{NodeId, NodeServer};
use mgp_protocol::mgp::access::Permission;
use mgp_protocol::mgp::audit::{Actor, ActorKind, Event, EventType, Outcome, Target, TraceId};
use serde_json::{Value, json};

use mgp_store::audit::{agent_actor, new_event};

/// The event of an operation; `grants` is the state before it.
pub(super) fn decision_event(
    operation: &Operation,
    change: &GrantChange,
    grants: &Grants,
    by: &Principal,
    trace: &TraceId,
) -> Event {
    let actor = match by {
        Principal::Operator(name) => Actor {
            kind: ActorKind::Operator,
            id: name.to_string(),
        },
        Principal::Agent(agent) | Principal::InSet(agent, _) | Principal::InGroups(agent, ..) => {
            agent_actor(agent.as_str())
        }
    };
    let details = render_details(operation, change, false);
    build_event(operation, change, grants, actor, trace, details)
}

/// The event of an operation that was on disk but not in the audit log when the kernel ended.
pub(super) fn recovered_event(
    operation: &Operation,
    change: &GrantChange,
    grants: &Grants,
    trace: &TraceId,
) -> Event {
    let actor = Actor {
        kind: ActorKind::Operator,
        id: operation.author.clone(),
    };
    let details = render_details(operation, change, true);
    build_event(operation, change, grants, actor, trace, details)
}

fn build_event(
    operation: &Operation,
    change: &GrantChange,
    grants: &Grants,
    actor: Actor,
    trace: &TraceId,
    mut details: Value,
) -> Event {
    let grant = match change {
        GrantChange::Grant(grant) => Some(grant),
        GrantChange::Revoke(_) => {
            let first = change.revoked_ids().iter().find_map(|id| grants.get(*id));
            first.map(|granted| &granted.grant)
        }
    };
    if let Some(GrantResource::Permission(permission)) = grant.map(|grant| &grant.resource) {
        details["permission_type"] = json!(permission);
        details["decided_by"] = json!(operation.author);
    }
    if let Some(group) = grant.and_then(Grant::joined_group) {
        details["group"] = json!(group.to_string());
    }
    let event_type = event_type(change, operation.told_at_ms, grants, grant);
    let result = if event_type == EventType::PermissionDenied {
        Outcome::Denied
    } else {
        Outcome::Success
    };
    let here = operation.place.issuer;
    let target = grant.map(|grant| target(grant, here)).unwrap_or_default();
    new_event(event_type, actor, target, trace, result, details)
}

fn event_type(
    change: &GrantChange,
    told_at_ms: u64,
    grants: &Grants,
    grant: Option<&Grant>,
) -> EventType {
    let is_for_server = matches!(grant.map(|g| &g.subject), Some(Subject::Server(_)));
    match change {
        GrantChange::Grant(grant) if is_for_server => match grant.permission {
            Permission::Allow => EventType::PermissionGranted,
            Permission::Deny if is_revocation(grant, grants, told_at_ms) => {
                EventType::PermissionRevoked
            }
            Permission::Deny => EventType::PermissionDenied,
        },
        GrantChange::Grant(_) => EventType::AccessGranted,
        GrantChange::Revoke(_) if is_for_server => EventType::PermissionRevoked,
        GrantChange::Revoke(_) => EventType::AccessRevoked,
    }
}

/// Whether a denial revokes an allowance in force.
fn is_revocation(denial: &Grant, grants: &Grants, now_ms: u64) -> bool {
    let allowed = |before: &Grant| {
        let is_expired = before.not_after_ms.is_some_and(|end| end <= now_ms);
        before.permission == Permission::Allow && !is_expired
    };
    let mut replaced = denial.replaces.iter().filter_map(|id| grants.get(*id));
    replaced.any(|granted| allowed(&granted.grant))
}

fn target(grant: &Grant, here: NodeId) -> Target {
    let (agent, of) = match &grant.subject {
        Subject::Agent(agent) => (Some(agent.agent.to_string()), None),
        pattern @ (Subject::AgentsAt(_) | Subject::AgentEverywhere(_)) => {
            (pattern.agent_id().map(|agent| agent.to_string()), None)
        }
        Subject::Server(server) => (None, Some(server.server.to_string())),
    };
    let place = |on: &NodeServer| {
        if on.node == here {
            on.server.to_string()
        } else {
            on.to_string()
        }
    };
    let (server, tool) = match &grant.resource {
        GrantResource::Server(on) => (Some(place(on)), None),
        GrantResource::Tool(on, tool) => (Some(place(on)), Some(tool.clone())),
        GrantResource::Tools(on, tools) => (Some(place(on)), Some(tools.to_string())),
        GrantResource::Permission(_) | GrantResource::Group(_) => (of, None),
    };
    Target {
        server_id: server,
        tool_name: tool,
        agent_id: agent,
    }
}

/// `operation` is the sequence number in this node's journal: each operation has one record.
fn render_details(operation: &Operation, change: &GrantChange, recovered: bool) -> Value {
    let ids = |ids: &[mgp_engine::policy::grants::GrantId]| -> Vec<String> {
        ids.iter().map(ToString::to_string).collect()
    };
    let mut details = json!({"operation": operation.place.sequence});
    match change {
        GrantChange::Grant(grant) => {
            details["grant_id"] = json!(grant.id.to_string());
            details["permission"] = json!(grant.permission);
            details["expires_at"] = json!(grant.not_after_ms.map(render_rfc3339_ms));
            details["justification"] = json!(grant.justification);
            details["granted_by"] = json!(grant.told_by);
            details["replaced"] = json!(ids(&grant.replaces));
            if let Some(when) = &grant.when {
                details["when"] = json!(when);
            }
        }
        GrantChange::Revoke(_) => details["revoked"] = json!(ids(change.revoked_ids())),
    }
    if recovered {
        details["recovered"] = json!(true);
        details["decided_at"] = json!(render_rfc3339_ms(operation.told_at_ms));
    }
    details
}
