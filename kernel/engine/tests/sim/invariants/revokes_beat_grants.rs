//! What was taken back is given again only by who knew that it was taken back.

use std::collections::BTreeSet;

use mgp_engine::policy::grants::{
    Grant, GrantId, GrantResource, GrantStatus, OperationId, SignedOperation, Subject,
};
use mgp_protocol::ids::{NodeId, NodeServer};
use mgp_protocol::mgp::access::Permission;

use crate::invariants::members_converge::those_in;
use crate::model::Held;
use crate::play::Invariant;
use crate::world::World;

/// PRJ-006: revocation wins on conflict.
#[derive(Default)]
pub(crate) struct RevokesBeatGrants;

impl Invariant for RevokesBeatGrants {
    fn holds(&mut self, world: &World) {
        for call in &world.calls {
            for (by, grant) in call.held.allows(call.grant) {
                judge(world, &call.held, by, grant);
                judge_unsigned(world, &call.held, call.machine, grant);
            }
        }
    }

    fn holds_at_the_end(&mut self, world: &World) {
        for at in those_in(world) {
            let replica = world.machines[at].replica.as_ref().unwrap();
            let logs = replica.logs();
            let entries = logs.entries();
            let read = entries.map(|(_, _, entry)| SignedOperation::from_bytes(&entry).unwrap());
            let held = Held::new(
                read.map(SignedOperation::into_encoded).collect(),
                world.cluster,
            );
            for granted in logs.grants().iter() {
                let allows = granted.grant.permission == Permission::Allow;
                if allows && replica.grant_status(granted, 0) == GrantStatus::InForce {
                    judge(world, &held, granted.position.issuer, &granted.grant);
                }
            }
        }
    }
}

/// What is in force at a machine, by all it holds.
fn judge(world: &World, held: &Held, by: NodeId, grant: &Grant) {
    for (id, (withdrew, ids)) in &held.withdrawals {
        // Of a key that two machines have, one does not know what the other one wrote.
        if is_shared_key(world, *withdrew) || is_shared_key(world, by) {
            continue;
        }
        if overlaps(held, ids, grant) && !knew_withdrawal(world, grant.id, *id) {
            let mut asked = world.withdrawals.iter();
            let spared = asked.any(|asked| {
                asked.by == *withdrew && asked.grants == *ids && knows(&asked.known, grant.id)
            });
            assert!(spared, "{grant:?} undoes {id} of {withdrew}, unseen");
        }
    }
}

/// What a machine was asked to take back, and could not sign yet, counts at that machine.
fn judge_unsigned(world: &World, held: &Held, at: usize, grant: &Grant) {
    let asked = world.withdrawals.iter();
    for asked in asked.filter(|asked| asked.machine == at && asked.acknowledged) {
        let mut signed = held.withdrawals.values();
        let is_signed = signed.any(|(by, ids)| *by == asked.by && *ids == asked.grants);
        let beaten = !is_signed && overlaps(held, &asked.grants, grant);
        assert!(
            !beaten || knows(&asked.known, grant.id),
            "{grant:?} undoes what {at} was asked for"
        );
    }
}

fn is_shared_key(world: &World, node: NodeId) -> bool {
    let mut machines = world.machines.iter();
    machines.any(|machine| machine.cloned && machine.node() == node)
}

fn knows(held: &Held, grant: GrantId) -> bool {
    held.allows(grant).next().is_some()
}

/// Whether the issuer of a grant knew an operation when it wrote it.
fn knew_withdrawal(world: &World, grant: GrantId, id: OperationId) -> bool {
    let known = world.known_at_grant.get(&grant);
    known.is_some_and(|known| known.withdrawals.contains_key(&id))
}

/// Whether one of the grants that were taken back is about the same.
fn overlaps(held: &Held, ids: &BTreeSet<GrantId>, grant: &Grant) -> bool {
    let mut named = ids.iter().flat_map(|id| held.allows(*id));
    named.any(|(_, other)| {
        other.id != grant.id
            && same_agent(&grant.subject, &other.subject)
            && same_tool(&grant.resource, &other.resource)
    })
}

/// Whether there can be an agent that both mean: the nodes and the names they give do not differ.
fn same_agent(one: &Subject, other: &Subject) -> bool {
    let parts = |subject: &Subject| match subject {
        Subject::Agent(agent) => (Some(agent.node), Some(agent.agent.clone())),
        Subject::AgentsAt(node) => (Some(*node), None),
        Subject::AgentEverywhere(agent) => (None, Some(agent.clone())),
        Subject::Server(_) => unreachable!("servers are granted nothing here"),
    };
    let ((node, name), (other_node, other_name)) = (parts(one), parts(other));
    let nodes = node.zip(other_node).is_none_or(|(one, other)| one == other);
    nodes && name.zip(other_name).is_none_or(|(one, other)| one == other)
}

/// Whether there can be a tool that both mean.
fn same_tool(one: &GrantResource, other: &GrantResource) -> bool {
    let (Some((on, beginning)), Some((of, other_beginning))) = (meant(one), meant(other)) else {
        return false;
    };
    let (one, other) = (
        beginning.trim_end_matches('*'),
        other_beginning.trim_end_matches('*'),
    );
    let within = |long: &str, short: &str, pattern: &str| {
        long == short || pattern.ends_with('*') && long.starts_with(short)
    };
    on == of && (within(one, other, &other_beginning) || within(other, one, &beginning))
}

/// The server, and which of its tools, as a pattern.
fn meant(resource: &GrantResource) -> Option<(&NodeServer, String)> {
    match resource {
        GrantResource::Server(on) => Some((on, "*".to_owned())),
        GrantResource::Tool(on, tool) => Some((on, tool.clone())),
        GrantResource::Tools(on, tools) => Some((on, tools.to_string())),
        GrantResource::Permission(_) | GrantResource::Group(_) => None,
    }
}
