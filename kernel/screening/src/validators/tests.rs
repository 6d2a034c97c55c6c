mod attacks;

use super::*;

fn call<'a>(tool: &'a str, args: &'a str) -> ScreenedCall<'a> {
    ScreenedCall {
        tool,
        args,
        ..ScreenedCall::default()
    }
}

fn never(_: &str) -> Result<(), String> {
    panic!("code is judged by its own validator only")
}

fn rule(validators: &Validators, call: &ScreenedCall<'_>) -> Option<&'static str> {
    match validators.check(call, never) {
        Ok(()) => None,
        Err(ScreeningRejection::Blocked(blocked)) => Some(blocked.rule),
        Err(ScreeningRejection::UnsafeCode { rejection, .. }) => panic!("{rejection}"),
    }
}

/// MGP-052: the five names of the document, and lists of them.
#[test]
fn validators_are_known_by_name() {
    for name in ["sandbox", "readonly", "network_restricted", "code_safety"] {
        let validators = Validators::from_names([name]);
        assert_eq!(validators.active()[0].name(), name);
        assert!(validators.unknown_names().is_empty());
    }
    let two = Validators::from_names(["readonly", "sandbox"]);
    assert_eq!(two.active(), [Validator::Sandbox, Validator::Readonly]);
}

/// MGP-064, A-22: an unknown name applies sandbox and network_restricted to the call.
#[test]
fn unknown_validator_fails_closed() {
    let closed = [Validator::Sandbox, Validator::NetworkRestricted];
    for name in [
        "zzz",
        "",
        "None",
        "SANDBOX",
        " sandbox",
        "ｓandbox",
        "none\u{200b}",
    ] {
        let validators = Validators::from_names([name]);
        assert_eq!(validators.active(), closed, "{name:?}");
        assert_eq!(validators.unknown_names(), [name]);
        let bad = call("x", r#"{"command":"rm -rf /"}"#);
        assert!(rule(&validators, &bad).is_some());
        let bad = call("x", r#"{"url":"http://127.0.0.1/"}"#);
        assert!(rule(&validators, &bad).is_some());
    }
}

/// MGP-062: with `none` a dangerous text passes, but `none` removes no other validator.
#[test]
fn none_validates_nothing() {
    let none = Validators::from_names(["none"]);
    assert!(none.active().is_empty() && none.unknown_names().is_empty());
    let bad = call("x", r#"{"command":"rm -rf / ; curl http://127.0.0.1"}"#);
    assert_eq!(rule(&none, &bad), None);
    let both = none.merge(Validators::from_names(["sandbox"]));
    assert!(rule(&both, &bad).is_some());
    assert!(rule(&Validators::from_names(["sandbox", "none"]), &bad).is_some());
}

/// MGP-065: the refusal has its code, its location, and a hint.
#[test]
fn refusal_has_code_location_and_hint() {
    let bad = call("fetch", r#"{"options":{"a/b":["x","http://[::1]/"]}}"#);
    let refused = Validators::from_names(["network_restricted"]).check(&bad, never);
    let error = refused.unwrap_err();
    assert_eq!(error.code(), 1010);
    let ScreeningRejection::Blocked(blocked) = error else {
        panic!("nothing here is code")
    };
    assert_eq!(blocked.path, "/options/a~1b/1");
    assert_eq!(blocked.rule, "inner_host");
    assert_eq!(blocked.validator.name(), "network_restricted");
    assert_eq!(blocked.excerpt, "http://[::1]/");
    assert!(blocked.to_string().contains("this machine"), "{blocked}");
}

/// MGP-061, A-24: code arguments are checked separately, and lines of a list as one text.
#[test]
fn code_is_checked_by_argument() {
    let check = |code: &str| {
        if code.contains("eval(") {
            Err(code.to_owned())
        } else {
            Ok(())
        }
    };
    let safety = Validators::from_names(["code_safety"]);
    let ask = |args: &str, marked: &[String]| {
        let call = ScreenedCall {
            tool: "run_python",
            code_arguments: marked,
            args,
            ..ScreenedCall::default()
        };
        safety.check(&call, check)
    };
    for (args, path) in [
        (r#"{"code":"eval(x)"}"#, "/code"),
        (
            r#"{"cells":[{"source":["ev","al(x)","eval(y)"]}]}"#,
            "/cells/0/source",
        ),
        (r#"{"files":[{"script":"eval(x)"}]}"#, "/files/0/script"),
        (r#"{"input":"eval(x)"}"#, "/input"),
        (r#"{"code":"eval(x)","code":"1"}"#, "/code"),
    ] {
        let error = ask(args, &[]).unwrap_err();
        assert_eq!(error.code(), 1011);
        assert!(
            matches!(error, ScreeningRejection::UnsafeCode { path: at, .. } if at == path),
            "{args}"
        );
    }
    let spoken = r#"{"code":"1+1","description":"never use eval( here"}"#;
    assert_eq!(ask(spoken, &[]), Ok(()));
    assert!(
        ask(
            r#"{"code":"1","formula":"eval(x)"}"#,
            &["formula".to_owned()]
        )
        .is_err()
    );
}

/// A duplicate key is checked twice, because servers differ in which one they use.
#[test]
fn duplicate_and_nested_texts_are_checked() {
    let net = Validators::from_names(["network_restricted"]);
    for args in [
        r#"{"url":"http://127.0.0.1/","url":"http://example.com/"}"#,
        r#"{"url":"http://example.com/","url":"http://127.0.0.1/"}"#,
        r#"{"request":"{\"url\":\"http:\\/\\/127.0.0.1\"}"}"#,
        r#"{"http://127.0.0.1/":true}"#,
        r#"{"url":"http:\u002f\u002f127.0.0.1"}"#,
    ] {
        assert_eq!(rule(&net, &call("x", args)), Some("inner_host"), "{args}");
    }
    let broken = call("x", r#"{"url":"\ud800"}"#);
    assert_eq!(rule(&net, &broken), Some("unreadable"));
    let many = format!("[{}0]", "0,".repeat(30_000));
    assert_eq!(rule(&net, &call("x", &many)), Some("unreadable"));
}

/// MGP-051, MGP-059: a tool that declares effects is rejected under readonly.
#[test]
fn tool_with_declared_effects_is_rejected_under_readonly() {
    let readonly = Validators::from_names(["readonly"]);
    for (effect, refused) in [
        ("filesystem", true),
        ("process", true),
        ("database", true),
        ("notification", true),
        ("zzz", true),
        ("network", false),
    ] {
        let effects = [effect.to_owned()];
        let call = ScreenedCall {
            tool: "look",
            side_effects: &effects,
            args: "{}",
            ..ScreenedCall::default()
        };
        assert_eq!(rule(&readonly, &call).is_some(), refused, "{effect}");
    }
    let call = ScreenedCall {
        tool: "look",
        read_only_hint: Some(false),
        args: "{}",
        ..ScreenedCall::default()
    };
    assert_eq!(rule(&readonly, &call), Some("annotation"));
}

/// MGP-272: `execute_command` of a server without MGP gets the sandbox validator.
#[test]
fn tools_without_mgp_are_validated_by_name() {
    let validators = Validators::for_tool_name("execute_command");
    assert_eq!(validators.active(), [Validator::Sandbox]);
    assert!(
        rule(
            &validators,
            &call("execute_command", r#"{"command":"rm -rf /"}"#)
        )
        .is_some()
    );
    assert_eq!(
        Validators::for_tool_name("run_python").active(),
        [Validator::CodeSafety]
    );
    assert!(Validators::for_tool_name("read_file").active().is_empty());
}

/// A refusal contains no control characters of the rejected text.
#[test]
fn excerpt_is_short_and_sanitized() {
    let shown = echo(&format!("\u{1b}[2J\u{202e}{}", "x".repeat(200)));
    assert_eq!(shown.chars().count(), ECHO_MAX + 1);
    assert!(!shown.contains(['\u{1b}', '\u{202e}']));
}

/// A-24: arguments are known by their names.
#[test]
fn arguments_are_known_by_name() {
    assert!(is_code_argument("sourceCode") && !is_code_argument("path"));
    assert!(has_known_role("path") && !has_known_role("city"));
    let runs = |effect: &str| ScreenedCall::is_command_tool("convert", &[effect.to_owned()]);
    assert!(runs("process") && !runs("network"));
    assert_eq!(
        (render_location(""), render_location("/a")),
        ("its root", "/a")
    );
}

/// MGP-058: a server starts from the folders of programs, with paths inside of its roots, in any spelling.
#[test]
fn command_of_a_server_is_checked() {
    let check = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        check_start_command(&words, &["/srv/project".to_owned()])
    };
    assert_eq!(check("/usr/bin/python3 /srv/project/server.py"), Ok(()));
    for refused in ["rm -rf a", "python3 /etc/x", "\u{ff52}\u{ff4d} -rf a"] {
        let blocked = check(refused).unwrap_err();
        let details = blocked.details();
        assert_eq!(details["validator"], "sandbox", "{refused}");
        assert_eq!(details["argument"], "/args", "{refused}");
    }
}

#[test]
fn validator_is_added_on_a_condition() {
    let with = |holds| Validators::default().with_if(holds, Validator::Readonly);
    assert_eq!(with(true).active(), [Validator::Readonly]);
    assert!(with(false).active().is_empty());
}
