//! Grants to groups, and what puts agents of this node into them.

use std::sync::Arc;

use super::*;
use crate::doors::name_resolver::NameResolver;
use crate::policy::access::{ClaimedGroups, EntryEffect, GROUPS_OF_AGENT_MAX};

fn to(grantee: &str, tool: Option<&str>, permission: Permission) -> words::Grant {
    let mut asked = request(tool, permission);
    asked.agent_id = grantee.to_owned();
    asked
}

fn membership(agent: &str, group: &str) -> serde_json::Value {
    serde_json::json!({"entry_type": "group_member", "agent_id": agent, "server_id": group})
}

fn joins(agent: &str, group: &str) -> words::Grant {
    let mut json = membership(agent, group);
    json["permission"] = "allow".into();
    serde_json::from_value(json).unwrap()
}

fn leaves(agent: &str, group: &str) -> words::Revoke {
    serde_json::from_value(membership(agent, group)).unwrap()
}

fn claims(groups: &[(&str, EntryEffect)]) -> Principal {
    let groups = groups
        .iter()
        .map(|(group, effect)| (AgentId::new(*group), *effect));
    Principal::InGroups(
        AgentId::new("a"),
        None,
        ClaimedGroups::new(groups.collect()),
    )
}

fn opens(table: &GrantTable, who: &Principal, tool: &str) -> bool {
    let decision = table.decide(who, &server("files"), Some(tool), NOW);
    let allowed = decision.permission == Permission::Allow;
    assert_eq!(table.lease(&decision).is_some(), allowed);
    allowed
}

/// EXT-211: the most specific target first; for the same target the agent's own entries, then those of its groups, of
/// which a denial wins.
#[test]
fn own_entries_decide_before_those_of_groups() {
    use Permission::{Allow, Deny};
    let mut grants = Grants::default();
    for group in ["group.readers", "group.night"] {
        give(
            &mut grants,
            1 + u8::from(group == "group.night"),
            &joins("a", group),
        );
    }
    give(&mut grants, 3, &to("group.readers", None, Allow));
    give(&mut grants, 4, &to("group.readers", Some("write"), Allow));
    give(&mut grants, 5, &to("group.night", Some("write"), Deny));
    give(&mut grants, 6, &to("group.night", Some("delete"), Deny));
    give(&mut grants, 7, &to("a", Some("delete"), Allow));
    let closed = table(&grants, DefaultPolicy::OptIn);
    let (who, other) = (agent("a"), agent("b"));
    assert!(opens(&closed, &who, "read") && !opens(&closed, &other, "read"));
    assert!(
        !opens(&closed, &who, "write"),
        "of two groups the denial wins"
    );
    assert!(
        opens(&closed, &who, "delete"),
        "the agent's own entry decides"
    );
    give(&mut grants, 8, &to("a", None, Deny));
    let closed = table(&grants, DefaultPolicy::OptOut);
    assert!(!opens(&closed, &who, "read") && opens(&closed, &who, "delete"));
    assert!(!opens(&closed, &who, "write"), "the tool is more specific");
    let decision = closed.decide(&who, &server("files"), Some("write"), NOW);
    assert!(
        decision
            .describe_rule()
            .contains("to group.night denies the tool")
    );
    assert!(closed.is_server_visible(&who, &server("files"), NOW));
    let policies = defaults(DefaultPolicy::OptOut);
    let explained = |tool| {
        explain(
            &grants,
            &authority(),
            &policies,
            &who,
            &server("files"),
            Some(tool),
            NOW,
        )
    };
    let found = explained("write");
    assert_eq!(found.permission, Deny);
    assert!(
        found
            .rule
            .contains("denies tool files:write to group.night"),
        "{found:?}"
    );
    let joined = |group: &str| {
        found
            .considered
            .iter()
            .any(|line| line.starts_with(&format!("a is in {group}: entry")))
    };
    assert!(
        joined("group.readers") && joined("group.night"),
        "{found:?}"
    );
    assert_eq!(explained("delete").permission, Allow);
    assert_eq!(explained("read").permission, Deny);
}

/// EXT-211: a condition of a group's grant is evaluated for its members, unless an own entry decides.
#[test]
fn conditions_of_groups_are_those_of_their_members() {
    let mut grants = Grants::default();
    give(&mut grants, 1, &joins("a", "group.readers"));
    let mut asked = to("group.readers", Some("write"), Permission::Allow);
    asked.when = Some("args.n == 1".into());
    give(&mut grants, 2, &asked);
    let of = |grants: &Grants| {
        let table = table(grants, DefaultPolicy::OptOut);
        let decision = table.decide(&agent("a"), &server("files"), Some("write"), NOW);
        let conditions = table.conditions(&agent("a"), &server("files"), "write", NOW);
        (
            decision.permission,
            decision.is_conditional,
            conditions.describe(),
        )
    };
    assert_eq!(of(&grants), (Permission::Deny, true, "args.n == 1".into()));
    asked.agent_id = "a".into();
    asked.when = Some("args.n == 2".into());
    give(&mut grants, 3, &asked);
    assert_eq!(of(&grants).2, "args.n == 2", "the group is not asked");
    give(&mut grants, 4, &to("a", Some("write"), Permission::Allow));
    assert_eq!(of(&grants), (Permission::Allow, false, String::new()));
}

/// EXT-212: who leaves a group loses what it gave, from the next decision on; lists and leases follow.
#[test]
fn a_membership_gives_and_takes_until_it_is_revoked() {
    let mut grants = Grants::default();
    give(
        &mut grants,
        1,
        &to("group.readers", None, Permission::Allow),
    );
    let without = table(&grants, DefaultPolicy::OptIn);
    assert!(!opens(&without, &agent("a"), "read"));
    give(&mut grants, 2, &joins("a", "group.readers"));
    let all = [AgentId::new("a")].into();
    let with = without.with_changes(&all, &grants, &authority(), NOW, 2);
    assert!(
        opens(&with, &agent("a"), "read")
            && with.is_server_open(&agent("a"), &server("files"), NOW)
    );
    assert_ne!(without.audience(&agent("a")), with.audience(&agent("a")));
    let pass = with
        .lease(&with.decide(&agent("a"), &server("files"), None, NOW))
        .unwrap();
    let groups: Vec<_> = with
        .groups_of(&agent("a"))
        .map(|(group, _)| group.to_string())
        .collect();
    assert_eq!(groups, ["group.readers"]);
    assert_eq!(
        give(&mut grants, 3, &joins("a", "group.readers")),
        2,
        "the same again"
    );
    assert_eq!(take(&mut grants, &leaves("a", "group.readers")), 1);
    let after = with.with_changes(&all, &grants, &authority(), NOW, 3);
    assert!(!opens(&after, &agent("a"), "read") && !after.is_lease_valid(pass, NOW));
    assert_ne!(with.audience(&agent("a")), after.audience(&agent("a")));
    // The group's grants are of its name: a later member has them.
    give(&mut grants, 4, &joins("b", "group.readers"));
    assert!(opens(
        &table(&grants, DefaultPolicy::OptIn),
        &agent("b"),
        "read"
    ));
}

/// EXT-212: members of one group share their lists; a change of its grants concerns all of them.
#[test]
fn members_without_entries_share_an_audience() {
    let mut grants = Grants::default();
    give(&mut grants, 1, &to("group.readers", None, Permission::Deny));
    let table = table(&grants, DefaultPolicy::OptOut);
    let readers = [("group.readers", EntryEffect::Whole)];
    let other = Principal::InGroups(
        AgentId::new("b"),
        None,
        ClaimedGroups::new(vec![(AgentId::new("group.readers"), EntryEffect::Whole)]),
    );
    assert_eq!(table.audience(&claims(&readers)), table.audience(&other));
    assert_eq!(table.audience(&agent("a")), Audience::All);
    assert_ne!(table.audience(&other), Audience::All, "not the whole list");
    let all = [AgentId::new("group.readers")].into();
    let later = table.with_changes(&all, &grants, &authority(), NOW, 2);
    assert_ne!(table.audience(&other), later.audience(&other));
}

/// EXT-213: a scope that is missing takes away what the group is allowed, and leaves what it is denied.
#[test]
fn a_narrowed_claim_gives_nothing_and_still_denies() {
    let mut grants = Grants::default();
    give(
        &mut grants,
        1,
        &to("group.readers", None, Permission::Allow),
    );
    give(
        &mut grants,
        2,
        &to("group.readers", Some("write"), Permission::Deny),
    );
    let mut asked = to("group.readers", Some("maybe"), Permission::Allow);
    asked.when = Some("args.n == 1".into());
    give(&mut grants, 3, &asked);
    give(
        &mut grants,
        4,
        &to("group.else", Some("write"), Permission::Allow),
    );
    for policy in [DefaultPolicy::OptIn, DefaultPolicy::OptOut] {
        let table = table(&grants, policy);
        let whole = claims(&[("group.readers", EntryEffect::Whole)]);
        assert!(opens(&table, &whole, "read") && !opens(&table, &whole, "write"));
        let narrowed = claims(&[("group.readers", EntryEffect::Closing)]);
        assert_eq!(
            opens(&table, &narrowed, "read"),
            policy == DefaultPolicy::OptOut
        );
        assert!(
            !opens(&table, &narrowed, "write"),
            "else the scope would give"
        );
        let decision = table.decide(&narrowed, &server("files"), Some("maybe"), NOW);
        assert!(decision.permission == Permission::Deny && !decision.is_conditional);
        let both = claims(&[
            ("group.readers", EntryEffect::Closing),
            ("group.else", EntryEffect::Whole),
        ]);
        assert!(!opens(&table, &both, "write"));
        let set = Principal::InGroups(
            AgentId::new("a"),
            Some(SetName::parse("none").unwrap()),
            ClaimedGroups::default(),
        );
        assert!(
            !opens(&table.with_sets(Arc::default(), 9), &set, "read"),
            "a set narrows"
        );
    }
}

/// EXT-214: an agent that nothing puts into a group is in the default one.
#[test]
fn the_default_group_is_for_agents_in_no_other() {
    let mut grants = Grants::default();
    give(
        &mut grants,
        1,
        &to("group.newcomers", None, Permission::Deny),
    );
    give(&mut grants, 2, &joins("b", "group.readers"));
    let policies = DefaultPolicies {
        group: Some((AgentId::new("group.newcomers"), EntryEffect::Whole)),
        ..defaults(DefaultPolicy::OptOut)
    };
    let table = GrantTable::build(&grants, &authority(), policies.clone(), NOW, 1);
    assert!(!opens(&table, &agent("a"), "read") && opens(&table, &agent("b"), "read"));
    assert!(opens(&table, &operator(), "read"));
    assert!(
        opens(&table, &agent("group.readers"), "read"),
        "a group is in none"
    );
    let claimed = claims(&[("group.readers", EntryEffect::Closing)]);
    assert!(opens(&table, &claimed, "read"), "it is in one");
    let found = explain(
        &grants,
        &authority(),
        &policies,
        &agent("a"),
        &server("files"),
        None,
        NOW,
    );
    assert!(found.rule.contains("to group.newcomers"), "{found:?}");
    assert!(found.considered[0].contains("in no other"), "{found:?}");
    take(&mut grants, &leaves("b", "group.readers"));
    let table = GrantTable::build(&grants, &authority(), policies, NOW, 2);
    assert!(!opens(&table, &agent("b"), "read"));
}

/// EXT-212: a group is in no group, a membership has no end and no condition, and an agent is in a bounded number.
#[test]
fn a_membership_is_of_an_agent_and_bounded() {
    let grants = Grants::default();
    let made = |asked: &words::Grant| {
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
    let refused = |asked: &words::Grant| made(asked).unwrap_err().to_string();
    assert!(refused(&joins("group.readers", "group.night")).contains("a group is in none"));
    let mut ends = joins("a", "group.readers");
    ends.expires_at = Some("2099-01-01T00:00:00Z".into());
    assert!(refused(&ends).contains("without an end"));
    let mut denied = joins("a", "group.readers");
    denied.permission = Permission::Deny;
    assert!(refused(&denied).contains("without an end"));
    let mut of_tool = joins("a", "group.readers");
    of_tool.tool_name = Some("x".into());
    assert!(refused(&of_tool).contains("no tool"));
    assert!(refused(&joins("a", "group.Readers")).contains("small letters"));
    let mut grants = Grants::default();
    for n in 0..GROUPS_OF_AGENT_MAX {
        give(
            &mut grants,
            u8::try_from(n).unwrap(),
            &joins("a", &format!("group.g{n}")),
        );
    }
    let more = grant(
        &joins("a", "group.more"),
        &operator(),
        &nas(),
        &grants,
        &authority(),
        id(99),
        NOW,
    );
    assert_eq!(more, Err(GrantRequestError::TooManyGroups));
    let unchecked = revoke(
        &leaves("a", "group.g0"),
        &agent("a"),
        &nas(),
        &grants,
        &authority(),
    );
    assert!(unchecked.is_err(), "only the operator");
}

/// A-11, EXT-211: whoever has entries is known by name, as whoever has a token is.
#[test]
fn agents_and_groups_with_entries_have_names() {
    let mut grants = Grants::default();
    give(&mut grants, 1, &to("agent.claude", None, Permission::Allow));
    give(&mut grants, 2, &to("group.night", None, Permission::Deny));
    give(&mut grants, 3, &joins("agent.codex", "group.readers"));
    let known = NameResolver {
        agents: [AgentId::new("agent.claude")].into(),
        granted: Some(Arc::new(table(&grants, DefaultPolicy::OptIn))),
        ..NameResolver::default()
    };
    for agent in ["claude", "codex"] {
        let meant = known.resolve_agent(agent).unwrap();
        assert_eq!(meant.unknown, None, "{agent}");
    }
    for group in ["group.readers", "group.night", "group.night@*"] {
        let meant = known.resolve_grantee(group).unwrap();
        assert_eq!(meant.unknown, None, "{group}");
    }
    for (typed, hint) in [
        ("claud", "did you mean agent.claude?"),
        ("cla", "did you mean agent.claude?"),
        ("group.nihgt", "did you mean group.night?"),
    ] {
        let meant = known.resolve_grantee(typed).unwrap();
        let unknown = meant.unknown.unwrap().to_string();
        assert!(unknown.contains(hint), "{unknown}");
    }
}
