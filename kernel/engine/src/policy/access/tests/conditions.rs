//! Grants that allow on a condition.

use mgp_screening::conditions::{Facts, ToolFacts};

use super::*;
use crate::policy::access::requests::CONDITIONS_MAX;

fn facts(arguments: &str) -> Facts<'_> {
    Facts {
        arguments,
        tool: ToolFacts {
            name: "write",
            server: "files",
            risk: "moderate",
            effect: "write",
            definition: "{}",
        },
        agent: "a",
        node: "01",
        now_ms: NOW,
        trust: "standard",
        home: None,
    }
}

fn on_condition(tool: Option<&str>, when: &str) -> words::Grant {
    let mut asked = request(tool, Permission::Allow);
    asked.when = Some(when.to_owned());
    asked
}

/// Whether a call with these arguments is allowed, as calls are decided.
fn allows(table: &GrantTable, tool: &str, arguments: &str) -> bool {
    let (who, files) = (agent("a"), server("files"));
    let decision = table.decide(&who, &files, Some(tool), NOW);
    assert_eq!(
        table.lease(&decision).is_some(),
        decision.permission == Permission::Allow
    );
    let conditions = table.conditions(&who, &files, tool, NOW);
    match decision.permission {
        Permission::Allow => true,
        Permission::Deny => {
            decision.is_conditional && conditions.find_holding(&facts(arguments)).is_some()
        }
    }
}

const YES: &str = r#"{"n":1}"#;
const NO: &str = r#"{"n":2}"#;

/// EXT-141: no default policy and no less specific entry opens what a condition closes.
#[test]
fn a_condition_decides_its_level() {
    for policy in [DefaultPolicy::OptIn, DefaultPolicy::OptOut] {
        let mut grants = Grants::default();
        give(&mut grants, 1, &request(None, Permission::Allow));
        give(&mut grants, 2, &on_condition(Some("write"), "args.n == 1"));
        let table = table(&grants, policy);
        assert!(allows(&table, "write", YES) && !allows(&table, "write", NO));
        assert!(!allows(&table, "write", "{}") && !allows(&table, "write", "null"));
        assert!(allows(&table, "read", NO), "the server's entry decides");
        let (who, files) = (agent("a"), server("files"));
        assert!(
            table.is_allowed(&who, &files, Some("write"), NOW),
            "it is listed"
        );
        assert!(table.is_server_open(&who, &files, NOW));
        let decision = table.decide(&who, &files, Some("write"), NOW);
        assert!(decision.describe_rule().contains("on a condition"));
        assert_eq!(decision.to_query_response().permission, Permission::Deny);
        assert!(decision.is_explicit_allow());
    }
}

/// EXT-141: what is no call of a tool cannot be evaluated, and so is closed.
#[test]
fn a_condition_on_a_server_is_about_calls_of_its_tools() {
    let mut grants = Grants::default();
    give(&mut grants, 1, &on_condition(None, "args.n == 1"));
    let table = table(&grants, DefaultPolicy::OptOut);
    let (who, files) = (agent("a"), server("files"));
    assert!(allows(&table, "any", YES) && !allows(&table, "any", NO));
    assert!(
        !table.is_server_open(&who, &files, NOW),
        "resources, prompts, notifications"
    );
    assert!(!table.decide(&who, &files, None, NOW).is_conditional);
    assert!(table.is_server_visible(&who, &files, NOW), "its tools are");
    give(&mut grants, 2, &request(Some("free"), Permission::Allow));
    give(&mut grants, 3, &request(Some("shut"), Permission::Deny));
    let table = super::table(&grants, DefaultPolicy::OptOut);
    assert!(allows(&table, "free", NO) && !allows(&table, "shut", YES));
}

/// EXT-141: a new entry for the same replaces the earlier one, in the same step.
#[test]
fn a_condition_replaces_and_is_replaced() {
    for before in [Permission::Allow, Permission::Deny] {
        let mut grants = Grants::default();
        give(&mut grants, 1, &request(Some("write"), before));
        let operations = give(&mut grants, 2, &on_condition(Some("write"), "args.n == 1"));
        assert_eq!(operations, 1, "nothing is open in between");
        let table = table(&grants, DefaultPolicy::OptOut);
        assert!(allows(&table, "write", YES) && !allows(&table, "write", NO));
        give(&mut grants, 3, &request(Some("write"), before));
        let table = super::table(&grants, DefaultPolicy::OptOut);
        assert_eq!(allows(&table, "write", NO), before == Permission::Allow);
        give(&mut grants, 4, &on_condition(Some("write"), "args.n == 2"));
        assert_eq!(take(&mut grants, &revoking(Some("write"))), 1);
        let table = super::table(&grants, DefaultPolicy::OptIn);
        assert!(!allows(&table, "write", NO));
    }
}

/// EXT-140
#[test]
fn a_condition_that_cannot_be_read_is_refused() {
    let none = Grants::default();
    let asked = |request: &words::Grant| {
        let names = NodeNames::default();
        grant(
            request,
            &operator(),
            &names,
            &none,
            &authority(),
            id(9),
            NOW,
        )
    };
    let error = asked(&on_condition(Some("t"), "arg.n == 1")).unwrap_err();
    assert!(error.to_string().contains("did you mean args?"), "{error}");
    assert!(matches!(error.into_refusal(), Refusal::BadParams(_)));
    let mut denial = on_condition(Some("t"), "args.n == 1");
    denial.permission = Permission::Deny;
    assert!(matches!(asked(&denial), Err(GrantRequestError::Form(_))));
    assert!(asked(&on_condition(Some("t"), "")).is_err());
}

/// The table holds compiled conditions, so there are only so many.
#[test]
fn so_many_conditions_can_be_reviewed() {
    let mut grants = Grants::default();
    for n in 0..CONDITIONS_MAX {
        let mut id = [0xee; 16];
        id[..8].copy_from_slice(&(n as u64).to_be_bytes());
        let tool = format!("t{n}");
        let made = grant(
            &on_condition(Some(&tool), "args.n == 1"),
            &operator(),
            &NodeNames::default(),
            &grants,
            &authority(),
            GrantId(id),
            NOW,
        );
        made.unwrap()
            .into_iter()
            .for_each(|change| write(&mut grants, 1, change));
    }
    let again = |tool: &str| {
        let request = on_condition(Some(tool), "args.n == 2");
        let names = NodeNames::default();
        grant(
            &request,
            &operator(),
            &names,
            &grants,
            &authority(),
            id(9),
            NOW,
        )
    };
    assert_eq!(again("more"), Err(GrantRequestError::TooManyConditions));
    assert!(again("t7").is_ok(), "one of them is replaced");
}

/// EXT-141: a condition goes on closing where what it allows does not count.
#[test]
fn a_condition_closes_also_while_it_allows_nothing() {
    let mut grants = Grants::default();
    give(&mut grants, 1, &on_condition(Some("write"), "args.n == 1"));
    give(&mut grants, 2, &request(Some("read"), Permission::Allow));
    write_unknown(&mut grants);
    let table = table(&grants, DefaultPolicy::OptOut);
    assert!(!allows(&table, "write", YES) && !allows(&table, "write", NO));
    assert!(
        allows(&table, "read", NO),
        "its entry does not count, the default policy does"
    );
    let (who, files) = (agent("a"), server("files"));
    assert!(
        !table.is_allowed(&who, &files, Some("write"), NOW),
        "it is not listed"
    );
    let policies = defaults(DefaultPolicy::OptOut);
    let found = explain(
        &grants,
        &authority(),
        &policies,
        &who,
        &files,
        Some("write"),
        NOW,
    );
    assert_eq!(found.permission, Permission::Deny);
    assert!(
        found.rule.contains("closed meanwhile") && found.conditions.is_empty(),
        "{found:?}"
    );
}

/// An operation of a kind that no build knows yet.
fn write_unknown(grants: &mut Grants) {
    let (sequence, previous) = grants.next_position(issuer(1));
    let body = serde_json::json!({
        "cluster": null, "place": {"issuer": issuer(1), "sequence": sequence}, "previous": previous,
        "author": "operator", "told_at_ms": 0, "change": {"later": {}},
    });
    let body = rmp_serde::to_vec_named(&body).unwrap();
    grants
        .apply(&EncodedOperation::decode(&body).unwrap())
        .unwrap();
}

/// EXT-143
#[test]
fn an_explanation_has_the_conditions_that_decide() {
    let mut grants = Grants::default();
    give(&mut grants, 1, &on_condition(Some("write"), "args.n == 1"));
    let policies = defaults(DefaultPolicy::OptOut);
    let (who, files) = (agent("a"), server("files"));
    let explained = |tool| explain(&grants, &authority(), &policies, &who, &files, tool, NOW);
    let found = explained(Some("write"));
    assert_eq!(
        (found.permission, found.source),
        (Permission::Deny, Source::ToolGrant)
    );
    assert_eq!(found.conditions.len(), 1);
    assert_eq!(found.conditions[0].when, "args.n == 1");
    assert!(
        found
            .rule
            .contains("allows tool files:write when args.n == 1"),
        "{}",
        found.rule
    );
    assert!(explained(Some("read")).conditions.is_empty());
    let listed = list(
        &grants,
        &authority(),
        &serde_json::from_str("{}").unwrap(),
        NOW,
        |_| String::new(),
    );
    assert_eq!(listed[0].when.as_deref(), Some("args.n == 1"));
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    Deny,
    Allow,
    /// On the condition that the argument is this number.
    When(u8),
}

proptest! {
    /// EXT-141: of the entries for the tool, else of those for the server: a denial wins, then an entry without a
    /// condition, then one condition that holds. Only without any entry does the default policy decide.
    #[test]
    fn decisions_are_those_of_the_rule(
        entries in prop::collection::vec((any::<bool>(), prop_oneof![
            Just(Effect::Deny), Just(Effect::Allow), (0..3_u8).prop_map(Effect::When),
        ]), 0..6),
        opt_out in any::<bool>(),
        n in 0..3_u8,
    ) {
        let mut grants = Grants::default();
        for (number, (of_tool, effect)) in (1..).zip(&entries) {
            let on = at("files");
            let entry = Grant {
                id: id(number),
                subject: Subject::Agent(issuer(1).agent(AgentId::new("a"))),
                resource: if *of_tool {
                    GrantResource::Tool(on, "write".into())
                } else {
                    GrantResource::Server(on)
                },
                permission: if *effect == Effect::Deny { Permission::Deny } else { Permission::Allow },
                not_after_ms: None,
                told_by: None,
                justification: None,
                replaces: Vec::new(),
                when: match effect {
                    Effect::When(n) => Some(format!("args.n == {n}")),
                    Effect::Deny | Effect::Allow => None,
                },
            };
            write(&mut grants, 1, GrantChange::Grant(entry));
        }
        let decide = |of_tool: bool| {
            let level = || entries.iter().filter(|(it, _)| *it == of_tool).map(|(_, effect)| *effect);
            let has = |effect| level().any(|it| it == effect);
            level().next().map(|_| !has(Effect::Deny) && (has(Effect::Allow) || has(Effect::When(n))))
        };
        let expected = decide(true).or_else(|| decide(false)).unwrap_or(opt_out);
        let policy = if opt_out { DefaultPolicy::OptOut } else { DefaultPolicy::OptIn };
        let table = table(&grants, policy);
        prop_assert_eq!(allows(&table, "write", &format!(r#"{{"n":{n}}}"#)), expected);
        let whole = match decide(false) {
            Some(_) => entries.iter().all(|(of_tool, effect)| *of_tool || *effect != Effect::Deny)
                && entries.contains(&(false, Effect::Allow)),
            None => opt_out,
        };
        prop_assert_eq!(table.is_server_open(&agent("a"), &server("files"), NOW), whole);
        let policies = defaults(policy);
        let found = explain(&grants, &authority(), &policies, &agent("a"), &server("files"), Some("write"), NOW);
        let holds = found.conditions.iter().any(|it| it.when == format!("args.n == {n}"));
        prop_assert_eq!(found.permission == Permission::Allow || holds, expected);
    }
}
