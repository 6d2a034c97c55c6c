//! The audit events of what is written to the cluster's logs here.

use mgp_engine::policy::access::Principal;
use mgp_engine::policy::grants::{
    ClusterId, Grant, GrantChange, GrantResource, Grants, LogChange, MemberChange, Subject,
};
use mgp_engine::timestamps::rfc3339_ms;
use mgp_protocol::mgp::audit::{Actor, ActorKind, Event, EventType, Outcome, Target};
use mgp_store::audit::{by_agent, event};
use serde_json::{Value, json};

use super::AskedBy;

/// Of a change of this node's membership.
pub(super) fn of_this_node(by: &AskedBy, details: Value) -> Event {
    let target = Target::default();
    event(
        EventType::CLUSTER_CHANGED,
        actor(by),
        target,
        &by.trace,
        Outcome::Success,
        details,
    )
}

/// Of a change in the logs; `grants` are the ones before it, `number` is its place.
pub(super) fn of_change(
    change: &LogChange,
    number: Option<u64>,
    cluster: ClusterId,
    grants: &Grants,
    by: &AskedBy,
) -> Event {
    // Not `operation`, which numbers the entries of the node's own journal.
    let mut details = json!({"cluster": cluster.to_string(), "cluster_operation": number});
    let (kind, target) = match change {
        LogChange::Grants(GrantChange::Grant(grant)) => {
            details["grant_id"] = json!(grant.id.to_string());
            details["permission"] = json!(grant.permission);
            details["expires_at"] = json!(grant.not_after_ms.map(rfc3339_ms));
            details["justification"] = json!(grant.justification);
            details["granted_by"] = json!(grant.told_by);
            let replaced = grant.replaces.iter().map(ToString::to_string);
            details["replaced"] = replaced.collect();
            (EventType::AccessGranted, target(grant))
        }
        LogChange::Grants(change @ GrantChange::Revoke(_)) => {
            let revoked = change.revoked().iter().map(ToString::to_string);
            details["revoked"] = revoked.collect();
            let first = change.revoked().iter().find_map(|id| grants.named(*id));
            let about = first.map(|granted| target(&granted.grant));
            (EventType::AccessRevoked, about.unwrap_or_default())
        }
        LogChange::Members(change) => (of_members(change, &mut details), Target::default()),
        LogChange::Unknown(kind) => {
            details["change"] = json!(kind);
            (EventType::CLUSTER_CHANGED, Target::default())
        }
    };
    event(
        kind,
        actor(by),
        target,
        &by.trace,
        Outcome::Success,
        details,
    )
}

fn of_members(change: &MemberChange, details: &mut Value) -> EventType {
    let (what, node, name) = match change {
        MemberChange::Found { key, name, .. } => ("found", Some(key.node()), Some(name)),
        MemberChange::Admit { key, role, name } => {
            details["role"] = json!(role);
            ("admit", Some(key.node()), Some(name))
        }
        MemberChange::Cut { node, at } => {
            details["at"] = json!({"next": at.next, "last": at.id.to_string()});
            ("cut", Some(*node), None)
        }
        MemberChange::Rename { node, name } => ("rename", Some(*node), Some(name)),
        MemberChange::Rest {} => ("rest", None, None),
        MemberChange::Rekey { node, key, .. } => {
            details["goes_on_as"] = json!(key.node().to_string());
            ("rekey", Some(*node), None)
        }
        MemberChange::Recover { key, name } => ("recover", Some(key.node()), Some(name)),
    };
    details["change"] = json!(what);
    details["node"] = json!(node.map(|node| node.to_string()));
    details["name"] = json!(name);
    EventType::CLUSTER_CHANGED
}

fn target(grant: &Grant) -> Target {
    let agent = match &grant.subject {
        Subject::Agent(agent) => Some(agent.to_string()),
        Subject::Server(_) => None,
    };
    let (server, tool) = match &grant.resource {
        GrantResource::Server(on) => (Some(on.to_string()), None),
        GrantResource::Tool(on, tool) => (Some(on.to_string()), Some(tool.clone())),
        GrantResource::Permission(_) => (None, None),
    };
    Target {
        server_id: server,
        tool_name: tool,
        agent_id: agent,
    }
}

fn actor(by: &AskedBy) -> Actor {
    match &by.principal {
        Principal::Operator(name) => Actor {
            kind: ActorKind::Operator,
            id: name.to_string(),
        },
        Principal::Agent(agent) => by_agent(agent.as_str()),
    }
}
