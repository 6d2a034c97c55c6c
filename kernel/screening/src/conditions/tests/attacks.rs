//! Conditions and arguments that are meant to break the evaluation.

use proptest::prelude::*;

use super::*;

fn refused(text: &str) -> String {
    Condition::compile(text).unwrap_err().to_string()
}

/// EXT-140: nesting costs stack space, so there is little of it, in every form.
#[test]
fn nesting_is_bounded_in_conditions() {
    for depth in [40, 1000] {
        let (open, close) = ("(".repeat(depth), ")".repeat(depth));
        let forms = [
            format!("{open}true{close}"),
            format!("{}true", "!".repeat(depth)),
            format!("{}1 == 1", "-".repeat(depth)),
            format!("{}true{} == true", "[".repeat(depth), "]".repeat(depth)),
            format!("args{} == 1", ".a".repeat(depth)),
            format!("args{} == 1", "['a']".repeat(depth)),
            format!("{}true", "true ? ".repeat(depth)),
            format!("{}1", "1 + ".repeat(depth)),
            format!("{}1", "1 == ".repeat(depth)),
            format!(
                "{}true{}",
                "args.a.all(x, ".repeat(depth),
                ")".repeat(depth)
            ),
            format!("{}args.a{}", "size(".repeat(depth), ")".repeat(depth)),
        ];
        for form in forms {
            let words = refused(&form);
            let bounded = ["nested at most", "at most 4096 bytes", "at most 256 parts"];
            assert!(
                bounded.iter().any(|it| words.contains(it)),
                "{depth}: {words}"
            );
        }
    }
    assert!(Condition::compile(&format!("{}true{}", "(".repeat(20), ")".repeat(20))).is_ok());
}

/// EXT-140
#[test]
fn length_is_bounded_in_conditions() {
    assert!(refused(&format!("args.a == '{}'", "x".repeat(CONDITION_MAX))).contains("4096 bytes"));
    let many = vec!["true"; 300].join("||");
    assert!(refused(&many).contains("256 parts"));
    let patterns = ["args.a.matches('a')"; 9].join("||");
    assert!(refused(&patterns).contains("8 patterns"));
    for pattern in [
        r"(a{1000}){1000}",
        r"\\w{500}{500}",
        &format!("{}a{}", "(".repeat(40), ")".repeat(40)),
    ] {
        let words = refused(&format!("args.a.matches('{pattern}')"));
        assert!(words.contains("cannot be used"), "{pattern}: {words}");
    }
}

/// EXT-140: an evaluation ends after so many steps, and then nothing is true.
#[test]
fn an_evaluation_is_bounded() {
    let list = (0..60).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let arguments = format!(r#"{{"l":[{list}],"t":{:?}}}"#, "ab".repeat(200_000));
    for text in [
        "args.l.all(a, args.l.all(b, args.l.all(c, args.l.all(d, true))))",
        "args.l.all(a, args.l.all(b, args.l.all(c, a + b + c >= 0))) || true",
        "true && args.l.exists(a, args.l.exists(b, args.l.exists(c, a + b + c < 0)))",
        "args.t.matches('(a|b)*c')",
        "args.l.exists(a, args.t.resembles('**/x/**/y'))",
        "args.l.all(a, args.l.all(b, args.t.contains('ab')))",
        "args.l.all(a, args.l.all(b, args.l.all(c, [args.t, args.t, args.t].all(d, d != 'x'))))",
    ] {
        assert_eq!(evaluate(text, &arguments), Err(Fault::Steps), "{text}");
    }
    // What decides first takes no further steps.
    assert_eq!(
        evaluate("true || args.l.all(a, args.t.matches('a'))", &arguments),
        Ok(true)
    );
}

/// EXT-140: arguments that two readers read in two ways decide nothing, whatever the condition makes of them.
#[test]
fn what_has_two_readings_has_no_value() {
    for arguments in [
        r#"{"path":"/a","path":"/etc"}"#,
        r#"{"path":"/a","Path":"/etc"}"#,
        r#"{"PATH":"/etc"}"#,
        r#"{"\u0070ath":"/a","path":"/a"}"#,
        r#"{"path":"/a","pa\ud800th":1}"#,
        r#"{"path":"/a""#,
        r#"[{"path":"/a"}]"#,
        "null",
        "",
    ] {
        for text in [
            "args.path == '/a'",
            "args.path != '/etc'",
            "!(args.path == '/etc')",
            "inside(args.path, '/a')",
            "!inside(args.path, '/etc')",
            "has(args.path)",
            "!has(args.path)",
            "'path' in args",
        ] {
            let value = evaluate(text, arguments);
            assert!(value.is_err(), "{text} {arguments}: {value:?}");
        }
    }
    assert_eq!(
        evaluate("args.path == '/a'", r#"{"\u0070ath":"\/a"}"#),
        Ok(true)
    );
    assert!(evaluate("args.path != 'b'", r#"{"path":"\ud800"}"#).is_err());
}

/// EXT-140
#[test]
fn numbers_at_their_edges_are_exact_or_have_no_value() {
    for (text, number, expected) in [
        ("args.n <= 9007199254740992", "9007199254740993", Ok(false)),
        ("args.n == 9007199254740992", "9007199254740993", Ok(false)),
        ("args.n == 0", "-0", Ok(true)),
        ("args.n < 0", "-0", Ok(false)),
        ("args.n < 0", "-0.0", Ok(false)),
        ("args.n < 5", "1e400", Err(Fault::Number)),
        ("args.n < 5", "-1e400", Err(Fault::Number)),
        ("args.n != 5", "1e400", Err(Fault::Number)),
        ("args.n == 0", "1e-400", Err(Fault::Number)),
        ("args.n < 10", "9.9999999999999999", Err(Fault::Number)),
        (
            "args.n < 18446744073709551616",
            "18446744073709551615",
            Ok(true),
        ),
        ("args.n == 1", "1.0", Ok(true)),
        ("args.n == 100", "1e2", Ok(true)),
        (
            "args.n + 1 > 0",
            "170141183460469231731687303715884105727",
            Err(Fault::Number),
        ),
        (
            "-args.n > 0",
            "-170141183460469231731687303715884105728",
            Err(Fault::Number),
        ),
        (
            "args.n % -1 == 0",
            "-170141183460469231731687303715884105728",
            Err(Fault::Number),
        ),
    ] {
        assert_eq!(
            evaluate(text, &format!(r#"{{"n":{number}}}"#)),
            expected,
            "{text} {number}"
        );
    }
}

/// Arguments of any depth are only looked into as far as the condition says.
#[test]
fn nested_arguments_are_not_walked() {
    let deep = format!(
        r#"{{"a":{}1{},"b":1}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    // The reader of JSON limits nesting, and such a call is refused before.
    let value = evaluate("args.b == 1", &deep);
    assert!(value == Ok(true) || value == Err(Fault::Kind), "{value:?}");
    let deep = format!(r#"{{"a":{}1{},"b":1}}"#, "[".repeat(100), "]".repeat(100));
    assert_eq!(evaluate("args.b == 1", &deep), Ok(true));
}

proptest! {
    /// No text makes the compiler or the evaluation panic, and none is read in two ways.
    #[test]
    fn no_text_breaks_it(text in "\\PC{0,60}", arguments in "\\PC{0,40}") {
        if let Ok(condition) = Condition::compile(&text) {
            let first = condition.evaluate(&facts(&arguments));
            prop_assert_eq!(condition.evaluate(&facts(&arguments)), first);
            let _ = condition.failed_parts(&facts(&arguments));
        }
    }

    /// The same of texts made of what conditions are made of.
    #[test]
    fn no_sequence_of_tokens_breaks_it(parts in prop::collection::vec(prop::sample::select(vec![
        "args", ".", "a", "[", "]", "(", ")", "'a'", "\"", "\\", "1", "1e9", "-", "!", "&&", "||",
        "==", "in", "?", ":", ",", "all", "size", "has", "inside", "x", "tool", "risk", "time",
        "timestamp", "matches", "r'", "\u{e9}", " ",
    ]), 0..20)) {
        let text = parts.concat();
        if let Ok(condition) = Condition::compile(&text) {
            let _ = condition.evaluate(&facts(r#"{"a":[1,"x",{"a":2}]}"#));
        }
    }
}
