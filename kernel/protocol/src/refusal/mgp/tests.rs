use super::*;
use crate::ids::ServerId;
use serde_json::Value;

fn rendered(refusal: &Refusal) -> Value {
    match refusal.render_mgp(Version::STATELESS) {
        Rendered::Error(e) => serde_json::from_str(&e).unwrap(),
        Rendered::Result(r) => panic!("{r}"),
    }
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.into()).unwrap()
}

fn denied(denial: Denial) -> Refusal {
    Refusal::Denied(Box::new(denial))
}

fn not_ready(state: &'static str, retry_after_ms: Option<u64>) -> Refusal {
    Refusal::NotReady {
        server: ServerId::new("s"),
        state,
        reason: None,
        retry_after_ms,
        unreachable: false,
    }
}

fn timed_out() -> Refusal {
    Refusal::TimedOut {
        server: ServerId::new("s"),
        after_ms: 30,
        remote: false,
    }
}

fn queue_timeout() -> Refusal {
    Refusal::QueueTimeout {
        server: ServerId::new("s"),
        after_ms: 30,
    }
}

/// A refusal for each code of the document, and of its later drafts.
fn one_of_each() -> Vec<(i64, Refusal)> {
    let text = String::from;
    let mut each = vec![
        (1000, Refusal::Forbidden("only the operator".into())),
        (
            1000,
            denied(Denial::Permission {
                tool: text("t"),
                permission: text("shell.execute"),
            }),
        ),
        (
            1000,
            denied(Denial::Unconfirmed {
                tool: text("t"),
                why: text("nobody answered"),
            }),
        ),
        (
            1001,
            denied(Denial::NotGranted {
                tool: text("t"),
                rule: text("r"),
            }),
        ),
        (1002, denied(Denial::NoCredentials(text("send a token")))),
        (1003, denied(Denial::CredentialsExpired(text("yesterday")))),
        (
            1010,
            denied(Denial::Validator {
                validator: text("sandbox"),
                path: text("/command"),
                rule: text("metacharacter"),
                reason: text("a pipe"),
                hint: Some(text("one command at a time")),
            }),
        ),
        (
            1011,
            denied(Denial::UnsafeCode {
                violations: vec![text("Blocked import: 'subprocess'")],
                path: text("/code"),
                body: raw(r#"{"status":"rejected"}"#),
            }),
        ),
    ];
    each.extend(the_rest());
    each
}

fn overloaded() -> Refusal {
    let what = "the queue".to_owned();
    Refusal::Overloaded { what }
}

fn the_rest() -> Vec<(i64, Refusal)> {
    let server = || ServerId::new("s");
    let text = String::from;
    vec![
        (2000, not_ready("error", None)),
        (2001, not_ready("draining", None)),
        (2002, not_ready("restarting", Some(250))),
        (
            3000,
            denied(Denial::RateLimited {
                limit: 10,
                window_secs: 60,
                current: 12,
                retry_after_ms: 5000,
                next: None,
            }),
        ),
        (3001, overloaded()),
        (
            3001,
            Refusal::TooLarge {
                server: server(),
                limit: 9,
            },
        ),
        (
            3002,
            denied(Denial::OverQuota {
                what: text("tokens"),
                limit: 5,
                next: None,
            }),
        ),
        (3003, timed_out()),
        (3003, queue_timeout()),
        (3003, Refusal::Cancelled),
        (3003, Refusal::WindowExpired(text("its time was over"))),
        (
            4000,
            Refusal::BadArguments {
                tool: text("t"),
                path: text("/a"),
                keyword: text("type"),
                message: text("no number"),
            },
        ),
        (4001, Refusal::UnknownTool(text("t"))),
        (
            4002,
            denied(Denial::Disabled {
                tool: text("t"),
                reason: text("switched off"),
            }),
        ),
        (4004, Refusal::UnknownId(text("no callback of that id"))),
        (
            4101,
            denied(Denial::Registration {
                server: text("s"),
                code: Code::ServerExists,
                rule: "duplicate",
                at: text("/id"),
                reason: text("there is one"),
                hint: "take another name",
            }),
        ),
        (
            5000,
            Refusal::InvalidAnswer {
                server: server(),
                reason: text("HTTP 500"),
            },
        ),
        (
            5001,
            Refusal::TimedOut {
                server: server(),
                after_ms: 9,
                remote: true,
            },
        ),
        (
            5002,
            Refusal::ServerLost {
                server: server(),
                reason: text("exit 1"),
            },
        ),
        (
            5002,
            Refusal::NotReady {
                server: server(),
                state: "restarting",
                reason: None,
                retry_after_ms: Some(9),
                unreachable: true,
            },
        ),
    ]
}

/// MGP-186 to MGP-206, MGP-225, A-08: every code of the document is used, in its range, with `_mgp`.
#[test]
fn each_code_is_in_its_range_with_its_category() {
    let each = one_of_each();
    for (code, refusal) in &each {
        let error = rendered(refusal);
        assert_eq!(error["code"], *code, "{refusal}");
        let category = match code / 1000 {
            1 => "security",
            2 => "lifecycle",
            3 => "resource",
            4 => "validation",
            _ => "external",
        };
        assert_eq!(error["data"]["_mgp"]["category"], category, "{code}");
        assert!(error["data"]["_mgp"]["retryable"].is_boolean(), "{code}");
    }
    for code in Code::ALL {
        assert!(
            each.iter().any(|(n, _)| *n == code.number()),
            "{}",
            code.name()
        );
        assert_eq!(Code::parse(code.number()), Some(*code));
    }
    assert_eq!(Code::ALL.len(), 19 + 2);
}

/// MGP-207: the fields have the types of §14.5, and only retryable errors have them.
#[test]
fn recovery_fields_have_their_types() {
    for (code, refusal) in one_of_each() {
        let mgp = &rendered(&refusal)["data"]["_mgp"];
        let known = [
            "category",
            "retryable",
            "retry_after_ms",
            "retry_strategy",
            "max_retries",
            "fallback_tool",
            "details",
        ];
        for key in mgp.as_object().unwrap().keys() {
            assert!(known.contains(&key.as_str()), "{code}: {key}");
        }
        let how = ["retry_after_ms", "retry_strategy", "max_retries"];
        for field in how {
            assert_eq!(
                mgp.get(field).is_some(),
                mgp["retryable"] == true,
                "{code}: {field}"
            );
        }
    }
    let all = one_of_each();
    let limited = all.iter().find(|(code, _)| *code == 3000).unwrap();
    let limited = &rendered(&limited.1)["data"]["_mgp"];
    let want = json!({
        "category": "resource", "retryable": true, "retry_after_ms": 5000,
        "retry_strategy": "exponential_backoff", "max_retries": 3,
        "details": {"limit": 10, "window_secs": 60, "current": 12}
    });
    assert_eq!(*limited, want);
}

/// MGP-213: a request that may have taken effect, or will fail again, is not retryable.
#[test]
fn only_requests_without_effect_are_retryable() {
    let retryable: Vec<i64> = one_of_each()
        .iter()
        .filter(|(_, refusal)| rendered(refusal)["data"]["_mgp"]["retryable"] == true)
        .map(|(code, _)| *code)
        .collect();
    assert_eq!(retryable, [2001, 2002, 3000, 3001, 3003, 5002]);
    let made = &rendered(&timed_out())["data"]["_mgp"];
    assert_eq!(made["retryable"], false);
    let waits =
        |state, after| rendered(&not_ready(state, after))["data"]["_mgp"]["retry_after_ms"].clone();
    assert_eq!(waits("error", Some(70)), 70);
    assert_eq!(waits("connecting", None), 1000);
    assert_eq!(waits("disconnected", None), Value::Null);
}

/// MGP-283, A-08: a caller without MGP never receives MGP codes or members.
#[test]
fn caller_without_mgp_receives_no_mgp() {
    for version in [
        Version::V2025_06_18,
        Version::V2025_11_25,
        Version::STATELESS,
    ] {
        for (code, refusal) in one_of_each() {
            match refusal.render(version) {
                Rendered::Error(e) => {
                    assert!(!e.contains("_mgp"), "{e}");
                    let plain: Value = serde_json::from_str(&e).unwrap();
                    assert!(plain["code"].as_i64().unwrap() < -32000, "{code}: {e}");
                }
                Rendered::Result(r) => assert!(!r.contains("_mgp"), "{r}"),
            }
        }
    }
}

/// The error for a hidden tool is byte-identical to that for an unknown one.
#[test]
fn denied_tool_equals_unknown_tool_without_mgp() {
    for version in [
        Version::V2024_11_05,
        Version::V2025_11_25,
        Version::STATELESS,
    ] {
        let hidden = denied(Denial::NotGranted {
            tool: "x".into(),
            rule: "r".into(),
        });
        assert_eq!(
            hidden.render_response("7", version),
            Refusal::UnknownTool("x".into()).render_response("7", version)
        );
        assert_eq!(hidden.http_status(), 200);
    }
}

/// MGP-114, MGP §7.4: a model receives the violations of its code, and hints.
#[test]
fn rejected_code_is_a_result_the_model_can_correct() {
    let rejected = denied(Denial::UnsafeCode {
        violations: vec!["Blocked import: 'subprocess'".into()],
        path: "/code".into(),
        body: raw(
            r#"{"status":"rejected","violations":["Blocked import: 'subprocess'"],"hints":{"max_code_size_bytes":10000}}"#,
        ),
    });
    let Rendered::Result(result) = rejected.render(Version::V2025_11_25) else {
        panic!("an error");
    };
    let result: Value = serde_json::from_str(&result).unwrap();
    assert_eq!(result["isError"], true);
    let text = result["content"][0]["text"].as_str().unwrap();
    let rejection: Value = serde_json::from_str(text).unwrap();
    assert_eq!(rejection["status"], "rejected");
    assert_eq!(rejection["hints"]["max_code_size_bytes"], 10000);
    let details = &rendered(&rejected)["data"]["_mgp"]["details"];
    assert_eq!(details["violations"][0], "Blocked import: 'subprocess'");
    assert!(
        matches!(rejected.render(Version::V2025_06_18), Rendered::Error(e) if e.contains("-32602"))
    );
}

/// MGP-283: a server's MGP error loses exactly its MGP parts for a caller without MGP.
#[test]
fn mgp_error_of_a_peer_is_stripped() {
    let error = raw(
        r#"{"code":3000,"message":"slow down","data":{"_mgp":{"retryable":true},"n":12345678901234567890123}}"#,
    );
    let plain = strip_mgp(error.get()).unwrap();
    assert_eq!(
        plain,
        r#"{"code":-32603,"message":"slow down","data":{"n":12345678901234567890123}}"#
    );
    let validation = raw(r#"{"code":4000,"message":"m","data":{"_mgp":{}}}"#);
    assert_eq!(
        strip_mgp(validation.get()).unwrap(),
        r#"{"code":-32602,"message":"m"}"#
    );
    let refusal = Refusal::Peer(error.clone());
    assert!(matches!(refusal.render(Version::STATELESS), Rendered::Error(e) if e == plain));
    assert!(
        matches!(refusal.render_mgp(Version::STATELESS), Rendered::Error(e) if e == error.get())
    );
    let theirs = raw(r#"{"code":3000,"message":"not MGP's","data":{"a":1}}"#);
    assert!(strip_mgp(theirs.get()).is_none());
}

/// MGP-207: a peer's retry information is parsed, even if other members are invalid.
#[test]
fn recovery_of_a_peer_is_parsed_leniently() {
    let read = |text: &str| PeerError::parse(&raw(text)).map(|e| e.recovery);
    let recovery = read(r#"{"code":3000,"message":"m","data":{"_mgp":{"category":"resource","retryable":true,"retry_after_ms":99.5,"retry_strategy":"fibonacci","max_retries":-2,"fallback_tool":"slow"}}}"#).unwrap();
    assert_eq!(recovery.retry_after_ms, Some(100));
    assert_eq!(recovery.retry_strategy, Some(Strategy::ExponentialBackoff));
    assert_eq!(recovery.max_retries, None);
    assert_eq!(recovery.fallback_tool.as_deref(), Some("slow"));
    assert!(
        !read(r#"{"code":1,"message":"m","data":{"_mgp":{}}}"#)
            .unwrap()
            .retryable
    );
    for nothing in [
        r#"{"code":1,"message":"m"}"#,
        r#"{"code":1,"message":"m","data":3}"#,
        "7",
    ] {
        assert!(read(nothing).is_none(), "{nothing}");
    }
}
