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

/// Decision 0068: what is no secret stays as it was written: names twice, numbers in their form, escapes.
#[test]
fn what_is_no_secret_stays_as_it_was_written() {
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

/// Decision 0068: the values of the kernel's secrets are found however they are written.
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

/// Decision 0068: a secret of digits is one as a number, too.
#[test]
fn a_secret_that_is_a_number_is_found() {
    let masks = Masks::new(["84719263".to_owned()]);
    assert_eq!(
        masks.mask_json(r#"{"n":84719263,"m":[-84719263.5,8471926]}"#),
        r#"{"n":"[redacted]","m":["[redacted]",8471926]}"#
    );
}

/// Decision 0068: what is named like a secret is one, also in a text that is JSON.
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

/// A text whose escapes do not end is not read for ever, and not shown.
#[test]
fn what_is_escaped_too_often_is_not_shown() {
    let deep = format!("\"{}u0041\"", "\\".repeat(1 << 12));
    assert_eq!(masks().mask_json(&deep), r#""[redacted]""#);
    let fine = r#""C:\\Users\\ada\\x""#;
    assert_eq!(masks().mask_json(fine), fine);
}

proptest! {
    /// Decision 0068: wherever a secret stands and however often the text around it was made to JSON, no reader of
    /// the masked text finds it; and it is JSON.
    #[test]
    fn no_secret_is_left(before in ".{0,12}", after in ".{0,12}", wraps in proptest::collection::vec(0..4u8, 0..6), escape: bool) {
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

    /// Nothing that is no JSON makes it panic.
    #[test]
    fn any_text_is_taken(text in ".{0,60}") {
        let _ = masks().mask_json(&text);
        let _ = masks().mask_text(&text);
    }
}
