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
        let made = Validators::from_names([name]);
        assert_eq!(made.active()[0].name(), name);
        assert!(made.unknown_names().is_empty());
    }
    let two = Validators::from_names(["readonly", "sandbox"]);
    assert_eq!(two.active(), [Validator::Sandbox, Validator::Readonly]);
}

/// MGP-064, A-22: an unknown name holds the call to sandbox and network_restricted.
#[test]
fn an_unknown_validator_closes_the_door() {
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
        let made = Validators::from_names([name]);
        assert_eq!(made.active(), closed, "{name:?}");
        assert_eq!(made.unknown_names(), [name]);
        let bad = call("x", r#"{"command":"rm -rf /"}"#);
        assert!(rule(&made, &bad).is_some());
        let bad = call("x", r#"{"url":"http://127.0.0.1/"}"#);
        assert!(rule(&made, &bad).is_some());
    }
}

/// MGP-062: with `none` a dangerous text goes through, but `none` takes nothing from others.
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

/// MGP-065: the refusal has its code, its place, and words that help.
#[test]
fn a_refusal_says_what_where_and_what_to_do() {
    let bad = call("fetch", r#"{"options":{"a/b":["x","http://[::1]/"]}}"#);
    let refused = Validators::from_names(["network_restricted"]).check(&bad, never);
    let no = refused.unwrap_err();
    assert_eq!(no.code(), 1010);
    let ScreeningRejection::Blocked(blocked) = no else {
        panic!("nothing here is code")
    };
    assert_eq!(blocked.path, "/options/a~1b/1");
    assert_eq!(blocked.rule, "inner_host");
    assert_eq!(blocked.validator.name(), "network_restricted");
    assert_eq!(blocked.excerpt, "http://[::1]/");
    assert!(blocked.to_string().contains("this machine"), "{blocked}");
}

/// MGP-061, A-24: code is judged where it stands, and lines of a list as one text.
#[test]
fn code_is_asked_about_by_its_argument() {
    let judge = |code: &str| {
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
        safety.check(&call, judge)
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
        let no = ask(args, &[]).unwrap_err();
        assert_eq!(no.code(), 1011);
        assert!(
            matches!(no, ScreeningRejection::UnsafeCode { path: at, .. } if at == path),
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

/// A key that stands twice is judged twice, since servers differ in which one they take.
#[test]
fn no_text_hides_from_the_validators() {
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

/// MGP-051, MGP-059: a tool that declares effects is not called under readonly.
#[test]
fn a_tool_that_declares_effects_is_not_readonly() {
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

/// MGP-272: a plain server's `execute_command` is held to the sandbox.
#[test]
fn tools_of_plain_servers_are_validated_by_name() {
    let made = Validators::for_tool_name("execute_command");
    assert_eq!(made.active(), [Validator::Sandbox]);
    assert!(rule(&made, &call("execute_command", r#"{"command":"rm -rf /"}"#)).is_some());
    assert_eq!(
        Validators::for_tool_name("run_python").active(),
        [Validator::CodeSafety]
    );
    assert!(Validators::for_tool_name("read_file").active().is_empty());
}

/// A refusal does not bring a terminal under the spell of the text it refuses.
#[test]
fn an_echo_is_short_and_tame() {
    let shown = echo(&format!("\u{1b}[2J\u{202e}{}", "x".repeat(200)));
    assert_eq!(shown.chars().count(), ECHO_MAX + 1);
    assert!(!shown.contains(['\u{1b}', '\u{202e}']));
}
