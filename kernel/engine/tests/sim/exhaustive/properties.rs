//! What holds in every state, and what must be seen in some.

use mgp_engine::policy::grants::GrantStatus;
use mgp_engine::replication::lease::DEFAULT_LEASE;
use mgp_engine::replication::replica::Replica;
use stateright::Property;

use super::cluster::{GRANT, OWNER, TWO_ADMINS, node, read};
use super::steps::{Course, CourseState};
use crate::machine::moment;
use crate::model::Held;

pub(super) fn kept() -> Vec<Property<Course>> {
    vec![
        Property::always("no call without a grant in force at the owner", granted),
        Property::always("no revocation is undone", not_undone),
        Property::always(
            "nothing is allowed beyond the lease of an admin",
            all_were_heard,
        ),
        Property::always(
            "a revocation holds at the owner when its answer said so",
            in_time,
        ),
        Property::always("who knows the same decides the same", converge),
        Property::always(
            "who is cut off gives nothing behind the cut",
            cut_gives_nothing,
        ),
    ]
}

pub(super) fn shown() -> Vec<Property<Course>> {
    vec![
        Property::sometimes("allowed", |_, state: &CourseState| {
            state.cluster.allows(OWNER)
        }),
        Property::sometimes("lapsed", |_, state: &CourseState| {
            let now = moment(1000 * state.cluster.now_s);
            owner(state).expired_peer(now).is_some()
        }),
        Property::sometimes("taken back", |_, state: &CourseState| {
            state.cluster.nodes[OWNER].knew
        }),
        Property::sometimes("both are cut", |_, state: &CourseState| {
            let members = owner(state).logs().members();
            TWO_ADMINS.iter().all(|n| !members.is_member(node(*n)))
        }),
        Property::sometimes("owed", |_, state: &CourseState| {
            let mut nodes = state.cluster.nodes.iter();
            nodes.any(|node| node.replica.pending_revokes() > 0)
        }),
    ]
}

fn owner(state: &CourseState) -> &Replica {
    &state.cluster.nodes[OWNER].replica
}

/// What a node knows, as an observer reads it.
fn held(replica: &Replica) -> Held {
    let logs = replica.logs();
    let all = logs.entries();
    let all = all.map(|(_, _, entry)| read(&entry).into_encoded());
    Held::new(all.collect(), logs.cluster())
}

fn granted(_: &Course, state: &CourseState) -> bool {
    if !state.cluster.allows(OWNER) {
        return true;
    }
    let held = held(owner(state));
    let mut by = held.allows(GRANT).map(|(by, _)| by);
    by.any(|by| held.admins.contains(&by)) && !held.revoked.contains(&GRANT)
}

fn not_undone(_: &Course, state: &CourseState) -> bool {
    let knew = state.cluster.nodes.iter().filter(|node| node.knew);
    let back = |replica: &Replica| {
        let granted = replica.logs().find_grant(GRANT);
        granted.is_some_and(|granted| replica.grant_status(&granted, 0) == GrantStatus::InForce)
    };
    let mut back = knew.map(|node| back(&node.replica));
    let allowed = state.cluster.nodes[OWNER].knew && state.cluster.allows(OWNER);
    !allowed && back.all(|back| !back)
}

fn lease_s() -> u64 {
    DEFAULT_LEASE.as_secs()
}

fn all_were_heard(_: &Course, state: &CourseState) -> bool {
    let cluster = &state.cluster;
    if !cluster.allows(OWNER) {
        return true;
    }
    let members = owner(state).logs().members();
    let mut heard = TWO_ADMINS.into_iter().zip(cluster.heard_s);
    heard.all(|(n, heard_s)| {
        let within = heard_s.is_some_and(|sent_s| cluster.now_s < sent_s + lease_s());
        let rests = owner(state).logs().grants().is_resting(node(n));
        !members.is_admin(node(n)) || rests || within
    })
}

fn in_time(_: &Course, state: &CourseState) -> bool {
    let cluster = &state.cluster;
    let Some((by, Some(over_s))) = cluster.revoked else {
        return true;
    };
    let members = owner(state).logs().members();
    let is_cut = members
        .get(node(by))
        .is_some_and(|member| member.cut_at.is_some());
    is_cut || cluster.now_s < over_s || !cluster.allows(OWNER)
}

fn converge(_: &Course, state: &CourseState) -> bool {
    let mut nodes = state.cluster.nodes.iter();
    nodes.all(|node| {
        let (one, other) = (node.replica.logs(), owner(state).logs());
        one.grants() != other.grants() || one.members() == other.members()
    })
}

fn cut_gives_nothing(_: &Course, state: &CourseState) -> bool {
    let mut nodes = state.cluster.nodes.iter();
    nodes.all(|node| {
        let logs = node.replica.logs();
        let Some(granted) = logs.find_grant(GRANT) else {
            return true;
        };
        let issuer = logs.members().get(granted.position.issuer);
        let end = issuer.and_then(|issuer| issuer.cut_at);
        let behind = end.is_some_and(|end| granted.position.sequence >= end);
        !behind || node.replica.grant_status(&granted, 0) != GrantStatus::InForce
    })
}
