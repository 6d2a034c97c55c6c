use super::*;
use mgp_protocol::mgp::discovery::security::RiskLevel;
use mgp_screening::{BlockedArgument, code_safety};

fn terms(trust: TrustLevel) -> RequirementInputs {
    RequirementInputs {
        trust,
        ..RequirementInputs::default()
    }
}

fn with(rules: ToolRules) -> RequirementInputs {
    RequirementInputs {
        rules: Arc::new(rules),
        ..RequirementInputs::default()
    }
}

fn read(name: &str, rest: &str, terms: &RequirementInputs) -> CallRequirements {
    let comma = if rest.is_empty() { "" } else { "," };
    CallRequirements::from_definition(&format!(r#"{{"name":"{name}"{comma}{rest}}}"#), name, terms)
}

fn names(requirements: &CallRequirements) -> Vec<&str> {
    requirements
        .validators
        .active()
        .iter()
        .map(|v| v.name())
        .collect()
}

fn blocked(requirements: &CallRequirements, args: &str) -> Option<BlockedArgument> {
    match requirements.validate("t", args, |_| Ok::<(), ()>(())) {
        Err(ScreeningRejection::Blocked(blocked)) => Some(blocked),
        Ok(()) | Err(ScreeningRejection::UnsafeCode { .. }) => None,
    }
}

/// MGP-272: a tool that says nothing is held to what its name suggests, also of a plain MCP server.
#[test]
fn a_silent_tool_is_known_by_its_name() {
    let plain = RequirementInputs::default();
    assert_eq!(names(&read("execute_command", "", &plain)), ["sandbox"]);
    assert_eq!(names(&read("run_python_code", "", &plain)), ["code_safety"]);
    assert!(names(&read("add", "", &plain)).is_empty());
    let off = with(ToolRules {
        validators: vec!["none".into()],
        ..ToolRules::default()
    });
    assert!(names(&read("execute_command", "", &off)).is_empty());
    let nothing = read("execute_command", r#""security":{}"#, &plain);
    assert_eq!(names(&nothing), ["sandbox"]);
    let unreadable = r#""security":{"validator":7}"#;
    assert_eq!(
        names(&read("run_python_code", unreadable, &plain)),
        ["sandbox", "network_restricted"],
        "it said something"
    );
}

/// MGP-062, MGP-227: a server that says `none` is believed unless it is sandboxed.
#[test]
fn none_is_not_believed_of_a_sandboxed_server() {
    let none = r#""security":{"validator":"none"}"#;
    let standard = read("execute_command", none, &terms(TrustLevel::Standard));
    assert!(names(&standard).is_empty());
    let sandboxed = read("execute_command", none, &terms(TrustLevel::Sandboxed));
    assert_eq!(names(&sandboxed), ["sandbox"]);
}

/// MGP-064, A-22: what nobody knows or can read closes the door and is told.
#[test]
fn an_unknown_validator_is_told() {
    for security in [
        r#"{"validator":"zzz"}"#,
        r#"{"validator":7}"#,
        "[]",
        r#"{"validator":["none",{}]}"#,
    ] {
        let odd = read(
            "t",
            &format!(r#""security":{security}"#),
            &RequirementInputs::default(),
        );
        assert_eq!(names(&odd), ["sandbox", "network_restricted"], "{security}");
        assert!(!odd.warnings.is_empty() && blocked(&odd, r#"{"command":"rm -rf /"}"#).is_some());
        assert_eq!(odd.risk.level, RiskLevel::Dangerous);
    }
    let three = r#""security":{"validator":"zzz","risk_level":7,"code_safety":{"level":"loose"}}"#;
    let warnings = read("t", three, &RequirementInputs::default()).warnings;
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(warnings[0].contains("\"zzz\"") && warnings[1].contains("security.risk_level"));
    assert!(warnings[2].contains("loose"), "{warnings:?}");
}

/// MGP-104, MGP-109, MGP-227, A-24: a declaration holds by itself; a sandboxed server's code is judged
/// strictly at least, whatever it declares.
#[test]
fn code_is_judged_where_it_is_declared_and_where_nobody_is_trusted() {
    let declared = r#""security":{"code_safety":{"level":"unrestricted","max_code_size_bytes":9}}"#;
    let code = read("t", declared, &terms(TrustLevel::Standard))
        .code
        .unwrap()
        .policy
        .clone();
    assert_eq!(
        (code.level, code.max_code_size_bytes),
        (Level::Unrestricted, Some(9))
    );
    let code = read("t", declared, &terms(TrustLevel::Sandboxed))
        .code
        .unwrap()
        .policy
        .clone();
    assert_eq!(code.level, Level::Strict);
    for schema in [
        r#""inputSchema":{"properties":{"code":{"type":"string"}}}"#,
        r#""inputSchema":{"properties":{"a":{"items":{"properties":{"x":{"format":"code"}}}}}}"#,
    ] {
        assert!(
            read("t", schema, &terms(TrustLevel::Standard))
                .code
                .is_none()
        );
        let code = read("t", schema, &terms(TrustLevel::Sandboxed))
            .code
            .unwrap()
            .policy
            .clone();
        assert_eq!(code.level, Level::Strict);
    }
    let floor = with(ToolRules {
        code_safety: Level::Readonly,
        ..ToolRules::default()
    });
    let raised = read("t", declared, &floor).code.unwrap().policy.clone();
    assert_eq!(raised.level, Level::Readonly, "the operator's floor");
    let zip = r#""inputSchema":{"properties":{"zip_code":{"type":"string"}}}"#;
    assert!(read("t", zip, &terms(TrustLevel::Sandboxed)).code.is_none());
}

/// A-24: the argument whose schema says `format: "code"` is the one that is judged.
#[test]
fn a_formatted_argument_is_code() {
    let requirements = read(
        "t",
        r#""inputSchema":{"properties":{"body":{"format":"code"}}},"security":{"code_safety":{}}"#,
        &RequirementInputs::default(),
    );
    let policy = requirements.code.clone().unwrap().policy.clone();
    let judge =
        |args: &str| requirements.validate("t", args, |code| code_safety::check(&policy, code));
    assert!(judge(r#"{"body":"import json","name":"import subprocess"}"#).is_ok());
    let refused = judge(r#"{"body":"import subprocess"}"#);
    assert!(matches!(refused, Err(ScreeningRejection::UnsafeCode { path, .. }) if path == "/body"));
}

/// Only a name with a purpose, or code, is worth a look at arguments that resemble it.
#[test]
fn arguments_with_a_purpose_are_collected_once() {
    let schema = r#"{"properties":{"url":{},"frobs":{"format":"text"},"body":{"format":"code"}},
        "anyOf":[{"properties":{"url":{},"body":{"format":"code"}}}]}"#;
    let mut found = CodeArguments::from_schema(Some(schema));
    found.all.sort();
    assert_eq!(found.all, ["body", "url"]);
    assert_eq!(found.formatted, ["body"]);
}

/// MGP-109: a verdict that was remembered is for the same code under the same policy.
#[test]
fn a_verdict_is_known_by_its_code_and_its_policy() {
    let rules = |level| {
        let declared = format!(r#""security":{{"code_safety":{{"level":"{level}"}}}}"#);
        read("t", &declared, &RequirementInputs::default())
            .code
            .unwrap()
    };
    let (strict, readonly) = (rules("strict"), rules("readonly"));
    assert_eq!(strict.digest("a"), rules("strict").digest("a"));
    assert_ne!(strict.digest("a"), strict.digest("b"));
    assert_ne!(strict.digest("a"), readonly.digest("a"));
}

/// A tool that says of itself that it changes things passes no `readonly`.
#[test]
fn a_tool_that_changes_things_is_not_read_only() {
    let tool = |hint: &str| {
        let rest = format!(r#""annotations":{{{hint}}},"security":{{"validator":"readonly"}}"#);
        read("t", &rest, &RequirementInputs::default())
    };
    let query = r#"{"query":"SELECT 1"}"#;
    assert!(blocked(&tool(r#""readOnlyHint":false"#), query).is_some());
    for (hint, said) in [("", None), (r#""readOnlyHint":true"#, Some(true))] {
        let tool = tool(hint);
        assert!(blocked(&tool, query).is_none(), "{hint}");
        assert_eq!(tool.read_only_hint, said);
    }
}

/// CVE-2026-27896: a server that does not regard case reads an argument that the schema does not know
/// as the one it does.
#[test]
fn an_undeclared_argument_is_judged_as_the_declared_one_it_is_taken_for() {
    let requirements = read(
        "t",
        r#""inputSchema":{"properties":{"body":{"format":"code"}}},"security":{"code_safety":{}}"#,
        &RequirementInputs::default(),
    );
    let policy = requirements.code.clone().unwrap().policy.clone();
    let judge =
        |args: &str| requirements.validate("t", args, |code| code_safety::check(&policy, code));
    let refused = judge(r#"{"body":"1","BODY":"import subprocess"}"#);
    assert!(matches!(refused, Err(ScreeningRejection::UnsafeCode { path, .. }) if path == "/BODY"));
    assert!(judge(r#"{"body":"1","BODIES":"import subprocess"}"#).is_ok());
    let declared = r#""inputSchema":{"properties":{"baseImageURL":{"type":"string"}}},"security":{"validator":"network_restricted"}"#;
    let requirements = read("t", declared, &RequirementInputs::default());
    for name in [
        "baseImageURL",
        "baseimageurl",
        "BaSeImAgEUrL",
        "ba\u{17f}eImageURL",
    ] {
        let args = format!(r#"{{"{name}":"2130706433"}}"#);
        assert!(blocked(&requirements, &args).is_some(), "{name}");
    }
    assert!(blocked(&requirements, r#"{"baSeImAgEUrX":"2130706433"}"#).is_none());
}

/// The operator's word on one tool is the last.
#[test]
fn the_operator_decides() {
    let rule = ToolRule {
        risk_level: Some(RiskLevel::Safe),
        validators: Some(vec!["none".into()]),
        code_safety: Some(Level::Readonly),
        ..ToolRule::default()
    };
    let rules = ToolRules {
        validators: vec!["network_restricted".into()],
        roots: vec!["/srv".into()],
        tools: [("bash".to_owned(), rule)].into(),
        ..ToolRules::default()
    };
    let security = r#""security":{"risk_level":"dangerous","validator":"sandbox"}"#;
    let set = read("bash", security, &with(rules.clone()));
    assert_eq!(
        (set.risk.level, names(&set)),
        (RiskLevel::Safe, vec!["code_safety"])
    );
    assert_eq!(set.code.unwrap().policy.level, Level::Readonly);
    let other = read("sh", security, &with(rules.clone()));
    assert_eq!(other.rules(), &rules);
    assert_eq!(names(&other), ["sandbox", "network_restricted"]);
    assert!(blocked(&other, r#"{"path":"/srv/a"}"#).is_none());
    assert!(blocked(&other, r#"{"path":"/home/a"}"#).is_some());
    let off = ToolRules {
        validate_arguments: false,
        ..rules
    };
    assert!(names(&read("bash", security, &with(off))).is_empty());
}

/// A tool is idempotent by the operator's word alone, whatever its server says of it.
#[test]
fn a_hint_of_a_server_makes_no_tool_idempotent() {
    let hint = r#""annotations":{"idempotentHint":true,"readOnlyHint":true}"#;
    assert!(!read("t", hint, &RequirementInputs::default()).idempotent);
    let rule = ToolRule {
        idempotent: true,
        ..ToolRule::default()
    };
    let rules = ToolRules {
        tools: [("t".to_owned(), rule)].into(),
        ..ToolRules::default()
    };
    assert!(read("t", "", &with(rules.clone())).idempotent);
    assert!(!read("u", hint, &with(rules)).idempotent);
}

/// Hidden is what a rule hides, and what is missing in a list of what is offered; a rule may show another name or text.
#[test]
fn tools_are_hidden_and_renamed_by_the_operator() {
    let hidden = ToolRule {
        hidden: true,
        ..ToolRule::default()
    };
    assert!(!hidden.has_presentation());
    let mut rules = ToolRules {
        tools: [("a".to_owned(), hidden)].into(),
        ..ToolRules::default()
    };
    let is_hidden = |rules: &ToolRules| ["a", "b", "c"].map(|tool| rules.is_hidden(tool));
    assert_eq!(is_hidden(&rules), [true, false, false]);
    rules.offered = Some(["a", "b"].map(str::to_owned).into());
    assert_eq!(is_hidden(&rules), [true, false, true]);
    let name = ToolRule {
        name: Some("other".into()),
        ..ToolRule::default()
    };
    let description = ToolRule {
        description: Some("other".into()),
        ..ToolRule::default()
    };
    assert!(name.has_presentation() && description.has_presentation());
}
