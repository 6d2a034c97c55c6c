//! Conditions as people write them, as attackers do, and against a reference.

mod attacks;
mod reference;

use super::*;

pub(super) fn facts(arguments: &str) -> Facts<'_> {
    Facts {
        arguments,
        tool: ToolFacts {
            name: "write_file",
            server: "files",
            risk: "moderate",
            effect: "write",
            definition: r#"{"annotations":{"idempotentHint":true,"openWorldHint":"no"}}"#,
        },
        agent: "agent.alice",
        node: "0a",
        // Thursday, 2026-12-24T18:30:00Z.
        now_ms: 1_798_137_000_000,
        trust: "standard",
        home: Some("/home/alice"),
    }
}

pub(super) fn evaluate(text: &str, arguments: &str) -> Result<bool, Fault> {
    Condition::compile(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .evaluate(&facts(arguments))
}

/// EXT-140
#[test]
fn conditions_mean_what_cel_says() {
    let arguments = r#"{"path":"/home/alice/notes/a.md","n":3,"list":["a","b"],"deep":{"x":{"y":true}},
        "items":[{"p":"~/notes/1"},{"p":"~/notes/2"}],"none":null,"half":0.5,"ä":"ö"}"#;
    for text in [
        r#"inside(args.path, "~/notes")"#,
        r#"inside(args.path, '~/notes') && args.n < 10"#,
        r#"["~/music", "~/notes"].exists(d, inside(args.path, d))"#,
        r#"args.items.all(item, inside(item.p, "~/notes"))"#,
        r#"args.path.startsWith("/home/") && args.path.endsWith(".md") && args.path.contains("notes")"#,
        r#"args.path.matches(r"^/home/[a-z]+/notes/[^/]+\.md$")"#,
        r#"args.n in [1, 2, 3]"#,
        r#"args.path.like("/home/**") && !args.path.resembles("**/.env")"#,
        r#""a" in args.list && !("c" in args.list)"#,
        r#""path" in args && has(args.n) && !has(args.m)"#,
        "size(args.list) == 2 && args.list.size() == 2 && args.list[1] == 'b'",
        "args.deep.x.y && args['deep'][\"x\"].y",
        "args.n + 2 * 3 - 1 == 8 && args.n % 2 == 1 && -args.n < 0 && args.n / 2 == 1",
        "args.none == null && args.half < 1 && args.half == 5e-1",
        "args.n > 5 ? false : true",
        "args.n == 3 || args.missing == 1",
        "args.missing == 1 || args.n == 3",
        "args['ä'] == 'ö' && size('äöü') == 3",
        r#"tool.name == "write_file" && tool.server == "files" && tool.risk != "dangerous""#,
        r#"tool.effect == "write" && tool.annotations.destructiveHint && !tool.annotations.readOnlyHint"#,
        "tool.annotations.idempotentHint && tool.annotations.openWorldHint",
        r#"agent == "agent.alice" && node == "0a" && trust == "standard""#,
        "time.getHours() >= 18 && time.getMinutes() == 30 && time.getDayOfWeek() == 4",
        "time.getFullYear() == 2026 && time.getMonth() == 11 && time.getDate() == 24",
        r#"time < timestamp("2027-01-01T00:00:00Z")"#,
        "0x10 == 16 && 1.0 == 1 && 'a' < 'b' && \"\\u0041\" == 'A'",
    ] {
        assert_eq!(evaluate(text, arguments), Ok(true), "{text}");
        let negated = format!("!({text})");
        assert_eq!(evaluate(&negated, arguments), Ok(false), "{text}");
    }
    for (text, fault) in [
        ("args.missing == 1", Fault::Missing),
        ("args.list[2] == 'c'", Fault::Missing),
        ("args.n.x == 1", Fault::Kind),
        ("args.path < 3", Fault::Kind),
        ("args.n", Fault::Kind),
        ("args.list == ['a']", Fault::Kind),
        ("args.half + 1 == 1.5", Fault::Number),
        ("args.n / 0 == 1", Fault::Number),
        (r#"inside("notes", "/home")"#, Fault::Path),
        (r#"!inside("..", "/etc")"#, Fault::Path),
        (r#"!"/a/../b".like("/a/**")"#, Fault::Path),
    ] {
        assert_eq!(evaluate(text, arguments), Err(fault), "{text}");
    }
}

/// EXT-140: a misspelt name is refused with the nearest one.
#[test]
fn what_can_never_hold_is_refused_in_words() {
    for (text, words) in [
        ("arg.path == 'a'", "there is no arg; did you mean args?"),
        ("tool.annotation.readOnlyHint", "did you mean annotations?"),
        (
            "tool.annotations.readonlyHint",
            "did you mean readOnlyHint?",
        ),
        ("tool.risc == 'safe'", "did you mean risk?"),
        (
            "tool",
            "name a member: name, server, risk, effect, annotations",
        ),
        ("args.path.startswith('a')", "did you mean startsWith?"),
        ("insid(args.path, 'a')", "did you mean inside?"),
        ("args.path.inside('a')", "it is written inside("),
        (
            "startsWith(args.path, 'a')",
            "it is written value.startsWith(",
        ),
        ("inside(args.path)", "inside() takes 2 arguments, not 1"),
        (
            "args.path.contains()",
            "contains() takes 1 arguments, not 0",
        ),
        ("args.path = 'a'", "equality is written =="),
        ("args.path == 'a", "a text has no end"),
        ("args.path == 'a' args.n", "an operator is missing here"),
        ("args.path ==", "the condition ends too early"),
        ("args.n + 1", "this is a number, not true or false"),
        ("'a' && args.x", "this is a text, not true or false"),
        ("!1", "this is a number"),
        ("args.x.matches(args.y)", "needs a pattern in quotes"),
        ("args.x.matches('(')", "this pattern cannot be used"),
        ("args.x.like(args.y)", "needs a pattern in quotes"),
        (
            "args.x.like('/a/../b')",
            "a pattern of scopes is written as labels are",
        ),
        ("like(args.x, 'a')", "it is written value.like("),
        ("args.x == 1e400", "no number that is exact"),
        ("args.x == '\\d'", "is no escape"),
        ("{'a': 1} == args", "maps cannot be written"),
        ("args.x == \u{201c}a\u{201d}", "has no meaning"),
        ("time < timestamp('tomorrow')", "needs a time such as"),
        ("has(args)", "has() asks for a member"),
        ("", "the condition ends too early"),
    ] {
        let error = Condition::compile(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

/// EXT-140
#[test]
fn arguments_are_those_of_the_tool() {
    let schema =
        r#"{"properties":{"path":{"type":"string"},"options":{"properties":{"mode":{}}}}}"#;
    let check =
        |text: &str, schemas: &[&str]| Condition::compile(text).unwrap().check_schemas(schemas);
    assert_eq!(
        check("args.path == 'a' && args.options.mode == 1", &[schema]),
        Ok(())
    );
    let error = check("has(args.n) || args.pth == 'a'", &[schema]).unwrap_err();
    assert!(
        error.contains("args.n is no argument of the tool"),
        "{error}"
    );
    let error = check("inside(args.pth, '/')", &[schema]).unwrap_err();
    assert_eq!(
        error,
        "args.pth is no argument of the tool; did you mean path?"
    );
    let error = check("args.options.mod == 1", &[schema]).unwrap_err();
    assert!(error.contains("did you mean mode?"), "{error}");
    assert_eq!(
        check("args.pth == 'a'", &[schema, r#"{"properties":{"pth":{}}}"#]),
        Ok(())
    );
    for open in [
        r#"{"properties":{"path":{}},"additionalProperties":true}"#,
        r##"{"$ref":"#/x"}"##,
        r#"{"anyOf":[]}"#,
        "no schema",
    ] {
        assert_eq!(check("args.pth == 'a'", &[open]), Ok(()), "{open}");
    }
    assert!(
        check("args.path.x == 'a'", &[schema]).is_ok(),
        "nothing is said of it"
    );
}

/// EXT-140
#[test]
fn a_failure_names_the_part_and_its_values() {
    let condition =
        Condition::compile(r#"args.n == 1 && (inside(args.path, "~/notes") || args.force)"#)
            .unwrap();
    let parts = condition.failed_parts(&facts(r#"{"n":1,"path":"/etc/passwd"}"#));
    let parts: Vec<String> = parts.iter().map(FailedPart::describe).collect();
    assert_eq!(
        parts,
        [
            r#"inside(args.path, "~/notes") is false, args.path is "/etc/passwd""#,
            "args.force has no value (it is not there), args.force is not there",
        ]
    );
    assert!(
        condition
            .failed_parts(&facts(r#"{"n":1,"path":"~/notes"}"#))
            .is_empty()
    );
    let long = format!(r#"{{"n":"{}"}}"#, "x".repeat(10_000));
    let text = Condition::compile("args.n == 'a'")
        .unwrap()
        .failed_parts(&facts(&long))[0]
        .describe();
    assert!(text.len() < 400, "{text}");
}

#[test]
fn a_condition_of_a_later_version_never_holds() {
    let later = Condition::compile_or_closed("args.path.isBetter()");
    assert!(!later.is_readable() && later.text() == "args.path.isBetter()");
    assert_eq!(later.evaluate(&facts("{}")), Err(Fault::Unreadable));
    assert!(later.failed_parts(&facts("{}")).is_empty() && !later.uses_paths());
}

/// A condition may hold by its text and not where its links lead.
#[test]
fn links_are_resolved_by_who_asks() {
    let condition = Condition::compile(r#"inside(args.path, "~/notes")"#).unwrap();
    let arguments = r#"{"path":"~/notes/link"}"#;
    let links = |path: &str| match path {
        "/home/alice/notes/link" => Some("/etc/passwd".to_owned()),
        "/home/alice/notes" => Some("/data/notes".to_owned()),
        _ => None,
    };
    assert!(condition.uses_paths());
    assert_eq!(condition.evaluate(&facts(arguments)), Ok(true));
    assert_eq!(
        condition.evaluate_resolved(&facts(arguments), &links),
        Ok(false)
    );
    let moved = |path: &str| Some(path.replace("/home/alice", "/data"));
    assert_eq!(
        condition.evaluate_resolved(&facts(arguments), &moved),
        Ok(true)
    );
    assert_eq!(
        condition.evaluate_resolved(&facts(arguments), &|_: &str| None),
        Err(Fault::Path)
    );
}

/// EXT-140: a usual condition takes a few steps. Each takes some 50 ns.
#[test]
fn a_usual_condition_takes_few_steps() {
    let condition = Condition::compile(
        r#"inside(args.path, "~/notes") && size(args.content) < 100000 && tool.risk != "dangerous""#,
    );
    let arguments = r#"{"path":"/home/alice/notes/a.md","content":"hello"}"#;
    let (holds, steps) = condition.unwrap().evaluate_counted(&facts(arguments), None);
    assert_eq!(holds, Ok(true));
    assert!(steps < 100, "{steps}");
}

/// EXT-140, MCPL-053: the lists of scopes and conditions decide by the same patterns and the same readings.
#[test]
fn a_scope_is_a_condition_on_its_label() {
    use crate::scopes::{ScopePattern, ScopeVerdict, evaluate_lists};
    let (white, black) = ("/project/**", "**/.env");
    let read = |pattern| [ScopePattern::parse(pattern).unwrap()];
    let text = format!(r#"args.path.like("{white}") && !args.path.resembles("{black}")"#);
    for label in [
        "/project/a",
        "/project/.env",
        "/project/.ENV",
        "/project/../etc",
        "/project/%2e%2e/etc",
        "/project/a\\.env",
        "/etc/hosts",
        "/project/\u{ff0e}env",
        "",
    ] {
        let arguments = serde_json::json!({"path": label}).to_string();
        let verdict = evaluate_lists(label, &read(black), &read(white));
        let is_approved = matches!(verdict, ScopeVerdict::Approved(_));
        assert_eq!(
            evaluate(&text, &arguments) == Ok(true),
            is_approved,
            "{label}"
        );
        let denied = format!(r#"args.path.resembles("{black}")"#);
        let is_denied = matches!(verdict, ScopeVerdict::Denied(_));
        assert_eq!(evaluate(&denied, &arguments), Ok(is_denied), "{label}");
    }
}
