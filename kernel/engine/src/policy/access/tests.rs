mod changes;
mod conditions;
mod explanations;
mod foreign;
mod groups;
mod requests;
mod tables;

use std::collections::BTreeMap;

use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::ids::{NodeId, NodeServer};
use mgp_protocol::mgp::access::{self as words, EntryType};
use mgp_protocol::refusal::Refusal;
use proptest::prelude::*;

use super::*;
use crate::node_names::NodeNames;
use crate::policy::grants::{
    CausalContext, EncodedOperation, Grant, GrantChange, GrantStatus, LogChange, LogPosition,
    Operation, OperationId, Revoke,
};

const NOW: u64 = 10_000;

fn issuer(n: u8) -> NodeId {
    NodeId([n; 32])
}

fn authority() -> Authority {
    Authority::with_local_issuer(issuer(1))
}

fn id(n: u8) -> GrantId {
    GrantId([n; 16])
}

fn operator() -> Principal {
    Principal::Operator("admin".into())
}

fn agent(name: &str) -> Principal {
    Principal::Agent(AgentId::new(name))
}

fn server(name: &str) -> ServerId {
    ServerId::new(name)
}

fn at(name: &str) -> NodeServer {
    issuer(1).server(server(name))
}

fn defaults(kernel: DefaultPolicy) -> DefaultPolicies {
    DefaultPolicies {
        kernel,
        servers: HashMap::new(),
        group: None,
    }
}

fn write(grants: &mut Grants, by: u8, change: GrantChange) {
    let (sequence, previous) = grants.next_position(issuer(by));
    let place = LogPosition {
        issuer: issuer(by),
        sequence,
    };
    let operation = Operation {
        cluster: None,
        place,
        previous,
        author: "admin".into(),
        told_at_ms: 5000,
        change: LogChange::Grants(change),
        context: CausalContext::default(),
    };
    grants.apply(&EncodedOperation::new(operation)).unwrap();
}

fn request(tool: Option<&str>, permission: Permission) -> words::Grant {
    let entry_type = match tool {
        Some(_) => "tool_grant",
        None => "server_grant",
    };
    let json = serde_json::json!({"entry_type": entry_type, "agent_id": "a", "server_id": "files",
        "tool_name": tool, "permission": permission, "granted_by": "chief", "justification": "why not"});
    serde_json::from_value(json).unwrap()
}

fn revoking(tool: Option<&str>) -> words::Revoke {
    let entry_type = match tool {
        Some(_) => "tool_grant",
        None => "server_grant",
    };
    let json = serde_json::json!({"entry_type": entry_type, "agent_id": "a", "server_id": "files",
        "tool_name": tool});
    serde_json::from_value(json).unwrap()
}

/// A cluster in which the node 2 is called `nas`.
fn nas() -> NodeNames {
    let mut names = NodeNames::default();
    names.assign(issuer(2), &NodeName::parse("nas").unwrap(), []);
    names
}

/// What is granted names the nodes by all digits: names are given anew in every cluster.
#[test]
fn agents_and_servers_of_other_nodes_are_granted_by_the_nodes_ids() {
    let there = AgentId::from_node_agent(&issuer(3).agent(AgentId::new("agent.alice")));
    let mut asked = request(Some("read"), Permission::Allow);
    asked.agent_id = there.to_string();
    asked.server_id = "nas/files".into();
    let made = |asked: &words::Grant| {
        let grants = Grants::default();
        grant(
            asked,
            &operator(),
            &nas(),
            &grants,
            &authority(),
            id(1),
            NOW,
        )
    };
    let changes = made(&asked).unwrap();
    let [GrantChange::Grant(granted)] = &changes[..] else {
        panic!("{changes:?}");
    };
    let alice = issuer(3).agent(AgentId::new("agent.alice"));
    assert_eq!(granted.subject, Subject::Agent(alice));
    let files = issuer(2).server(server("files"));
    let read = GrantResource::Tool(files, "read".into());
    assert_eq!(granted.resource, read);
    asked.server_id = "attic/files".into();
    let refused = made(&asked).unwrap_err();
    assert_eq!(refused, GrantRequestError::UnknownNode("attic".into()));
}

/// A pattern of agents or of tools is one entry, which takes the place of the same one alone.
#[test]
fn a_pattern_is_granted_and_revoked_as_one_entry() {
    let mut grants = Grants::default();
    let asked = |agent: &AgentId, tool: Option<&str>| {
        let mut asked = request(tool, Permission::Allow);
        asked.agent_id = agent.to_string();
        asked
    };
    let revoking = |agent: &AgentId, tool: Option<&str>| {
        let mut asked = revoking(tool);
        asked.agent_id = agent.to_string();
        asked
    };
    let alice = AgentId::from_node_agent(&issuer(3).agent(AgentId::new("agent.alice")));
    let all = AgentId::pattern_for_node(issuer(3));
    let everywhere = AgentId::new("agent.alice").pattern_for_all_nodes();
    give(&mut grants, 1, &asked(&all, None));
    give(&mut grants, 2, &asked(&everywhere, Some("read_*")));
    give(&mut grants, 3, &asked(&all, Some("*")));
    let ids = |grants: &Grants| -> BTreeSet<GrantId> {
        let stands = grants
            .iter()
            .filter(|it| !grants.is_revoked(it, &authority()));
        stands.map(|it| it.grant.id).collect()
    };
    assert_eq!(
        ids(&grants),
        [id(2), id(3)].into(),
        "all tools are the server"
    );
    let wider = |grants: &Grants, asked: &words::Revoke| {
        let wider = remaining_pattern_grants(asked, &nas(), grants, &authority()).unwrap();
        wider.iter().map(|it| it.grant.id).collect::<BTreeSet<_>>()
    };
    assert_eq!(wider(&grants, &revoking(&alice, None)), [id(3)].into());
    let read = revoking(&alice, Some("read_a"));
    assert_eq!(wider(&grants, &read), [id(2), id(3)].into());
    assert_eq!(wider(&grants, &revoking(&all, None)), [].into());
    assert_eq!(wider(&grants, &revoking(&everywhere, None)), [].into());
    let mut denied = asked(&alice, None);
    denied.permission = Permission::Deny;
    give(&mut grants, 4, &denied);
    assert_eq!(
        wider(&grants, &revoking(&alice, None)),
        [].into(),
        "it ends a denial"
    );
    assert_eq!(take(&mut grants, &revoking(&all, None)), 1);
    assert_eq!(ids(&grants), [id(2), id(4)].into());
    let made = |asked: &words::Grant| {
        let grants = Grants::default();
        grant(
            asked,
            &operator(),
            &nas(),
            &grants,
            &authority(),
            id(1),
            NOW,
        )
        .unwrap_err()
    };
    let here = asked(&AgentId::new(AgentId::ALL), None);
    assert_eq!(made(&here), GrantRequestError::AllLocalAgents);
    let tools = asked(&AgentId::new("a"), Some("read_*"));
    assert_eq!(
        made(&tools),
        GrantRequestError::LocalPattern("read_*".into())
    );
}

/// Grants as the operator asks for it; returns how many operations that takes.
fn give(grants: &mut Grants, n: u8, request: &words::Grant) -> usize {
    let changes = grant(
        request,
        &operator(),
        &nas(),
        grants,
        &authority(),
        id(n),
        NOW,
    )
    .unwrap();
    let count = changes.len();
    for change in changes {
        write(grants, 1, change);
    }
    count
}

fn take(grants: &mut Grants, request: &words::Revoke) -> usize {
    let changes = revoke(request, &operator(), &nas(), grants, &authority()).unwrap();
    let ids = changes
        .iter()
        .map(|change| change.revoked_ids().len())
        .sum();
    for change in changes {
        write(grants, 1, change);
    }
    ids
}

fn table(grants: &Grants, policy: DefaultPolicy) -> GrantTable {
    GrantTable::build(grants, &authority(), defaults(policy), NOW, 1)
}

fn decided(grants: &Grants, policy: DefaultPolicy, tool: &str) -> (Permission, Source) {
    let table = table(grants, policy);
    let found = table.decide(&agent("a"), &server("files"), Some(tool), NOW);
    (found.permission, found.source)
}

/// MGP-067, MGP-068, MGP-069: all combinations of the three levels.
#[test]
fn a_tools_entry_beats_its_servers_entry_beats_the_default() {
    let each = [None, Some(Permission::Allow), Some(Permission::Deny)];
    for (of_tool, of_server, policy) in each.iter().flat_map(|tool| {
        let pairs = each.iter().map(move |server| (tool, server));
        pairs.flat_map(|(t, s)| [DefaultPolicy::OptIn, DefaultPolicy::OptOut].map(|p| (*t, *s, p)))
    }) {
        let mut grants = Grants::default();
        if let Some(permission) = of_server {
            give(&mut grants, 1, &request(None, permission));
        }
        if let Some(permission) = of_tool {
            give(&mut grants, 2, &request(Some("read"), permission));
        }
        let expected = match (of_tool, of_server) {
            (Some(permission), _) => (permission, Source::ToolGrant),
            (None, Some(permission)) => (permission, Source::ServerGrant),
            (None, None) => (policy.permission(), Source::DefaultPolicy),
        };
        assert_eq!(decided(&grants, policy, "read"), expected);
        let other = decided(&grants, policy, "write");
        let whole = of_server.map_or((policy.permission(), Source::DefaultPolicy), |permission| {
            (permission, Source::ServerGrant)
        });
        assert_eq!(other, whole, "a tool's entry is for that tool alone");
    }
}

/// MGP-077, MGP-078, MGP-273: with no entry the policy decides, a server's own before the kernel's,
/// for any server and any agent.
#[test]
fn the_default_policy_decides_for_who_has_no_entry() {
    let mut policies = defaults(DefaultPolicy::OptIn);
    policies
        .servers
        .insert(server("open"), DefaultPolicy::OptOut);
    let table = GrantTable::build(&Grants::default(), &authority(), policies, NOW, 1);
    let may = |name: &str| {
        table
            .decide(&agent("new"), &server(name), Some("t"), NOW)
            .permission
    };
    assert_eq!(may("files"), Permission::Deny);
    assert_eq!(may("open"), Permission::Allow);
}

/// an entry about a server or an agent of another node is not one about ours of the same name.
#[test]
fn what_names_another_node_says_nothing_about_this_one() {
    let mut grants = Grants::default();
    let other = issuer(2);
    let pairs = [(other, issuer(1)), (issuer(1), other), (other, other)];
    for (n, (home, owner)) in (1..).zip(pairs) {
        let named = Grant {
            id: id(n),
            subject: Subject::Agent(home.agent(AgentId::new("a"))),
            resource: GrantResource::Server(owner.server(server("files"))),
            permission: Permission::Allow,
            not_after_ms: None,
            told_by: None,
            justification: None,
            replaces: Vec::new(),
            when: None,
        };
        write(&mut grants, 1, GrantChange::Grant(named));
    }
    let (of_default, _) = decided(&grants, DefaultPolicy::OptIn, "t");
    assert_eq!(of_default, Permission::Deny);
    give(&mut grants, 9, &request(None, Permission::Allow));
    let (own, _) = decided(&grants, DefaultPolicy::OptIn, "t");
    assert_eq!(own, Permission::Allow);
}

/// MGP-229: with a server goes what was allowed on it and to it, and nothing else; what was denied stays.
#[test]
fn a_server_that_is_gone_leaves_nothing_that_was_allowed() {
    let (here, there) = (at("files"), at("others"));
    let mut grants = Grants::default();
    let tool = |server: &NodeServer| GrantResource::Tool(server.clone(), "read".into());
    let camera = || GrantResource::Permission("camera".into());
    let entries = [
        (
            Subject::Agent(issuer(1).agent(AgentId::new("a"))),
            GrantResource::Server(here.clone()),
            Permission::Allow,
        ),
        (
            Subject::Agent(issuer(1).agent(AgentId::new("b"))),
            tool(&here),
            Permission::Allow,
        ),
        (Subject::Server(here.clone()), camera(), Permission::Allow),
        (
            Subject::Agent(issuer(1).agent(AgentId::new("c"))),
            GrantResource::Server(here.clone()),
            Permission::Deny,
        ),
        (
            Subject::Agent(issuer(1).agent(AgentId::new("a"))),
            GrantResource::Server(there.clone()),
            Permission::Allow,
        ),
        (
            Subject::Agent(issuer(1).agent(AgentId::new("a"))),
            tool(&there),
            Permission::Allow,
        ),
        (Subject::Server(there), camera(), Permission::Allow),
    ];
    for (n, (subject, resource, permission)) in (1..).zip(entries) {
        let grant = Grant {
            id: id(n),
            subject,
            resource,
            permission,
            not_after_ms: None,
            told_by: None,
            justification: None,
            replaces: Vec::new(),
            when: None,
        };
        write(&mut grants, 1, GrantChange::Grant(grant));
    }
    let gone = revoke_server_grants(&here.server, &grants, &authority());
    let ids: Vec<GrantId> = gone
        .iter()
        .flat_map(|change| change.revoked_ids().to_vec())
        .collect();
    assert_eq!(ids, [id(1), id(2), id(3)]);
    for change in gone {
        write(&mut grants, 1, change);
    }
    assert!(
        revoke_server_grants(&here.server, &grants, &authority()).is_empty(),
        "once is enough"
    );
}

/// MGP-070, MGP-071, MGP-073: grant, query, revoke, query.
#[test]
fn a_query_tells_what_was_granted_and_falls_back_when_it_is_revoked() {
    let mut grants = Grants::default();
    let mut asked = request(Some("read"), Permission::Allow);
    asked.expires_at = Some("1970-01-01T00:00:20Z".into());
    give(&mut grants, 1, &asked);
    let standing = |grants: &Grants| {
        let table = table(grants, DefaultPolicy::OptIn);
        table
            .decide(&agent("a"), &server("files"), Some("read"), NOW)
            .to_query_response()
    };
    assert_eq!(
        serde_json::to_value(standing(&grants)).unwrap(),
        serde_json::json!({"permission": "allow", "source": "tool_grant", "granted_by": "chief",
            "granted_at": "1970-01-01T00:00:05.000Z", "expires_at": "1970-01-01T00:00:20.000Z"})
    );
    assert_eq!(take(&mut grants, &revoking(Some("read"))), 1);
    assert_eq!(standing(&grants), hidden_query_response());
    // MGP-074: there is nothing left to take back, and nothing to write.
    assert_eq!(take(&mut grants, &revoking(Some("read"))), 0);
    assert_eq!(take(&mut grants, &revoking(None)), 0);
}

/// A new decision takes the place of the old one, whichever way round.
#[test]
fn the_last_decision_of_the_operator_counts() {
    let mut grants = Grants::default();
    for (n, permission) in [
        (1, Permission::Allow),
        (2, Permission::Deny),
        (3, Permission::Allow),
    ] {
        give(&mut grants, n, &request(None, permission));
        assert_eq!(decided(&grants, DefaultPolicy::OptIn, "t").0, permission);
    }
    let all: words::List = serde_json::from_str("{}").unwrap();
    let shown = list(&grants, &authority(), &all, NOW, |node| node.short_id());
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].entry_type, EntryType::ServerGrant);
}

/// MGP-072: what does not fit is refused before it is written.
#[test]
fn a_grant_that_does_not_fit_is_refused() {
    let grants = Grants::default();
    let refused = |request: words::Grant| {
        let refused = grant(
            &request,
            &operator(),
            &nas(),
            &grants,
            &authority(),
            id(1),
            NOW,
        )
        .unwrap_err();
        (refused.clone().into_refusal(), refused)
    };
    let mut no_tool = request(None, Permission::Allow);
    no_tool.entry_type = EntryType::ToolGrant;
    assert!(matches!(
        refused(no_tool),
        (Refusal::BadParams(_), GrantRequestError::Target(_))
    ));
    for (when, past) in [("tomorrow", false), ("1970-01-01T00:00:10Z", true)] {
        let mut ends = request(None, Permission::Allow);
        ends.expires_at = Some(when.into());
        let (refusal, why) = refused(ends);
        assert!(matches!(refusal, Refusal::BadParams(_)));
        assert_eq!(matches!(why, GrantRequestError::AlreadyExpired(_)), past);
    }
    let mut nobody = request(None, Permission::Allow);
    nobody.agent_id = String::new();
    assert!(matches!(
        refused(nobody),
        (Refusal::BadParams(_), GrantRequestError::Form(_))
    ));
}

/// agents never administer, and ask about themselves only.
#[test]
fn only_the_operator_grants_and_an_agent_asks_about_itself() {
    assert_eq!(authorize(&operator(), GrantRequest::Administer), Ok(()));
    assert_eq!(authorize(&operator(), GrantRequest::Query("b")), Ok(()));
    assert_eq!(authorize(&agent("a"), GrantRequest::Query("a")), Ok(()));
    let other = authorize(&agent("a"), GrantRequest::Query("b")).unwrap_err();
    let forbidden =
        |error: GrantRequestError| matches!(error.into_refusal(), Refusal::Forbidden(_));
    assert!(forbidden(other));
    // An agent that takes the operator's name is an agent.
    let grants = Grants::default();
    let asked = request(None, Permission::Allow);
    let named = agent("admin");
    let refused = grant(&asked, &named, &nas(), &grants, &authority(), id(1), NOW).unwrap_err();
    assert!(forbidden(refused));
    let refused = revoke(&revoking(None), &named, &nas(), &grants, &authority()).unwrap_err();
    assert!(forbidden(refused));
    let table = table(&grants, DefaultPolicy::OptIn);
    let found = table.decide(&named, &server("files"), None, NOW);
    assert_eq!(found.permission, Permission::Deny);
    let found = table.decide(&operator(), &server("files"), None, NOW);
    assert_eq!(found.source, Source::Operator);
}

/// MGP-075: an entry ends while the table that holds it is in use, and a clock that goes back brings
/// nothing back.
#[test]
fn an_entry_ends_within_the_table() {
    let mut grants = Grants::default();
    let mut asked = request(None, Permission::Allow);
    asked.expires_at = Some("1970-01-01T00:00:20Z".into());
    give(&mut grants, 1, &asked);
    let table = GrantTable::build(
        &grants,
        &authority(),
        defaults(DefaultPolicy::OptIn),
        NOW,
        1,
    );
    let at = |now| {
        table
            .decide(&agent("a"), &server("files"), Some("t"), now)
            .permission
    };
    assert_eq!(at(19_999), Permission::Allow);
    assert_eq!(at(20_000), Permission::Deny);
    assert_eq!(table.next_expiry_ms(), Some(20_000));
    let late = GrantTable::build(
        &grants,
        &authority(),
        defaults(DefaultPolicy::OptIn),
        20_000,
        2,
    );
    let back = late.decide(&agent("a"), &server("files"), Some("t"), 0);
    assert_eq!(back.permission, Permission::Deny);
}

/// A call that waited is asked about again when anything changed or its leave ended.
#[test]
fn a_pass_is_good_until_something_changes_or_it_ends() {
    let mut grants = Grants::default();
    let mut asked = request(None, Permission::Allow);
    asked.expires_at = Some("1970-01-01T00:00:20Z".into());
    give(&mut grants, 1, &asked);
    let before = table(&grants, DefaultPolicy::OptIn);
    let allowed = before.decide(&agent("a"), &server("files"), Some("t"), NOW);
    assert!(allowed.is_explicit_allow());
    let pass = before.lease(&allowed).unwrap();
    assert!(before.is_lease_valid(pass, 19_999));
    assert!(!before.is_lease_valid(pass, 20_000));
    take(&mut grants, &revoking(None));
    let after = GrantTable::build(
        &grants,
        &authority(),
        defaults(DefaultPolicy::OptIn),
        NOW,
        2,
    );
    assert!(!after.is_lease_valid(pass, NOW));
    let denied = after.decide(&agent("a"), &server("files"), Some("t"), NOW);
    assert_eq!(after.lease(&denied), None);
}

/// MGP-079, MGP-081: a denied tool is an unknown one to whom it was never shown; 1001 is for those
/// who knew it.
#[test]
fn a_denied_tool_is_unknown_to_whom_it_was_not_shown() {
    assert_eq!(denial_response(true, false, false), DenialResponse::Unknown);
    assert_eq!(denial_response(false, true, true), DenialResponse::Unknown);
    assert_eq!(denial_response(true, true, false), DenialResponse::Denied);
    assert_eq!(denial_response(true, false, true), DenialResponse::Denied);
}

#[test]
fn an_explanation_names_what_decides_and_what_does_not() {
    let mut grants = Grants::default();
    give(&mut grants, 1, &request(Some("read"), Permission::Allow));
    take(&mut grants, &revoking(Some("read")));
    give(&mut grants, 2, &request(None, Permission::Deny));
    let told = explain(
        &grants,
        &authority(),
        &defaults(DefaultPolicy::OptOut),
        &agent("a"),
        &server("files"),
        Some("read"),
        NOW,
    );
    assert_eq!(
        (told.permission, told.source),
        (Permission::Deny, Source::ServerGrant)
    );
    assert_eq!(
        told.rule,
        "grant 02020202020202020202020202020202 of chief at 1970-01-01T00:00:05.000Z denies all of \
         server files (\"why not\"): in force"
    );
    assert!(
        told.considered[0].ends_with("it was taken back by node 010101010101 (operation 1)"),
        "{told:?}"
    );
    assert_eq!(
        told.considered.last().unwrap(),
        "the default policy of the kernel is opt-out: allowed unless denied"
    );
}

fn change() -> impl Strategy<Value = GrantChange> {
    let resource = prop_oneof![
        Just(GrantResource::Server(at("s"))),
        Just(GrantResource::Server(at("t"))),
        Just(GrantResource::Tool(at("s"), "x".into())),
        Just(GrantResource::Tool(at("s"), "y".into())),
    ];
    let who = prop_oneof![Just("a"), Just("b")];
    let end = proptest::option::of(0_u64..30);
    let given = (0_u8..20, who, resource, any::<bool>(), end);
    let given = given.prop_map(|(n, who, resource, allows, not_after_ms)| {
        GrantChange::Grant(Grant {
            id: id(n),
            subject: Subject::Agent(issuer(1).agent(AgentId::new(who))),
            resource,
            permission: if allows {
                Permission::Allow
            } else {
                Permission::Deny
            },
            not_after_ms,
            told_by: None,
            justification: None,
            replaces: Vec::new(),
            when: None,
        })
    });
    let swept = (0_u64..4).prop_map(|until| {
        let subject = Subject::Agent(issuer(1).agent(AgentId::new("a")));
        GrantChange::Revoke(Revoke::UpTo {
            subject,
            until: BTreeMap::from([(issuer(1), until)]),
        })
    });
    let taken = (0_u8..20).prop_map(|n| GrantChange::Revoke(Revoke::Ids(vec![id(n)])));
    prop_oneof![6 => given, 2 => taken, 1 => swept]
}

/// Grants of one who may issue and one who may not.
fn some_grants() -> impl Strategy<Value = Grants> {
    proptest::collection::vec((1_u8..3, change()), 0..25).prop_map(|changes| {
        let mut grants = Grants::default();
        for (by, change) in changes {
            write(&mut grants, by, change);
        }
        grants
    })
}

proptest! {
    /// Explain walks the grants, decide reads the table: they agree on every call at any time.
    #[test]
    fn explain_agrees_with_decide(
        grants in some_grants(),
        built in 0_u64..30,
        later in 0_u64..10,
        opt_in in any::<bool>(),
    ) {
        let policy = if opt_in { DefaultPolicy::OptIn } else { DefaultPolicy::OptOut };
        let now = built + later;
        let table = GrantTable::build(&grants, &authority(), defaults(policy), built, 1);
        for (who, at, tool) in ["a", "b", "c"].into_iter().flat_map(|who| {
            let calls = [("s", Some("x")), ("s", Some("y")), ("s", Some("z")), ("t", Some("x")), ("s", None)];
            calls.map(|(at, tool)| (agent(who), server(at), tool))
        }) {
            let found = table.decide(&who, &at, tool, now);
            let told = explain(&grants, &authority(), &defaults(policy), &who, &at, tool, now);
            prop_assert_eq!((found.permission, found.source), (told.permission, told.source));
            let rule = found.entry.map(|entry| format!("grant {}", entry.id));
            prop_assert!(told.rule.starts_with(rule.as_deref().unwrap_or("the default")));
            prop_assert!(told.considered.contains(&told.rule));
        }
    }

    /// MGP-075: an expired, revoked or unauthorised grant never allows.
    #[test]
    fn nothing_is_allowed_by_a_grant_that_does_not_count(
        grants in some_grants(),
        built in 0_u64..30,
        later in 0_u64..10,
    ) {
        let now = built + later;
        let table = GrantTable::build(&grants, &authority(), defaults(DefaultPolicy::OptIn), built, 1);
        for tool in ["x", "y", "z"] {
            let found = table.decide(&agent("a"), &server("s"), Some(tool), now);
            if found.permission == Permission::Allow {
                let entry = found.entry.unwrap();
                let counts = grants.iter().any(|g| {
                    g.grant.id == entry.id
                        && g.grant.permission == Permission::Allow
                        && g.position.issuer == issuer(1)
                        && grants.status(g, &authority(), now) == GrantStatus::InForce
                });
                prop_assert!(counts);
                let pass = table.lease(&found).unwrap();
                prop_assert!(table.is_lease_valid(pass, now));
            }
        }
    }
}

#[test]
fn the_first_operation_of_a_log_has_nothing_before_it() {
    assert_eq!(
        Grants::default().next_position(issuer(1)),
        (0, OperationId::START)
    );
}
