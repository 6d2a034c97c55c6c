//! Quotes and unquotes strings.

use std::borrow::Cow;

use serde::Deserialize;

/// A text as a JSON string, quotes included.
#[must_use]
pub fn quote(text: &str) -> String {
    if has_escapes(text.as_bytes()) {
        return serde_json::to_string(text).expect("a string is always JSON");
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    quoted.push_str(text);
    quoted.push('"');
    quoted
}

/// Whether a byte of the text is written otherwise within a JSON string.
fn has_escapes(text: &[u8]) -> bool {
    let is_escaped = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
    // Without a branch for each byte, blocks are compared at once.
    let has_any = |block: &[u8]| block.iter().fold(false, |any, byte| any | is_escaped(byte));
    text.chunks(64).any(has_any)
}

/// The text of a JSON string, borrowed where it has no escapes; `None` for every other value, and where readers
/// differ on it (half of a surrogate pair).
#[must_use]
pub fn unquote(json: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str(json).ok().map(|Text(text)| text)
}

/// The closing quote of a string whose opening quote is before this text.
#[must_use]
pub fn string_end(text: &[u8]) -> Option<usize> {
    // Long texts have an escape in each line, but fewer quotes.
    memchr::memchr_iter(b'"', text).find(|end| {
        let escapes = text[..*end].iter().rev().take_while(|byte| **byte == b'\\');
        escapes.count() % 2 == 0
    })
}

/// Decodes escapes once (RFC 8259 §7). Invalid escapes stay; a lone surrogate becomes U+FFFD, as in readers that accept
/// it.
#[must_use]
pub fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut changed) = (text, false);
    while let Some(index) = rest.find('\\') {
        out.push_str(&rest[..index]);
        let (meant, len) = parse_escape(&rest[index..]);
        match meant {
            Some(meant) => out.push(meant),
            None => out.push_str(&rest[index..index + len]),
        }
        changed |= meant.is_some();
        rest = &rest[index + len..];
    }
    out.push_str(rest);
    if changed {
        Cow::Owned(out)
    } else {
        Cow::Borrowed(text)
    }
}

/// The meaning of the escape at the start of this text, and its length; `None` if invalid.
fn parse_escape(text: &str) -> (Option<char>, usize) {
    let plain = |meant: char| (Some(meant), 2);
    match text.as_bytes().get(1) {
        Some(b'"') => plain('"'),
        Some(b'\\') => plain('\\'),
        Some(b'/') => plain('/'),
        Some(b'b') => plain('\u{8}'),
        Some(b'f') => plain('\u{c}'),
        Some(b'n') => plain('\n'),
        Some(b'r') => plain('\r'),
        Some(b't') => plain('\t'),
        Some(b'u') => match parse_code_unit(text) {
            Some(high @ 0xd800..0xdc00) => match parse_code_unit(&text[6..]) {
                Some(low @ 0xdc00..0xe000) => {
                    let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                    (char::from_u32(code), 12)
                }
                _ => (Some(char::REPLACEMENT_CHARACTER), 6),
            },
            Some(code) => (
                Some(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)),
                6,
            ),
            None => (None, 1),
        },
        Some(_) | None => (None, 1),
    }
}

/// The number of a `\uXXXX` at the start of this text.
fn parse_code_unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_ends_at_its_own_quote() {
        for (text, end) in [
            (r#"a","b"#, Some(1)),
            (r#"a\"b\\" "#, Some(6)),
            (r#"a\\\""#, None),
            ("\\", None),
            ("", None),
        ] {
            assert_eq!(string_end(text.as_bytes()), end, "{text}");
        }
    }

    /// However far its end is, and whatever is before it.
    #[test]
    fn the_end_of_a_long_string_is_found() {
        for before in 0..80 {
            for inner in ["", "\\n", "\\\\", "\\\"", "\\\\\\\"x", "#!\u{a2}\u{122}"] {
                let text = format!("{}{inner}", "x".repeat(before));
                let after = [&text, "\"", &"\"".repeat(before)].concat();
                assert_eq!(string_end(after.as_bytes()), Some(text.len()), "{after}");
                let open = format!("{text}\\\"");
                assert_eq!(string_end(open.as_bytes()), None, "{open}");
            }
        }
    }

    /// Wherever in a text a character stands, it is written as serde_json writes it.
    #[test]
    fn quote_escapes_as_serde_json_does() {
        for c in (0..=0x80_u8).map(char::from).chain(['\u{2028}', 'é']) {
            for before in [0, 1, 63, 64, 130] {
                let text = format!("{}{c}{}", "x".repeat(before), "y".repeat(70));
                assert_eq!(
                    quote(&text),
                    serde_json::to_string(&text).unwrap(),
                    "{text:?}"
                );
            }
        }
    }

    #[test]
    fn unquote_reverses_quote() {
        for text in ["", "plain", "a\"b\\\n\u{7}", "é\u{1f600}\u{2028}"] {
            assert_eq!(unquote(&quote(text)).as_deref(), Some(text));
        }
        assert!(matches!(unquote(r#""a""#), Some(Cow::Borrowed("a"))));
        assert_eq!(unquote(r#""\u0061""#).as_deref(), Some("a"));
        for json in ["7", "null", "\"a", r#""\ud800""#, r#"{"a":1}"#, "\"a\"x"] {
            assert_eq!(unquote(json), None, "{json}");
        }
    }

    #[test]
    fn an_invalid_escape_is_left_unchanged() {
        for (written, meant) in [
            (r"a\u0062\n\/\\u", "ab\n/\\u"),
            (r"\ud83d\ude00", "\u{1f600}"),
            (r"\ud83d\u0041", "\u{fffd}A"),
            (r"\q \u12 \", r"\q \u12 \"),
        ] {
            assert_eq!(unescape(written), meant, "{written}");
        }
    }
}
