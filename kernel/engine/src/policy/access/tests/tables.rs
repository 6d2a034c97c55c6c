//! What a published table says about whole servers, lists and time.

use super::*;

fn with_server(kernel: DefaultPolicy, name: &str, policy: DefaultPolicy) -> DefaultPolicies {
    let mut defaults = defaults(kernel);
    defaults.servers.insert(server(name), policy);
    defaults
}

fn until(tool: Option<&str>, who: &str, end: &str) -> words::Grant {
    let mut asked = request(tool, Permission::Allow);
    asked.agent_id = who.into();
    asked.expires_at = Some(end.into());
    asked
}

#[test]
fn a_principal_is_named_as_its_door_knows_it() {
    let set = SetName::parse("reading").unwrap();
    let in_set = Principal::InSet(AgentId::new("b"), set);
    let names = [operator(), agent("a"), in_set].map(|who| who.name().to_owned());
    assert_eq!(names, ["admin", "a", "b"]);
}

/// Lists are made once for all who see the same, and anew for those whose rights changed.
#[test]
fn callers_with_the_same_rights_share_an_audience() {
    use DefaultPolicy::{OptIn, OptOut};
    let none = Grants::default();
    let build = |defaults| GrantTable::build(&none, &authority(), defaults, NOW, 1);
    for (policies, is_open) in [
        (defaults(OptOut), true),
        (with_server(OptOut, "s", OptOut), true),
        (with_server(OptOut, "s", OptIn), false),
        (with_server(OptIn, "s", OptOut), false),
        (defaults(OptIn), false),
    ] {
        let table = build(policies);
        let expected = if is_open {
            Audience::All
        } else {
            Audience::Common(1)
        };
        assert_eq!(table.audience(&agent("a")), expected);
        assert_eq!(table.audience(&operator()), Audience::All);
        assert_eq!(table.is_uniform(), is_open);
    }
    let mut grants = Grants::default();
    give(&mut grants, 1, &request(None, Permission::Allow));
    let first = table(&grants, OptOut);
    assert!(!first.is_uniform(), "an agent has an entry");
    let own = |table: &GrantTable| table.audience(&agent("a"));
    assert_eq!(own(&first), Audience::Agent(AgentId::new("a"), 1, 1));
    let strict = first.with_defaults(defaults(OptIn), 5);
    assert_eq!(strict.generation(), 5);
    assert_eq!(strict.defaults(), &defaults(OptIn));
    assert_eq!(own(&strict), Audience::Agent(AgentId::new("a"), 1, 5));
    assert_eq!(strict.audience(&agent("b")), Audience::Common(5));
    let changed = [AgentId::new("a")].into();
    let next = strict.with_changes(&changed, &grants, &authority(), NOW, 7);
    assert_eq!(next.generation(), 7);
    assert_eq!(own(&next), Audience::Agent(AgentId::new("a"), 7, 5));
    assert_eq!(next.audience(&agent("b")), Audience::Common(5));
}

/// Sets, agents of other nodes and entries each make lists differ.
#[test]
fn a_table_is_uniform_only_without_anything_that_tells_callers_apart() {
    let table = table(&Grants::default(), DefaultPolicy::OptOut);
    assert!(table.is_uniform());
    let name = SetName::parse("reading").unwrap();
    let sets = ToolSets {
        by_name: [(name, Arc::default())].into(),
        by_agent: HashMap::new(),
    };
    assert!(!table.with_sets(Arc::new(sets), 2).is_uniform());
    let rules = ForeignRules::new(
        BTreeSet::new(),
        SharedTools::default(),
        ForeignLease::Valid(None),
        std::iter::empty(),
    );
    assert!(!table.with_foreign(Some(Arc::new(rules)), 2).is_uniform());
}

/// The table of the last time stays in use for agents that did not change, and time does not go back in it.
#[test]
fn a_change_for_one_agent_leaves_the_others_and_the_time() {
    let mut grants = Grants::default();
    give(&mut grants, 1, &until(None, "a", "1970-01-01T00:00:15Z"));
    give(&mut grants, 2, &until(None, "b", "1970-01-01T00:00:30Z"));
    let first = table(&grants, DefaultPolicy::OptIn);
    let may = |table: &GrantTable, who: &str, now| {
        table.is_allowed(&agent(who), &server("files"), Some("t"), now)
    };
    assert!(may(&first, "a", NOW) && may(&first, "b", NOW));
    let changed = [AgentId::new("b")].into();
    let next = first.with_changes(&changed, &grants, &authority(), 16_000, 2);
    assert!(
        !may(&next, "a", NOW),
        "16 s have passed, whatever the clock says now"
    );
    assert!(may(&next, "b", NOW));
    let earlier = next.with_changes(&changed, &grants, &authority(), NOW, 3);
    assert!(!may(&earlier, "a", NOW));
    let lease = first.lease(&first.decide(&agent("a"), &server("files"), None, NOW));
    assert!(first.is_lease_valid(lease.unwrap(), 0));
    let ends = AccessLease {
        generation: 2,
        ..lease.unwrap()
    };
    assert!(
        !next.is_lease_valid(ends, NOW),
        "nor does a lease come back"
    );
    let mut revoked = revoking(None);
    revoked.agent_id = "b".into();
    take(&mut grants, &revoked);
    let last = next.with_changes(&changed, &grants, &authority(), 16_000, 4);
    assert!(last.agents().eq([&AgentId::new("a")]));
    assert!(!may(&last, "b", 16_000));
}

/// Which agents have something that ended, and when the next thing ends: of tools, of servers, of any agent.
#[test]
fn a_table_says_whose_entries_ended_and_when_the_next_one_does() {
    let mut grants = Grants::default();
    give(&mut grants, 1, &until(None, "a", "1970-01-01T00:00:20Z"));
    give(
        &mut grants,
        2,
        &until(Some("t"), "b", "1970-01-01T00:00:12Z"),
    );
    let mut endless = request(None, Permission::Allow);
    endless.agent_id = "c".into();
    give(&mut grants, 3, &endless);
    let table = table(&grants, DefaultPolicy::OptIn);
    assert_eq!(table.next_expiry_ms(), Some(12_000));
    let ended = |now| table.expired_agents(now);
    let agents = |names: &[&str]| -> BTreeSet<AgentId> {
        names.iter().map(|name| AgentId::new(*name)).collect()
    };
    assert_eq!(ended(11_999), agents(&[]));
    assert_eq!(ended(12_000), agents(&["b"]));
    assert_eq!(ended(20_000), agents(&["a", "b"]));
}

/// A server is known to who may use it, or any tool of it.
#[test]
fn a_server_is_seen_by_who_may_use_one_of_its_tools() {
    use Permission::{Allow, Deny};
    for (whole, tool, policy, opens, sees) in [
        (None, None, DefaultPolicy::OptIn, false, false),
        (None, None, DefaultPolicy::OptOut, true, true),
        (Some(Allow), None, DefaultPolicy::OptIn, true, true),
        (None, Some(Allow), DefaultPolicy::OptIn, false, true),
        (Some(Deny), Some(Allow), DefaultPolicy::OptOut, false, true),
        (Some(Deny), Some(Deny), DefaultPolicy::OptOut, false, false),
        (Some(Allow), Some(Deny), DefaultPolicy::OptIn, true, true),
    ] {
        let mut grants = Grants::default();
        if let Some(permission) = whole {
            give(&mut grants, 1, &request(None, permission));
        }
        if let Some(permission) = tool {
            give(&mut grants, 2, &request(Some("read"), permission));
        }
        let table = table(&grants, policy);
        let (who, files) = (agent("a"), server("files"));
        assert_eq!(table.is_server_open(&who, &files, NOW), opens);
        assert_eq!(table.is_server_visible(&who, &files, NOW), sees);
        assert!(
            table.is_server_visible(&operator(), &files, NOW)
                && table.is_server_open(&operator(), &files, NOW)
        );
        let named: Vec<&str> = table.named_tools(&who, &files).collect();
        assert_eq!(named, tool.map(|_| "read").into_iter().collect::<Vec<_>>());
        assert!(table.named_tools(&operator(), &files).next().is_none());
        assert!(table.named_tools(&who, &server("other")).next().is_none());
        assert!(!table.decide(&who, &files, None, NOW).foreign);
    }
}

/// The rule that stands in the log and in answers.
#[test]
fn a_decision_names_the_entry_that_made_it() {
    let mut grants = Grants::default();
    give(&mut grants, 1, &request(Some("read"), Permission::Allow));
    give(&mut grants, 2, &request(None, Permission::Deny));
    let table = table(&grants, DefaultPolicy::OptIn);
    let rule = |who: &str, tool| {
        let who = agent(who);
        table
            .decide(&who, &server("files"), tool, NOW)
            .describe_rule()
    };
    let (first, second) = ("01".repeat(16), "02".repeat(16));
    assert_eq!(
        rule("a", Some("read")),
        format!("grant {first} of chief allows the tool")
    );
    assert_eq!(
        rule("a", None),
        format!("grant {second} of chief denies the whole server")
    );
    assert_eq!(rule("b", None), "the default policy denies it");
}

/// Dangerous tools need somebody's decision, not a default (§4.4).
#[test]
fn a_default_is_no_explicit_allow() {
    let mut grants = Grants::default();
    give(&mut grants, 1, &request(Some("read"), Permission::Allow));
    give(&mut grants, 2, &request(Some("write"), Permission::Deny));
    let table = table(&grants, DefaultPolicy::OptOut);
    let explicit = |who: Principal, tool| {
        let decision = table.decide(&who, &server("files"), Some(tool), NOW);
        decision.is_explicit_allow()
    };
    assert!(explicit(agent("a"), "read") && explicit(operator(), "list"));
    assert!(!explicit(agent("a"), "write") && !explicit(agent("a"), "list"));
}
