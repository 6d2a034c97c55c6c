use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const SECRET: &str = "hunter2-hunter2";

fn masks() -> Masks {
    Masks::new([SECRET.to_owned(), "a/b\"c\\d".to_owned(), "abc".to_owned()])
}

/// Every character as `\uXXXX`.
fn escaped(text: &str) -> String {
    text.encode_utf16()
        .map(|unit| format!("\\u{unit:04x}"))
        .collect()
}

/// Decision 0068: also duplicate names, the form of numbers, and escapes.
#[test]
fn text_without_secrets_is_not_changed() {
    for text in [
        r#"{"a":1.0,"a":1e2,"b":[true,null,-0],"c":"\u00e9\/ \ud800"}"#,
        r#"{"jsonrpc":"2.0","id":"x","params":{"_meta":{"progressToken":7}}}"#,
        r#"{"maxTokens":100,"usage":{"input_tokens":3}}"#,
        r#"{"tools":[{"name":"login","inputSchema":{"properties":{"password":{"type":"string"}}}}]}"#,
        "7",
        r#""abc""#,
    ] {
        assert_eq!(masks().mask_json(text), text);
    }
    assert_eq!(masks().mask_json("{ \"a\" :\r\n 1 }"), r#"{"a":1}"#);
}

/// Decision 0068.
#[test]
fn a_secret_is_found_in_every_form() {
    let once = escaped(SECRET);
    let twice = once.replace('\\', "\\\\");
    let nested = serde_json::to_string(&format!(r#"{{"x":["{once}"]}}"#)).unwrap();
    let in_words = serde_json::to_string(&format!("it said {once}, twice")).unwrap();
    for (text, want) in [
        (
            format!(r#"{{"a":"x{SECRET}y"}}"#),
            r#"{"a":"x[redacted]y"}"#,
        ),
        (format!(r#"{{"a":"{once}"}}"#), r#"{"a":"[redacted]"}"#),
        (format!(r#"{{"{once}":1}}"#), r#"{"[redacted]":1}"#),
        (format!(r#"{{"a":"{twice}"}}"#), r#"{"a":"[redacted]"}"#),
        (nested, r#""{\"x\":[\"[redacted]\"]}""#),
        (in_words, r#""[redacted]""#),
        (r#""a\/b\"c\\d""#.into(), r#""[redacted]""#),
    ] {
        assert_eq!(masks().mask_json(&text), want, "{text}");
    }
}

/// Decision 0068.
#[test]
fn a_secret_is_found_as_a_number() {
    let masks = Masks::new(["84719263".to_owned()]);
    assert_eq!(
        masks.mask_json(r#"{"n":84719263,"m":[-84719263.5,8471926]}"#),
        r#"{"n":"[redacted]","m":["[redacted]",8471926]}"#
    );
}

/// Decision 0068: also in a string that is JSON.
#[test]
fn a_value_is_masked_by_its_name() {
    let text = json!({
        "arguments": {"user": "ada", "api_key": "k", "PIN-password": 1234, "credentials": {"k": ["v"], "n": true}},
        "content": [{"type": "text", "text": "{\"token\":\"t\",\"n\":1.0}"}],
        "note": "Authorization: bearer abcdefgh12345, then",
    });
    let want = json!({
        "arguments": {"user": "ada", "api_key": "[redacted]", "PIN-password": "[redacted]",
            "credentials": {"k": ["[redacted]"], "n": true}},
        "content": [{"type": "text", "text": "{\"token\":\"[redacted]\",\"n\":1.0}"}],
        "note": "Authorization: bearer [redacted], then",
    });
    let masked = masks().mask_json(&text.to_string());
    assert_eq!(serde_json::from_str::<Value>(&masked).unwrap(), want);
}

/// Unescaping is bounded.
#[test]
fn text_with_too_many_escapes_is_masked() {
    let deep = format!("\"{}u0041\"", "\\".repeat(1 << 12));
    assert_eq!(masks().mask_json(&deep), r#""[redacted]""#);
    let fine = r#""C:\\Users\\ada\\x""#;
    assert_eq!(masks().mask_json(fine), fine);
}

proptest! {
    /// Decision 0068: at any position and nesting in JSON, the masked text is JSON without the secret.
    #[test]
    fn no_secret_remains(before in ".{0,12}", after in ".{0,12}", wraps in proptest::collection::vec(0..4u8, 0..6), escape: bool) {
        let inner = format!("{before}{SECRET}{after}");
        let mut text = match escape {
            true => format!("\"{}\"", escaped(&inner)),
            false => json!(inner).to_string(),
        };
        for wrap in wraps {
            text = match wrap {
                0 => json!(text).to_string(),
                1 => format!(r#"{{"k":[{text}]}}"#),
                2 => json!(format!("see: {text}")).to_string(),
                _ => format!(r#"[1, {text} ,2]"#),
            };
        }
        let masked = masks().mask_json(&text);
        prop_assert!(serde_json::from_str::<Value>(&masked).is_ok(), "{}", masked);
        let mut read = masked;
        for _ in 0..10 {
            prop_assert!(!read.contains("hunter2"), "{}", read);
            read = mgp_json::unescape(&read).into_owned();
        }
    }

    /// Invalid JSON does not panic.
    #[test]
    fn any_text_is_accepted(text in ".{0,60}") {
        let _ = masks().mask_json(&text);
        let _ = masks().mask_text(&text);
    }
}

/// Each word counts, wherever in a name it stands.
#[test]
fn each_secret_word_is_found_anywhere() {
    for word in SECRET_WORDS {
        for name in [word.to_owned(), format!("a{word}"), format!("st{word}x")] {
            assert!(is_secret_key(&name), "{name}");
        }
        assert!(!is_secret_key(&word[1..]), "{word}");
    }
}
