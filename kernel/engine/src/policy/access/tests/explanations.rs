//! What people read of grants: lists, and which rule decides.

use super::*;
use crate::policy::grants::LoggedGrant;

fn name(node: NodeId) -> String {
    if node == issuer(2) {
        "nas".into()
    } else {
        node.short_id()
    }
}

fn asked(who: &AgentId, on: &str, tool: Option<&str>, permission: Permission) -> words::Grant {
    let mut asked = request(tool, permission);
    asked.agent_id = who.to_string();
    asked.server_id = on.into();
    asked
}

fn files() -> GrantResource {
    GrantResource::Server(at("files"))
}

fn explained(granted: &LoggedGrant, status: GrantStatus) -> ExplainedGrant<'_> {
    ExplainedGrant {
        granted,
        status,
        is_closing: false,
    }
}

/// All of these are in force.
fn in_force(grants: &Grants) -> Vec<ExplainedGrant<'_>> {
    let all = grants.iter();
    all.map(|it| explained(it, GrantStatus::InForce)).collect()
}

#[test]
fn nothing_is_closed_to_the_operator() {
    let policies = defaults(DefaultPolicy::OptIn);
    let found = explain(
        &Grants::default(),
        &authority(),
        &policies,
        &operator(),
        &server("files"),
        None,
        NOW,
    );
    assert_eq!(
        (found.permission, found.source),
        (Permission::Allow, Source::Operator)
    );
    assert_eq!(
        found.rule,
        "admin is the operator, to whom nothing is closed"
    );
}

/// A server's own default policy is told from the kernel's, and each says what it means.
#[test]
fn a_default_policy_says_whose_it_is() {
    let mut policies = defaults(DefaultPolicy::OptOut);
    policies
        .servers
        .insert(server("files"), DefaultPolicy::OptIn);
    let rule = |on: &str| {
        let (grants, authority, on) = (Grants::default(), authority(), server(on));
        explain(&grants, &authority, &policies, &agent("a"), &on, None, NOW).rule
    };
    assert_eq!(
        rule("files"),
        "the default policy of server files is opt-in: denied unless granted"
    );
    assert_eq!(
        rule("git"),
        "the default policy of the kernel is opt-out: allowed unless denied"
    );
}

/// A long list ends with the policy, and says how many entries it leaves out.
#[test]
fn an_explanation_is_bounded_and_keeps_its_policy() {
    let mut grants = Grants::default();
    for n in 1..=98 {
        give(&mut grants, n, &request(Some("read"), Permission::Allow));
    }
    let considered = |grants: &Grants| {
        let policies = defaults(DefaultPolicy::OptIn);
        let (who, on) = (agent("a"), server("files"));
        explain(
            grants,
            &authority(),
            &policies,
            &who,
            &on,
            Some("read"),
            NOW,
        )
        .considered
    };
    let all = considered(&grants);
    assert_eq!(
        all.len(),
        100,
        "98 entries, none for the server, and the policy"
    );
    assert!(!all.iter().any(|line| line.contains("more entries")));
    for n in 99..=101 {
        give(&mut grants, n, &request(Some("read"), Permission::Allow));
    }
    let all = considered(&grants);
    assert_eq!(all.len(), 101);
    assert_eq!(all[99], "and 3 more entries");
    assert!(all[100].starts_with("the default policy"), "{}", all[100]);
}

/// What counts comes first; of that, denials; of these, what lasts longer.
#[test]
fn entries_are_explained_in_the_order_in_which_they_decide() {
    let mut grants = Grants::default();
    let who = AgentId::new("a");
    for (n, permission, end) in [
        (1, Permission::Allow, Some(20_000)),
        (2, Permission::Allow, None),
        (3, Permission::Deny, Some(20_000)),
        (4, Permission::Deny, Some(30_000)),
        (5, Permission::Deny, Some(9_000)),
    ] {
        let grant = Grant {
            id: id(n),
            subject: Subject::Agent(issuer(1).agent(who.clone())),
            resource: GrantResource::Server(at("files")),
            permission,
            not_after_ms: end,
            told_by: None,
            justification: None,
            replaces: Vec::new(),
            when: None,
        };
        write(&mut grants, 1, GrantChange::Grant(grant));
    }
    let policies = defaults(DefaultPolicy::OptIn);
    let (who, on) = (agent("a"), server("files"));
    let found = explain(&grants, &authority(), &policies, &who, &on, None, NOW);
    let order: Vec<String> = (found.considered.iter())
        .filter_map(|line| Some(line.strip_prefix("grant ")?[..2].to_owned()))
        .collect();
    assert_eq!(order, ["04", "03", "02", "01", "05"]);
    assert!(
        found
            .rule
            .ends_with(": in force until 1970-01-01T00:00:30.000Z"),
        "{}",
        found.rule
    );
    let expired = &found.considered[4];
    assert!(expired.contains("does not count: it expired at 1970-01-01T00:00:09.000Z"));
}

/// What this node denies of another node's server is its own to explain, and nothing else is.
#[test]
fn a_denial_of_another_nodes_server_is_explained_here() {
    let mut grants = Grants::default();
    let (a, b) = (AgentId::new("a"), AgentId::new("b"));
    give(
        &mut grants,
        1,
        &asked(&a, "nas/files", None, Permission::Deny),
    );
    give(
        &mut grants,
        2,
        &asked(&a, "nas/files", Some("read"), Permission::Deny),
    );
    give(
        &mut grants,
        3,
        &asked(&b, "nas/files", None, Permission::Allow),
    );
    give(&mut grants, 4, &asked(&b, "files", None, Permission::Deny));
    let mut short = asked(&a, "nas/clock", None, Permission::Deny);
    short.expires_at = Some("1970-01-01T00:00:20Z".into());
    give(&mut grants, 5, &short);
    let explain = |who: &AgentId, on: &str, tool, now| {
        let on = issuer(2).server(server(on));
        let open = defaults(DefaultPolicy::OptOut);
        explain_local_denial(&grants, &authority(), &open, who, (&on, tool), now, &name)
    };
    let found = explain(&a, "files", Some("read"), NOW).unwrap();
    assert_eq!(
        (found.permission, found.source),
        (Permission::Deny, Source::ToolGrant)
    );
    let whose = format!("this node denies it: grant {}", "02".repeat(16));
    assert!(found.rule.starts_with(&whose), "{}", found.rule);
    assert_eq!(found.considered, std::slice::from_ref(&found.rule));
    for tool in [None, Some("write")] {
        let found = explain(&a, "files", tool, NOW).unwrap();
        assert_eq!(found.source, Source::ServerGrant);
        assert!(
            found.rule.contains(" denies all of server files"),
            "{}",
            found.rule
        );
    }
    assert!(
        explain(&b, "files", Some("read"), NOW).is_none(),
        "it allows, or is of another server"
    );
    assert!(explain(&a, "git", None, NOW).is_none());
    assert!(explain(&a, "clock", None, 19_999).is_some());
    assert!(
        explain(&a, "clock", None, 20_000).is_none(),
        "it has expired"
    );
}

/// An agent of another node: what hinders it closes what is allowed, and adds nothing to what is denied.
#[test]
fn a_hindrance_closes_what_entries_allow() {
    let why = || Some("nas is away".to_owned());
    let mut allowed = Grants::default();
    give(&mut allowed, 1, &request(None, Permission::Allow));
    let mut denied = Grants::default();
    give(&mut denied, 1, &request(None, Permission::Deny));
    let none = Grants::default();
    for (grants, hindrance, permission, source, rule) in [
        (
            &allowed,
            None,
            Permission::Allow,
            Source::ServerGrant,
            "grant 0101",
        ),
        (
            &allowed,
            why(),
            Permission::Deny,
            Source::DefaultPolicy,
            "nas is away",
        ),
        (
            &denied,
            why(),
            Permission::Deny,
            Source::ServerGrant,
            "grant 0101",
        ),
        (
            &denied,
            None,
            Permission::Deny,
            Source::ServerGrant,
            "grant 0101",
        ),
        (
            &none,
            None,
            Permission::Deny,
            Source::DefaultPolicy,
            "no grant allows it",
        ),
        (
            &none,
            why(),
            Permission::Deny,
            Source::DefaultPolicy,
            "no grant allows it",
        ),
    ] {
        let hinders = hindrance.clone();
        let found = {
            let level = (Source::ServerGrant, files(), in_force(grants));
            explain_foreign([level].into_iter(), None, hindrance, &name)
        };
        assert_eq!((found.permission, found.source), (permission, source));
        assert!(found.rule.starts_with(rule), "{}", found.rule);
        assert!(found.considered.contains(&found.rule));
        assert!(hinders.is_none_or(|why| found.considered.contains(&why)));
    }
    let found = {
        let level = (Source::ServerGrant, files(), in_force(&none));
        explain_foreign([level].into_iter(), None, None, &name)
    };
    assert_eq!(found.considered[0], "no entry for all of server files");
}

/// Each entry says to whom it is, of what, and whether it counts.
#[test]
fn an_entry_is_one_sentence() {
    let all = AgentId::pattern_for_node(issuer(2));
    let everywhere = AgentId::new("alice").pattern_for_all_nodes();
    let revoke = LogPosition {
        issuer: issuer(2),
        sequence: 7,
    };
    let in_conflict = GrantStatus::InConflict {
        revoke,
        at_ms: 8_000,
    };
    for (who, tool, force, expected) in [
        (
            &all,
            None,
            GrantStatus::InForce,
            "allows all of server files to every agent of nas (\"why not\"): in force",
        ),
        (
            &all,
            Some("r*"),
            GrantStatus::InForce,
            "allows tools files:r* to every agent of nas",
        ),
        (
            &everywhere,
            None,
            GrantStatus::Pending,
            "to alice of every node (\"why not\"): does not count yet",
        ),
        (
            &AgentId::new("a"),
            Some("read"),
            GrantStatus::NotAuthorised,
            "allows tool files:read (\"why not\"): does not",
        ),
        (&all, None, GrantStatus::Quarantined, "forked"),
        (
            &all,
            None,
            GrantStatus::UnknownOperation,
            "this version does not understand",
        ),
        (
            &all,
            None,
            GrantStatus::ExpiredEarly(9_000),
            "by the clock of another admin node",
        ),
        (
            &all,
            None,
            GrantStatus::Revoked(revoke),
            "taken back by node 020202020202 (operation 7)",
        ),
        (
            &all,
            None,
            in_conflict.clone(),
            "in conflict with the revoke of nas at 1970-01-01T00:00:08.000Z: grant again to allow it",
        ),
    ] {
        let mut grants = Grants::default();
        give(
            &mut grants,
            1,
            &asked(who, "files", tool, Permission::Allow),
        );
        let resource = GrantResource::Server(at("files"));
        let found = grants
            .iter()
            .map(|it| explained(it, force.clone()))
            .collect();
        let level = [(Source::ServerGrant, resource, found)];
        let found = explain_foreign(level.into_iter(), None, None, &name);
        assert!(
            found.considered[0].contains(expected),
            "{}",
            found.considered[0]
        );
        assert_eq!(
            found.permission == Permission::Allow,
            force == GrantStatus::InForce
        );
        let words = describe_conflict(&force, name);
        assert_eq!(words.is_some(), force == in_conflict);
    }
}

/// What a conflict closes is explained before what ended in another way.
#[test]
fn a_conflict_is_explained_before_other_ends() {
    let mut grants = Grants::default();
    give(&mut grants, 1, &request(None, Permission::Allow));
    give(&mut grants, 2, &request(Some("t"), Permission::Allow));
    let revoke = LogPosition {
        issuer: issuer(2),
        sequence: 7,
    };
    let in_conflict = GrantStatus::InConflict { revoke, at_ms: 0 };
    let forces = [GrantStatus::Pending, in_conflict];
    let found = grants
        .iter()
        .zip(forces)
        .map(|(it, force)| explained(it, force))
        .collect();
    let level = [(
        Source::ServerGrant,
        GrantResource::Server(at("files")),
        found,
    )];
    let found = explain_foreign(level.into_iter(), None, None, &name);
    assert!(
        found.considered[0].contains("in conflict"),
        "{:?}",
        found.considered
    );
}

/// MGP-073: by agent and by server, with the names that nodes have here; only what is in force.
#[test]
fn a_list_has_what_is_in_force_and_asked_for() {
    let mut grants = Grants::default();
    let (a, b) = (AgentId::new("a"), AgentId::new("b"));
    give(&mut grants, 1, &asked(&a, "files", None, Permission::Allow));
    give(
        &mut grants,
        2,
        &asked(&a, "git", Some("log"), Permission::Deny),
    );
    give(
        &mut grants,
        3,
        &asked(&b, "nas/files", None, Permission::Deny),
    );
    let mut short = asked(&b, "files", None, Permission::Allow);
    short.expires_at = Some("1970-01-01T00:00:20Z".into());
    give(&mut grants, 4, &short);
    let listed = |agent: Option<&str>, on: Option<&str>, now| {
        let json = serde_json::json!({"agent_id": agent, "server_id": on});
        let asked: words::List = serde_json::from_value(json).unwrap();
        list(&grants, &authority(), &asked, now, name)
    };
    let ids = |agent, on, now| {
        let shown = listed(agent, on, now);
        let ids: Vec<String> = shown.iter().map(|it| it.grant_id[..2].to_owned()).collect();
        ids
    };
    assert_eq!(ids(None, None, 19_999), ["01", "02", "03", "04"]);
    assert_eq!(ids(None, None, 20_000), ["01", "02", "03"]);
    assert_eq!(ids(Some("a"), None, NOW), ["01", "02"]);
    assert_eq!(ids(None, Some("files"), NOW), ["01", "04"]);
    assert_eq!(ids(Some("b"), Some("nas/files"), NOW), ["03"]);
    assert_eq!(ids(Some("c"), None, NOW), [""; 0]);
    let shown = listed(Some("a"), Some("git"), NOW);
    let [log] = &shown[..] else {
        panic!("{shown:?}");
    };
    assert_eq!(
        (log.entry_type, log.tool_name.as_deref()),
        (EntryType::ToolGrant, Some("log"))
    );
    assert_eq!(
        (log.permission, log.granted_by.as_str()),
        (Permission::Deny, "chief")
    );
    assert_eq!(log.granted_at, "1970-01-01T00:00:05.000Z");
    assert_eq!(
        (log.justification.as_deref(), &log.expires_at),
        (Some("why not"), &None)
    );
    let ends = &listed(Some("b"), Some("files"), NOW)[0].expires_at;
    assert_eq!(ends.as_deref(), Some("1970-01-01T00:00:20.000Z"));
}

/// In the logs of a cluster agents and servers are shown with the nodes' names, but for those of this node.
#[test]
fn a_list_of_the_cluster_names_other_nodes() {
    let mut grants = Grants::default();
    let alice = AgentId::new("alice");
    for (n, who, on, tool) in [
        (1, alice.clone(), "files", None),
        (
            2,
            AgentId::from_node_agent(&issuer(2).agent(alice.clone())),
            "files",
            Some("r*"),
        ),
        (3, AgentId::pattern_for_node(issuer(2)), "nas/files", None),
        (4, AgentId::pattern_for_node(issuer(1)), "nas/files", None),
        (5, alice.pattern_for_all_nodes(), "files", None),
    ] {
        give(&mut grants, n, &asked(&who, on, tool, Permission::Allow));
    }
    let conflict = |it: &LoggedGrant| (it.grant.id == id(5)).then(|| "why".to_owned());
    let all = grants.iter().map(|it| (it, conflict(it)));
    let mut shown = list_cluster(all, issuer(1), name);
    shown.sort_by(|one, other| one.grant_id.cmp(&other.grant_id));
    let names: Vec<(&str, &str)> = (shown.iter())
        .map(|it| (it.agent_id.as_str(), it.server_id.as_str()))
        .collect();
    assert_eq!(
        names,
        [
            ("alice", "files"),
            ("alice@nas", "files"),
            ("*@nas", "nas/files"),
            ("*", "nas/files"),
            ("alice@*", "files"),
        ]
    );
    let (conflicts, tool): (Vec<_>, _) = (
        shown.iter().map(|it| it.conflict.as_deref()).collect(),
        shown[1].tool_name.as_deref(),
    );
    assert_eq!(conflicts, [None, None, None, None, Some("why")]);
    assert_eq!(
        (tool, shown[1].entry_type),
        (Some("r*"), EntryType::ToolGrant)
    );
}
