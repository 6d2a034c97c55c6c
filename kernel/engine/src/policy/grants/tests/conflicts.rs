//! PRJ-006: a revoke and a grant of two issuers who did not know of each other.

use mgp_protocol::ids::GroupName;

use super::*;
use crate::policy::grants::conflicts::overlapping_subjects;
use crate::policy::grants::operation::BRANCHES_NAMED_MAX;

fn files() -> NodeServer {
    issuer(1).server(ServerId::new("files"))
}

/// A grant of this, by this name.
fn allow_on(id: u8, resource: GrantResource) -> GrantChange {
    GrantChange::Grant(Grant {
        resource,
        ..grant(id, Permission::Allow, None)
    })
}

fn tool(name: &str) -> GrantResource {
    GrantResource::Tool(files(), name.to_owned())
}

fn replacing(permission: Permission, id: u8, replaces: u8) -> GrantChange {
    GrantChange::Grant(Grant {
        replaces: vec![GrantId([replaces; 16])],
        ..grant(id, permission, None)
    })
}

/// What is in force of some logs, in whatever order they come.
fn in_force_of(logs: &[&Vec<EncodedOperation>]) -> Vec<u8> {
    let there = applied(logs.iter().copied().flatten());
    let back = applied(logs.iter().rev().copied().flatten());
    assert_eq!(there, back);
    in_force(&there, &everyone(), 0)
}

#[test]
fn a_revoke_wins_over_a_grant_that_has_not_seen_it() {
    let first = log(1, vec![allow(1)]);
    let again = log(2, vec![allow(2)]);
    let revoking = log_knowing(3, vec![revoke(1)], &[(1, 1)]);
    assert_eq!(in_force_of(&[&first, &again]), [1, 2]);
    assert!(in_force_of(&[&first, &again, &revoking]).is_empty());
    let grants = applied(first.iter().chain(&again).chain(&revoking));
    let granted = grants.get(GrantId([2; 16])).unwrap();
    let (place, at_ms) = (revoking[0].position(), 1000);
    let conflict = GrantStatus::InConflict {
        revoke: place,
        at_ms,
    };
    assert_eq!(grants.status(granted, &everyone(), 0), conflict);
    let saw_it = log_knowing(2, vec![allow(2)], &[(3, 1)]);
    assert_eq!(in_force_of(&[&first, &saw_it, &revoking]), [2]);
    let stranger = Authority::without_issuers(issuer(1))
        .with_issuer(issuer(1))
        .with_issuer(issuer(2));
    assert_eq!(in_force(&grants, &stranger, 0), [1, 2]);
}

/// As older builds write it, a grant has seen what is before it in its own log.
#[test]
fn without_a_context_a_grant_has_seen_the_revokes_of_its_own_log() {
    let one = log(1, vec![allow(1), revoke(1), allow(2)]);
    assert_eq!(in_force_of(&[&one]), [2]);
    let other = log(2, vec![allow(3), revoke(3)]);
    assert!(in_force_of(&[&one, &other]).is_empty());
}

#[test]
fn a_revoke_closes_what_overlaps_and_nothing_else() {
    let other_server = GrantResource::Server(issuer(1).server(ServerId::new("mail")));
    let unseen = log(
        2,
        vec![
            allow(2),
            allow_on(3, tool("read")),
            allow_on(4, tool("write")),
            allow_on(5, other_server),
        ],
    );
    let of_tool = log(1, vec![allow_on(1, tool("read")), revoke(1)]);
    assert_eq!(in_force_of(&[&unseen, &of_tool]), [4, 5]);
    let of_server = log(1, vec![allow(1), revoke(1)]);
    assert_eq!(in_force_of(&[&unseen, &of_server]), [5]);
    let mut of_another = grant(1, Permission::Allow, None);
    of_another.subject = agent("b");
    let of_another = log(1, vec![GrantChange::Grant(of_another), revoke(1)]);
    assert_eq!(in_force_of(&[&unseen, &of_another]), [2, 3, 4, 5]);
}

/// Who revokes one tool and knows of a grant of its server has left that as it is.
#[test]
fn a_revoke_leaves_what_its_issuer_knew_and_did_not_name() {
    let server = log(2, vec![allow(2)]);
    let changes = || vec![allow_on(1, tool("read")), revoke(1)];
    assert!(in_force_of(&[&server, &log(1, changes())]).is_empty());
    let knowing = log_knowing(1, changes(), &[(2, 1)]);
    assert_eq!(in_force_of(&[&server, &knowing]), [2]);
    let own = log(1, vec![allow(2), allow_on(1, tool("read")), revoke(1)]);
    assert_eq!(in_force_of(&[&own]), [2]);
}

/// The end of a denial takes nothing away, and neither does a grant that another one replaces.
#[test]
fn only_what_takes_back_an_allow_closes_unseen_grants() {
    let unseen = log(2, vec![allow(2)]);
    let reopened = log(1, vec![deny(1), revoke(1)]);
    assert_eq!(in_force_of(&[&unseen, &reopened]), [2]);
    let renewed = log(1, vec![allow(1), replacing(Permission::Allow, 3, 1)]);
    assert_eq!(in_force_of(&[&unseen, &renewed]), [2, 3]);
    let denied = log(
        1,
        vec![allow(1), replacing(Permission::Deny, 3, 1), revoke(3)],
    );
    assert!(in_force_of(&[&unseen, &denied]).is_empty());
}

/// A revoke may come before what it names, which says what it is about.
#[test]
fn a_revoke_of_what_is_not_known_yet_closes_once_it_is() {
    let (first, unseen) = (log(1, vec![allow(1)]), log(2, vec![allow(2)]));
    let revoking = log(3, vec![revoke(1)]);
    let mut grants = applied(revoking.iter().chain(&unseen));
    assert_eq!(in_force(&grants, &everyone(), 0), [2]);
    grants.apply(&first[0]).unwrap();
    assert!(in_force(&grants, &everyone(), 0).is_empty());
}

#[test]
fn a_revoke_of_all_that_an_agent_has_closes_what_it_has_not_seen() {
    let until = BTreeMap::from([(issuer(1), 0)]);
    let subject = agent("a");
    let all = GrantChange::Revoke(Revoke::UpTo { subject, until });
    let (first, revoking) = (log(1, vec![allow(1)]), log(3, vec![all]));
    let unseen = log(2, vec![allow_on(2, tool("read"))]);
    assert!(in_force_of(&[&first, &unseen, &revoking]).is_empty());
    let saw_it = log_knowing(2, vec![allow(2)], &[(3, 1)]);
    assert_eq!(in_force_of(&[&first, &saw_it, &revoking]), [2]);
}

/// A number names one operation only where a log is not forked: behind that, what was seen is named by its id.
#[test]
fn a_number_says_nothing_behind_a_fork() {
    let first = log(1, vec![allow(1)]);
    let one = log(3, vec![deny(7), revoke(1)]);
    let other = log(3, vec![deny(7), revoke(9), revoke(1)]);
    let saw_one = log_knowing(2, vec![allow(2)], &[(3, 2)]);
    assert_eq!(in_force_of(&[&first, &one, &saw_one]), [2, 7]);
    assert_eq!(in_force_of(&[&first, &one, &other, &saw_one]), [7]);
    let grants = applied(first.iter().chain(&one).chain(&other));
    let again = LogChange::Grants(allow(2));
    let context = grants.causal_context(&again, issuer(2));
    assert_eq!(context.branches.len(), 2);
    let mut again = log(2, vec![allow(2)]).remove(0).into_operation();
    again.context = context;
    let again = vec![EncodedOperation::new(again)];
    assert_eq!(in_force_of(&[&first, &one, &other, &again]), [2, 7]);
}

/// Each revoke of an issuer is judged by what it knew itself, also when a later one in its log knew more.
#[test]
fn a_later_revoke_that_knows_more_does_not_excuse_an_earlier_one() {
    let first = log(1, vec![allow(1), allow(8)]);
    let mut revoking = log_knowing(3, vec![revoke(1), revoke(8)], &[(1, 2)]);
    let mut last = revoking.remove(1).into_operation();
    last.context.logs.insert(issuer(2), 1);
    let last = EncodedOperation::new(last);
    let unseen = log(2, vec![allow(2)]);
    let both = vec![revoking[0].clone(), last];
    assert!(in_force_of(&[&first, &both, &unseen]).is_empty());
    let knowing = [(1, 2), (2, 1), (4, 1)];
    let knowing = log_knowing(3, vec![revoke(1)], &knowing);
    let other = log(4, vec![allow(4)]);
    assert_eq!(in_force_of(&[&first, &knowing, &unseen, &other]), [2, 4, 8]);
}

/// What is looked up for a subject is what comparing it with each other one finds, once.
#[test]
fn looked_up_subjects_are_those_that_overlap() {
    let names = ["agent.a", "agent.b", "zz"].map(AgentId::new);
    let groups = ["x", "y"].map(|name| GroupName::parse(name).unwrap());
    let mut all: Vec<Subject> = groups.iter().map(Subject::cluster_group).collect();
    all.extend(names.iter().cloned().map(Subject::AgentEverywhere));
    for node in [issuer(1), issuer(2)] {
        all.push(Subject::AgentsAt(node));
        all.push(Subject::Server(node.server(ServerId::new("files"))));
        all.extend(
            names
                .iter()
                .map(|name| Subject::Agent(node.agent(name.clone()))),
        );
    }
    let stored: BTreeMap<Subject, ()> = all.iter().map(|it| (it.clone(), ())).collect();
    // A group of one node is looked up, but has no entries beside those of other issuers.
    all.push(Subject::local_group(&groups[0], issuer(1)));
    for subject in &all {
        let found = overlapping_subjects(&stored, subject);
        let mut found: Vec<_> = found.map(|(it, ())| it).collect();
        found.sort();
        let expected: Vec<_> = stored.keys().filter(|it| it.overlaps(subject)).collect();
        assert_eq!(found, expected, "{subject:?}");
    }
}

/// Two operations that name other ones before them show a fork at the position before, which nobody can name by number.
#[test]
fn a_fork_is_where_its_branches_part() {
    let first = log(1, vec![allow(1)]);
    let one = log(3, vec![deny(7), deny(6), revoke(9)]);
    let other = log(3, vec![deny(7), deny(5), revoke(1)]);
    let saw = |count| log_knowing(2, vec![allow(2)], &[(3, count)]);
    let known: Vec<_> = [&first[0], &one[0], &one[2], &other[2]]
        .into_iter()
        .cloned()
        .collect();
    for count in 0..4 {
        // Only the first operation is certain: the revoke may be on a branch that was not seen.
        assert_eq!(in_force_of(&[&known, &saw(count)]), [7], "{count}");
    }
    let straight = log(3, vec![deny(7), revoke(1)]);
    assert_eq!(in_force_of(&[&first, &straight, &saw(2)]), [2, 7]);
    assert_eq!(in_force_of(&[&first, &straight, &saw(1)]), [7]);
}

/// A context with more names than fit says as little as one that cannot be read.
#[test]
fn a_context_names_no_more_than_fits() {
    let node = |n: u64| {
        let mut node = [0; 32];
        node[..8].copy_from_slice(&n.to_be_bytes());
        NodeId(node)
    };
    let id = |n: u64| OperationId(node(n).0);
    let empty_after_reading = |logs: usize, branches: usize| {
        let mut operation = log(2, vec![allow(2)]).remove(0).into_operation();
        operation.context = CausalContext {
            logs: (0..logs as u64).map(|n| (node(n), 1)).collect(),
            branches: (0..branches as u64).map(id).collect(),
        };
        let written = EncodedOperation::new(operation);
        let read = EncodedOperation::decode(written.body().unwrap()).unwrap();
        read.operation().context.is_empty()
    };
    assert!(!empty_after_reading(ISSUERS_MAX, BRANCHES_NAMED_MAX));
    assert!(empty_after_reading(ISSUERS_MAX + 1, 1));
    assert!(empty_after_reading(1, BRANCHES_NAMED_MAX + 1));
}

/// A context that cannot be read says that nothing was known; builds without contexts pass over it.
#[test]
fn a_context_is_read_as_it_was_written_and_an_unreadable_one_as_none() {
    let written = log_knowing(2, vec![allow(2)], &[(3, 4)]).remove(0);
    let read = EncodedOperation::decode(written.body().unwrap()).unwrap();
    assert_eq!(read, written);
    let mut value = serde_json::to_value(written.operation()).unwrap();
    for odd in [serde_json::json!(7), serde_json::json!({"logs": "all"})] {
        value["context"] = odd;
        let body = rmp_serde::to_vec_named(&value).unwrap();
        let read = EncodedOperation::decode(&body).unwrap();
        assert!(read.operation().context.is_empty());
        assert_eq!(read.operation().change, written.operation().change);
        assert_eq!(read.body().unwrap(), body);
    }
}

/// What is in force of some logs, for whomever.
fn all_in_force(logs: &[&Vec<EncodedOperation>]) -> Vec<u8> {
    let grants = applied(logs.iter().copied().flatten());
    assert_eq!(grants, applied(logs.iter().rev().copied().flatten()));
    let counts = |g: &&LoggedGrant| grants.status(g, &everyone(), 0) == GrantStatus::InForce;
    let mut found: Vec<u8> = grants
        .iter()
        .filter(counts)
        .map(|g| g.grant.id.0[0])
        .collect();
    found.sort_unstable();
    found
}

/// A revoke and a grant that did not know of each other meet wherever somebody and something can be meant by both.
#[test]
fn a_revoke_closes_unseen_patterns_that_overlap_and_nothing_else() {
    let to = |id: u8, subject: Subject, resource: GrantResource| {
        GrantChange::Grant(Grant {
            subject,
            resource,
            ..grant(id, Permission::Allow, None)
        })
    };
    let server = || GrantResource::Server(files());
    let tools = |pattern: &str| {
        let pattern = pattern.to_owned().try_into();
        GrantResource::Tools(files(), pattern.unwrap())
    };
    let named = |name: &str| Subject::AgentEverywhere(AgentId::new(name));
    let unseen = vec![
        to(2, Subject::AgentsAt(issuer(1)), server()),
        to(3, Subject::AgentsAt(issuer(2)), server()),
        to(4, named("a"), tools("re*")),
        to(5, named("b"), tools("re*")),
        to(6, agent("a"), tools("wr*")),
        to(7, agent("a"), tools("read_*")),
    ];
    let unseen = log(2, unseen);
    let left = |revoked: GrantChange| {
        let revoking = log(1, vec![revoked, revoke(1)]);
        all_in_force(&[&unseen, &revoking])
    };
    assert_eq!(left(allow_on(1, tool("read"))), [3, 5, 6, 7]);
    assert_eq!(left(allow_on(1, tool("read_it"))), [3, 5, 6]);
    assert_eq!(left(to(1, agent("a"), tools("r*"))), [3, 5, 6]);
    assert_eq!(left(to(1, agent("b"), server())), [3, 4, 6, 7]);
    assert_eq!(
        left(to(1, Subject::AgentsAt(issuer(1)), tools("w*"))),
        [3, 4, 5, 7]
    );
    assert_eq!(left(to(1, named("b"), server())), [4, 6, 7]);
    let knew = log_knowing(1, vec![allow_on(1, tool("read")), revoke(1)], &[(2, 6)]);
    assert_eq!(all_in_force(&[&unseen, &knew]), [2, 3, 4, 5, 6, 7]);
    let revoking = log(1, vec![allow_on(1, tool("read")), revoke(1)]);
    let saw_it = vec![to(2, Subject::AgentsAt(issuer(1)), server())];
    let saw_it = log_knowing(2, saw_it, &[(1, 2)]);
    assert_eq!(all_in_force(&[&saw_it, &revoking]), [2]);
    let grants = applied(&revoking);
    let change = LogChange::Grants(to(2, Subject::AgentsAt(issuer(1)), server()));
    let context = grants.causal_context(&change, issuer(2));
    assert_eq!(context.logs, [(issuer(1), 2)].into());
}

/// A context of so much of these logs.
fn knows(logs: &[(u8, u64)]) -> CausalContext {
    CausalContext {
        logs: logs
            .iter()
            .map(|(log, next)| (issuer(*log), *next))
            .collect(),
        branches: Vec::new(),
    }
}

fn up_to(subject: Subject) -> GrantChange {
    let until = BTreeMap::from([(issuer(1), 9)]);
    GrantChange::Revoke(Revoke::UpTo { subject, until })
}

/// What an issuer says it knew: for a grant the revokes that could close it, for a revoke the grants that it leaves.
#[test]
fn a_context_names_the_logs_that_a_conflict_depends_on() {
    let one = log(
        1,
        vec![allow_on(1, tool("a")), allow_on(2, tool("b")), deny(3)],
    );
    let two = log(2, vec![revoke(1), allow_on(4, tool("a"))]);
    let three = log(
        3,
        vec![allow_on(5, tool("a")), allow_on(6, tool("b")), revoke(6)],
    );
    let grants = applied(one.iter().chain(&two).chain(&three));
    let context = |change: GrantChange, by: u8| {
        let change = LogChange::Grants(change);
        grants.causal_context(&change, issuer(by))
    };
    // The first two are revokes of `a` and `b`, each by another one.
    for (change, by, expected) in [
        (allow_on(9, tool("a")), 1, knows(&[(2, 2)])),
        (allow_on(9, tool("a")), 2, knows(&[])),
        (allow_on(9, tool("b")), 1, knows(&[(3, 3)])),
        (allow_on(9, tool("c")), 1, knows(&[])),
        (allow(9), 1, knows(&[(2, 2), (3, 3)])),
        (deny(9), 1, knows(&[])),
        (revoke(1), 1, knows(&[(2, 2), (3, 3)])),
        (revoke(1), 2, knows(&[(3, 3)])),
        (revoke(4), 1, knows(&[(3, 3)])),
        (revoke(3), 1, knows(&[])),
        (revoke(2), 1, knows(&[])),
        (replacing(Permission::Deny, 9, 4), 1, knows(&[(3, 3)])),
        (up_to(agent("a")), 1, knows(&[(2, 2), (3, 3)])),
        (up_to(agent("b")), 1, knows(&[])),
    ] {
        assert_eq!(context(change.clone(), by), expected, "{change:?} of {by}");
    }
    let members = LogChange::Members(MemberChange::Rest {});
    assert_eq!(grants.causal_context(&members, issuer(1)), knows(&[]));
}

/// A number says nothing behind a gap: what is known there is named by itself, each once, and not without end.
#[test]
fn what_is_known_behind_a_gap_is_named_one_by_one() {
    let one = log(1, vec![allow(1)]);
    let many = usize::from(u8::MAX);
    let two = log(2, (0..many).map(|_| revoke(1)).collect());
    let context = |known: &[EncodedOperation]| {
        let grants = applied(one.iter().chain(known));
        grants.causal_context(&LogChange::Grants(allow(9)), issuer(1))
    };
    let behind = context(&two[1..3]);
    assert!(behind.logs.is_empty());
    assert_eq!(behind.branches, [two[1].id(), two[2].id()]);
    let both = context(&[&two[..1], &two[2..4]].concat());
    assert_eq!(both.logs, knows(&[(2, 1)]).logs);
    assert_eq!(both.branches, [two[2].id(), two[3].id()]);
    let bound = super::super::operation::BRANCHES_NAMED_MAX;
    assert_eq!(context(&two[1..]).branches.len(), bound);
    // A left grant there is not named: the revoke closes it, and it is granted again.
    let three = log(3, vec![allow(7), allow(8)]);
    let grants = applied(one.iter().chain(&three[1..]));
    assert_eq!(
        grants.causal_context(&LogChange::Grants(revoke(1)), issuer(1)),
        knows(&[])
    );
}

/// Before it is signed, a revoke says which grants it would close without naming them.
#[test]
fn a_revoke_beats_what_it_does_not_know() {
    let one = log(1, vec![allow_on(1, tool("a")), deny(3)]);
    let two = log(
        2,
        vec![allow_on(4, tool("a")), allow_on(5, tool("b")), allow(6)],
    );
    let grants = applied(one.iter().chain(&two));
    let place = LogPosition {
        issuer: issuer(1),
        sequence: 2,
    };
    let beaten = |change: GrantChange, known: &[(u8, u64)]| {
        let GrantChange::Revoke(revoke) = change else {
            panic!("a revoke");
        };
        let context = knows(known);
        let beaten = grants
            .iter()
            .filter(|it| grants.is_overridden_by(it, (&revoke, &context), place));
        beaten.map(|it| it.grant.id.0[0]).collect::<Vec<_>>()
    };
    assert_eq!(beaten(revoke(1), &[]), [4, 6]);
    assert_eq!(beaten(revoke(1), &[(2, 1)]), [6], "it knew the first one");
    assert_eq!(beaten(revoke(1), &[(2, 3)]), [0; 0]);
    assert_eq!(beaten(revoke(3), &[]), [0; 0], "it ends a denial");
    assert_eq!(beaten(revoke(9), &[]), [0; 0], "nothing is known of it");
    assert_eq!(beaten(up_to(agent("a")), &[(2, 1)]), [5, 6]);
    assert_eq!(beaten(up_to(agent("b")), &[]), [0; 0]);
    assert_eq!(
        beaten(revoke(5), &[]),
        [5, 6],
        "the server has this tool, too"
    );
}

/// A grant that names single revokes has seen these, and what their issuers saw of it.
#[test]
fn a_grant_that_names_single_revokes_has_seen_no_others() {
    let first = log(1, vec![allow(1)]);
    let revoking = log_knowing(3, vec![revoke(1), revoke(1), revoke(1)], &[(1, 1)]);
    let granted = |named: &[usize], logs: &[(u8, u64)]| {
        let mut operation = log(2, vec![allow(2)]).remove(0).into_operation();
        operation.context = knows(logs);
        operation.context.branches = named.iter().map(|at| revoking[*at].id()).collect();
        vec![EncodedOperation::new(operation)]
    };
    for (named, logs, counts) in [
        (&[0, 1, 2][..], &[][..], true),
        (&[0, 1], &[], false),
        (&[1, 2], &[], false),
        (&[1, 2], &[(3, 1)], true),
        (&[2], &[(3, 1)], false),
        (&[2], &[(3, 2)], true),
    ] {
        let grant = granted(named, logs);
        let found = in_force_of(&[&first, &revoking, &grant]);
        assert_eq!(found == [2], counts, "{named:?} {logs:?}");
    }
    let saw_the_grant = log_knowing(3, vec![revoke(1)], &[(1, 1), (2, 1)]);
    let mut other = log(2, vec![allow(2)]).remove(0).into_operation();
    other.context.branches = vec![OperationId([9; 32])];
    assert_eq!(
        in_force_of(&[&first, &saw_the_grant, &vec![EncodedOperation::new(other)]]),
        [2]
    );
}
