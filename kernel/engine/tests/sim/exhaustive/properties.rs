//! What holds in every state, and what must be seen in some.

use std::sync::{LazyLock, Mutex};

use mgp_engine::policy::grants::{Force, Operation, OperationId};
use mgp_engine::replication::lease::LEASE;
use mgp_engine::replication::replica::Replica;
use stateright::Property;

use super::cluster::{GRANT, OWNER, TWO_ADMINS, node};
use super::steps::{Course, CourseState};
use crate::machine::{Reader, moment};
use crate::model::{allows, ever_admins, ever_revoked};

/// What was read once: the same few entries are in all states.
static READ: LazyLock<Mutex<Reader>> = LazyLock::new(Mutex::default);

pub(super) fn kept() -> Vec<Property<Course>> {
    vec![
        Property::always("no call without a grant in force at the owner", granted),
        Property::always("no revocation is undone", not_undone),
        Property::always(
            "nothing is allowed beyond the lease of an admin",
            all_were_heard,
        ),
        Property::always("a revocation holds everywhere after a lease", in_time),
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
            owner(state).unheard(now).is_some()
        }),
        Property::sometimes("taken back", |_, state: &CourseState| {
            state.cluster.nodes[OWNER].knew
        }),
        Property::sometimes("both are cut", |_, state: &CourseState| {
            let members = owner(state).logs().members();
            TWO_ADMINS.iter().all(|n| !members.is_in(node(*n)))
        }),
        Property::sometimes("owed", |_, state: &CourseState| {
            let mut nodes = state.cluster.nodes.iter();
            nodes.any(|node| node.replica.owes() > 0)
        }),
    ]
}

fn owner(state: &CourseState) -> &Replica {
    &state.cluster.nodes[OWNER].replica
}

/// The operations that a node knows, as an observer reads them.
fn held(replica: &Replica) -> Vec<(OperationId, Operation)> {
    let logs = replica.logs();
    let grants = logs.grants();
    let mut read = READ.lock().unwrap();
    let keys = grants
        .issuers()
        .flat_map(|issuer| grants.keys(issuer, 0).map(move |key| (issuer, key)));
    keys.map(|(issuer, key)| {
        let entry = logs.entry(issuer, key).unwrap();
        let written = read.read(entry, false).unwrap().written();
        (written.id(), written.operation().clone())
    })
    .collect()
}

fn granted(_: &Course, state: &CourseState) -> bool {
    if !state.cluster.allows(OWNER) {
        return true;
    }
    let (held, cluster) = (held(owner(state)), owner(state).logs().cluster());
    let admins = ever_admins(&held, cluster);
    let allows = allows(&held);
    let mut by = allows.get(&GRANT).into_iter().flatten().map(|(by, _)| by);
    by.any(|by| admins.contains(by)) && !ever_revoked(&held, cluster).contains(&GRANT)
}

fn not_undone(_: &Course, state: &CourseState) -> bool {
    let knew = state.cluster.nodes.iter().filter(|node| node.knew);
    let back = |replica: &Replica| {
        let grants = replica.logs().grants();
        let granted = grants.named(GRANT);
        granted.is_some_and(|granted| replica.force(granted, 0) == Force::InForce)
    };
    let mut back = knew.map(|node| back(&node.replica));
    let allowed = state.cluster.nodes[OWNER].knew && state.cluster.allows(OWNER);
    !allowed && back.all(|back| !back)
}

fn lease_s() -> u64 {
    LEASE.as_secs()
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
        !members.is_admin(node(n)) || within
    })
}

fn in_time(_: &Course, state: &CourseState) -> bool {
    let cluster = &state.cluster;
    let Some((by, at_s)) = cluster.revoked else {
        return true;
    };
    let members = owner(state).logs().members();
    let is_cut = members
        .get(node(by))
        .is_some_and(|member| member.cut.is_some());
    is_cut || cluster.now_s < at_s + lease_s() || !cluster.allows(OWNER)
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
        let Some(granted) = logs.grants().named(GRANT) else {
            return true;
        };
        let issuer = logs.members().get(granted.place.issuer);
        let end = issuer.and_then(|issuer| issuer.cut);
        let behind = end.is_some_and(|end| granted.place.sequence >= end);
        !behind || node.replica.force(granted, 0) != Force::InForce
    })
}
