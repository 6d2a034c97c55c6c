//! Which operations no node takes, and what an operation says.

use super::*;
use crate::node_key::NodeKey;
use crate::policy::tool_pattern::ToolPattern;

fn operation(change: LogChange) -> Operation {
    Operation {
        cluster: None,
        place: LogPosition {
            issuer: issuer(1),
            sequence: 0,
        },
        previous: OperationId::START,
        author: "admin".into(),
        told_at_ms: 0,
        change,
        context: CausalContext::default(),
    }
}

fn granting(grant: Grant) -> Operation {
    operation(LogChange::Grants(GrantChange::Grant(grant)))
}

fn revoking(revoke: Revoke) -> Operation {
    operation(LogChange::Grants(GrantChange::Revoke(revoke)))
}

fn plain() -> Grant {
    grant(1, Permission::Allow, None)
}

fn text(length: usize) -> String {
    "x".repeat(length)
}

fn ids(count: usize) -> Vec<GrantId> {
    let ids = (1..=count).map(|n| {
        let mut id = [0xee; 16];
        id[..8].copy_from_slice(&(n as u64).to_be_bytes());
        GrantId(id)
    });
    ids.collect()
}

fn files() -> mgp_protocol::ids::NodeServer {
    issuer(1).server(ServerId::new("files"))
}

fn tools(pattern: &str) -> GrantResource {
    GrantResource::Tools(files(), ToolPattern::try_from(pattern.to_owned()).unwrap())
}

fn key(n: u8) -> PublicKey {
    NodeKey::new(&[n; 32]).public_key()
}

fn members() -> Vec<(MemberChange, bool)> {
    let (node, at) = (issuer(2), LogTip::EMPTY);
    let name = || "nas".to_owned();
    let found = MemberChange::Found {
        key: key(1),
        recovery: key(2),
        name: name(),
    };
    let admit = MemberChange::Admit {
        key: key(1),
        role: MemberRole::Admin,
        name: name(),
    };
    let cut = MemberChange::Cut {
        node,
        at,
        stays_as: None,
    };
    let rename = MemberChange::Rename { node, name: name() };
    let rekey = MemberChange::Rekey {
        node,
        at,
        key: key(1),
    };
    let recover = MemberChange::Recover {
        key: key(1),
        name: name(),
    };
    vec![
        (found, true),
        (admit, true),
        (cut, false),
        (rename, true),
        (MemberChange::Rest {}, false),
        (rekey, true),
        (recover, true),
    ]
}

/// Names have a length, and none is empty.
#[test]
fn names_in_operations_are_bounded() {
    let agent_of = |name: &str| Grant {
        subject: agent(name),
        ..plain()
    };
    let everywhere = |name: &str| Grant {
        subject: Subject::AgentEverywhere(AgentId::new(name)),
        ..plain()
    };
    let on = |name: &str| issuer(1).server(ServerId::new(name));
    let of_server = |name: &str| Grant {
        subject: Subject::Server(on(name)),
        resource: GrantResource::Permission("camera".into()),
        ..plain()
    };
    let permission = |name: &str| Grant {
        subject: Subject::Server(files()),
        resource: GrantResource::Permission(name.into()),
        ..plain()
    };
    let resource = |resource: GrantResource| Grant {
        resource,
        ..plain()
    };
    let pattern = || ToolPattern::try_from("r*".to_owned()).unwrap();
    let told_by = |name: &str| Grant {
        told_by: Some(name.into()),
        ..plain()
    };
    let up_to = |name: &str| Revoke::UpTo {
        subject: agent(name),
        until: BTreeMap::from([(issuer(1), 1)]),
    };
    let named = |name: &str| MemberChange::Rename {
        node: issuer(2),
        name: name.into(),
    };
    for (length, fits) in [
        (0, false),
        (1, true),
        (NAME_MAX, true),
        (NAME_MAX + 1, false),
    ] {
        let name = text(length);
        let name = name.as_str();
        let mut author = granting(plain());
        author.author = name.into();
        for operation in [
            author,
            granting(agent_of(name)),
            granting(everywhere(name)),
            granting(of_server(name)),
            granting(permission(name)),
            granting(resource(GrantResource::Server(on(name)))),
            granting(resource(GrantResource::Tool(on(name), "t".into()))),
            granting(resource(GrantResource::Tool(files(), name.into()))),
            granting(resource(GrantResource::Tools(on(name), pattern()))),
            granting(told_by(name)),
            revoking(up_to(name)),
            operation(LogChange::Members(named(name))),
        ] {
            let checked = operation.check();
            let is_named = matches!(checked, Err(BadOperation::NameLength(_)));
            assert_eq!((checked.is_ok(), is_named), (fits, !fits), "{operation:?}");
        }
    }
}

/// Each bound is the last that fits.
#[test]
fn parts_of_operations_are_bounded() {
    let justified = |length| Grant {
        justification: Some(text(length)),
        ..plain()
    };
    let replacing = |count| Grant {
        replaces: ids(count),
        when: None,
        ..plain()
    };
    let up_to = |count: usize| {
        let logs = (0..count).map(|n| {
            let mut node = [0; 32];
            node[..8].copy_from_slice(&(n as u64).to_be_bytes());
            (NodeId(node), 1)
        });
        let until = logs.collect();
        let subject = agent("a");
        Revoke::UpTo { subject, until }
    };
    for (operation, expected) in [
        (granting(justified(TEXT_MAX)), Ok(())),
        (
            granting(justified(TEXT_MAX + 1)),
            Err(BadOperation::TextLength),
        ),
        (granting(replacing(IDS_MAX)), Ok(())),
        (granting(replacing(IDS_MAX + 1)), Err(BadOperation::Ids)),
        (revoking(Revoke::Ids(ids(0))), Err(BadOperation::Ids)),
        (revoking(Revoke::Ids(ids(1))), Ok(())),
        (revoking(Revoke::Ids(ids(IDS_MAX))), Ok(())),
        (
            revoking(Revoke::Ids(ids(IDS_MAX + 1))),
            Err(BadOperation::Ids),
        ),
        (revoking(up_to(0)), Err(BadOperation::Logs)),
        (revoking(up_to(ISSUERS_MAX)), Ok(())),
        (revoking(up_to(ISSUERS_MAX + 1)), Err(BadOperation::Logs)),
    ] {
        assert_eq!(operation.check(), expected);
    }
}

/// Agents are granted servers and tools, servers permissions; a pattern is one, and replaces nothing.
#[test]
fn a_grant_is_of_what_its_subject_can_have() {
    let server = || Subject::Server(files());
    let permission = || GrantResource::Permission("camera".into());
    let all = || Subject::AgentsAt(issuer(2));
    let replaces = |subject, resource| Grant {
        subject,
        resource,
        replaces: ids(1),
        when: None,
        ..plain()
    };
    let of = |subject, resource| Grant {
        subject,
        resource,
        ..plain()
    };
    let whole = || GrantResource::Server(files());
    let itself = Grant {
        replaces: vec![plain().id],
        ..plain()
    };
    for (grant, expected) in [
        (of(server(), permission()), Ok(())),
        (of(server(), whole()), Err(BadOperation::WrongResource)),
        (
            of(agent("a"), permission()),
            Err(BadOperation::WrongResource),
        ),
        (of(all(), permission()), Err(BadOperation::WrongResource)),
        (of(all(), whole()), Ok(())),
        (of(agent("a"), tools("r*")), Ok(())),
        (of(agent("a"), tools("*")), Err(BadOperation::NoPattern)),
        (of(agent("a"), tools("read")), Err(BadOperation::NoPattern)),
        (replaces(agent("a"), whole()), Ok(())),
        (replaces(all(), whole()), Err(BadOperation::PatternReplaces)),
        (
            replaces(agent("a"), tools("r*")),
            Err(BadOperation::PatternReplaces),
        ),
        (itself, Err(BadOperation::ReplacesItself)),
    ] {
        assert_eq!(grant.check(), expected, "{grant:?}");
    }
    let until = BTreeMap::from([(issuer(1), 1)]);
    let sweep = Revoke::UpTo {
        subject: all(),
        until,
    };
    assert_eq!(revoking(sweep).check(), Err(BadOperation::PatternUpTo));
}

/// What gives ends earlier than what takes away, so that a full log can still take away.
#[test]
fn a_full_log_still_takes_away() {
    let ends = (GRANTS_END, SEQUENCE_END);
    assert_eq!(
        ends,
        (1_000_000, 1_065_536),
        "every node draws the line at the same operation"
    );
    let unknown = LogChange::Unknown("later".into());
    let mut all = vec![
        (LogChange::Grants(allow(1)), true),
        (LogChange::Grants(deny(1)), true),
        (LogChange::Grants(revoke(1)), false),
        (unknown, false),
    ];
    all.extend(
        members()
            .into_iter()
            .map(|(change, gives)| (LogChange::Members(change), gives)),
    );
    for (change, gives) in all {
        assert_eq!(change.is_granting(), gives, "{change:?}");
        let end = if gives { GRANTS_END } else { SEQUENCE_END };
        for (sequence, expected) in [(end - 1, Ok(())), (end, Err(BadOperation::Full))] {
            let mut operation = operation(change.clone());
            operation.place.sequence = sequence;
            assert_eq!(operation.check(), expected, "{change:?}");
        }
    }
}

#[test]
fn the_first_operation_names_none_before_it() {
    let mut first = granting(plain());
    first.previous = OperationId([7; 32]);
    assert_eq!(first.check(), Err(BadOperation::First));
    first.place.sequence = 1;
    assert_eq!(first.check(), Ok(()));
}

/// What an operation is about is read from it in one way.
#[test]
fn a_change_is_of_one_kind() {
    for (change, _) in members() {
        let has_key = !matches!(
            change,
            MemberChange::Cut { .. } | MemberChange::Rename { .. } | MemberChange::Rest {}
        );
        assert_eq!(change.admitted_key(), has_key.then(|| key(1)).as_ref());
        let rests = change == MemberChange::Rest {};
        let wrapped = LogChange::Members(change.clone());
        assert_eq!(wrapped.members(), Some(&change));
        assert_eq!(
            (wrapped.grants(), wrapped.is_rest_or_resume()),
            (None, rests)
        );
    }
    let resume = GrantChange::Revoke(Revoke::resume());
    for (change, resumes) in [(allow(1), false), (revoke(1), false), (resume, true)] {
        let wrapped = LogChange::Grants(change.clone());
        assert_eq!(wrapped.grants(), Some(&change));
        assert_eq!(
            (wrapped.members(), wrapped.is_rest_or_resume()),
            (None, resumes)
        );
    }
    let unknown = LogChange::Unknown("later".into());
    assert!(unknown.grants().is_none() && unknown.members().is_none());
    assert!(!unknown.is_rest_or_resume());
}

/// An agent is named in requests as it is in records; a server has no such name.
#[test]
fn a_subject_is_named_in_one_way() {
    let alice = AgentId::new("alice");
    for subject in [
        Subject::Agent(issuer(2).agent(alice.clone())),
        Subject::AgentsAt(issuer(2)),
        Subject::AgentEverywhere(alice.clone()),
    ] {
        let id = subject.agent_id().unwrap();
        assert_eq!(Subject::from_agent_id(&id, issuer(1)), subject);
    }
    let own = Subject::Agent(issuer(1).agent(alice.clone()));
    assert_eq!(Subject::from_agent_id(&alice, issuer(1)), own);
    let all = AgentId::new(AgentId::ALL);
    assert_eq!(
        Subject::from_agent_id(&all, issuer(1)),
        Subject::AgentsAt(issuer(1))
    );
    assert_eq!(Subject::Server(files()).agent_id(), None);
    assert!(!Subject::Server(files()).covers(&issuer(1).agent(AgentId::new("files"))));
}

/// The closest resource decides: the tool, several, the server.
#[test]
fn a_resource_is_as_close_as_it_is_exact() {
    use super::super::Specificity as Closeness;
    let other = issuer(2).server(ServerId::new("files"));
    let tool = |on: &mgp_protocol::ids::NodeServer, name: &str| {
        GrantResource::Tool(on.clone(), name.into())
    };
    for (resource, of_tool, of_server) in [
        (tool(&files(), "read"), Some(Closeness::Tool), None),
        (tool(&files(), "write"), None, None),
        (tool(&other, "read"), None, None),
        (tools("r*"), Some(Closeness::Tools), None),
        (tools("w*"), None, None),
        (
            GrantResource::Server(files()),
            Some(Closeness::Server),
            Some(Closeness::Server),
        ),
        (GrantResource::Server(other.clone()), None, None),
        (GrantResource::Permission("files".into()), None, None),
    ] {
        assert_eq!(
            resource.specificity(&files(), Some("read")),
            of_tool,
            "{resource:?}"
        );
        assert_eq!(
            resource.specificity(&files(), None),
            of_server,
            "{resource:?}"
        );
    }
    assert!(Closeness::Tool < Closeness::Tools && Closeness::Tools < Closeness::Server);
    // Everything that one of them means is meant by the other.
    for (one, other, includes) in [
        (GrantResource::Server(files()), tool(&files(), "read"), true),
        (GrantResource::Server(files()), tools("r*"), true),
        (
            GrantResource::Server(files()),
            GrantResource::Server(other.clone()),
            false,
        ),
        (tools("r*"), tool(&files(), "read"), true),
        (tools("r*"), tool(&files(), "write"), false),
        (tools("r*"), tool(&other, "read"), false),
        (tools("r*"), tools("re*"), true),
        (tools("re*"), tools("r*"), false),
        (tools("r*"), GrantResource::Server(files()), false),
        (tool(&files(), "read"), tool(&files(), "read"), true),
        (tool(&files(), "read"), tools("r*"), false),
    ] {
        assert_eq!(one.includes(&other), includes, "{one:?} {other:?}");
    }
}

/// Under another key of its node a journal says the same, chained anew.
#[test]
fn a_journal_goes_on_under_another_key() {
    let (old, new) = (NodeKey::new(&[1; 32]), NodeKey::new(&[2; 32]));
    let (from, to, other) = (old.node_id(), new.node_id(), issuer(3));
    let grants = |home: NodeId| {
        let on = || home.server(ServerId::new("files"));
        let tools = ToolPattern::try_from("r*".to_owned()).unwrap();
        let entry = |id: u8, subject, resource| {
            GrantChange::Grant(Grant {
                subject,
                resource,
                ..grant(id, Permission::Allow, None)
            })
        };
        let agent = || Subject::Agent(home.agent(AgentId::new("a")));
        let until = BTreeMap::from([(home, 3), (other, 4)]);
        vec![
            entry(1, agent(), GrantResource::Server(on())),
            entry(
                2,
                Subject::AgentsAt(home),
                GrantResource::Tool(on(), "t".into()),
            ),
            entry(
                3,
                Subject::Server(on()),
                GrantResource::Permission("camera".into()),
            ),
            entry(
                4,
                Subject::AgentEverywhere(AgentId::new("a")),
                GrantResource::Tools(on(), tools),
            ),
            entry(
                5,
                Subject::Agent(other.agent(AgentId::new("a"))),
                GrantResource::Server(other.server(ServerId::new("files"))),
            ),
            GrantChange::Revoke(Revoke::UpTo {
                subject: agent(),
                until,
            }),
            revoke(1),
        ]
    };
    let changes = grants(from).into_iter().map(LogChange::Grants);
    let changes = changes.chain([LogChange::Members(MemberChange::Rest {})]);
    let operations = (0..).zip(changes).map(|(sequence, change)| {
        let mut operation = operation(change);
        operation.place = LogPosition {
            issuer: from,
            sequence,
        };
        operation
    });
    let moved = rekey(operations.collect(), from, &new);
    let expected = grants(to).into_iter().map(LogChange::Grants);
    let expected = expected.chain([LogChange::Members(MemberChange::Rest {})]);
    let mut previous = OperationId::START;
    for (signed, change) in moved.iter().zip(expected) {
        let operation = signed.encoded().operation();
        assert_eq!(operation.change, change);
        assert_eq!((operation.place.issuer, operation.previous), (to, previous));
        assert!(signed.signature_claim().is_some());
        previous = signed.encoded().id();
    }
    assert_eq!(moved.len(), 8);
}
