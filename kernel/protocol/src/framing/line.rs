//! Converts a JSON text to one line, for all definitions of a line end.
//!
//! Readers differ: universal newlines end a line at CR too, Python's `splitlines` at VT, FF, FS, GS, RS,
//! U+0085, U+2028 and U+2029, and an event stream at CR. A reader that splits the text would see an
//! additional, unchecked message.

use std::borrow::Cow;

use bytes::Bytes;
use memchr::memmem;

/// The size of a scanned block: long enough for SIMD, short enough that a text with an early line end is
/// not scanned to its end.
const BLOCK: usize = 1024;

/// The line ends beyond ASCII: U+0085, U+2028 and U+2029.
const BEYOND_ASCII: [&[u8]; 3] = [b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9"];

/// Replaces everything that ends a line for some reader, preserving the meaning: outside of strings by a
/// space, in strings by an escape. A text that needs no change, the usual case, is not copied.
///
/// Raw control characters in strings are invalid JSON and rejected by every parser; here they are escaped
/// nevertheless.
#[must_use]
pub fn to_one_line(text: Bytes) -> Bytes {
    if is_one_line(&text) {
        text
    } else {
        flatten(&text).into()
    }
}

/// Converts bytes that are copied anyway.
#[must_use]
pub fn to_one_line_bytes(text: &[u8]) -> Cow<'_, [u8]> {
    if is_one_line(text) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(flatten(text))
    }
}

fn is_one_line(text: &[u8]) -> bool {
    text.chunks(BLOCK).all(is_plain) || !has_line_end(text)
}

/// True for visible ASCII and spaces: one subtraction and one comparison for each byte.
fn is_plain(block: &[u8]) -> bool {
    block
        .iter()
        .fold(0, |most, byte| most.max(byte.wrapping_sub(b' ')))
        < 0x7f - b' '
}

fn has_line_end(text: &[u8]) -> bool {
    let holds_control = |block: &[u8]| block.iter().fold(false, |any, byte| any | (*byte < b' '));
    if text.chunks(BLOCK).any(holds_control) {
        return true;
    }
    // A search is fast, but has a startup cost.
    if text.len() <= BLOCK {
        memchr::memchr2_iter(0xc2, 0xe2, text).any(|at| wide_line_end_len(text, at) > 0)
    } else {
        BEYOND_ASCII
            .iter()
            .any(|end| memmem::find(text, end).is_some())
    }
}

/// The length of a non-ASCII line end at a position; 0 for every other character.
fn wide_line_end_len(text: &[u8], at: usize) -> usize {
    let ends = BEYOND_ASCII.iter().find(|end| text[at..].starts_with(end));
    ends.map_or(0, |end| end.len())
}

fn flatten(mut text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 64);
    while !text.is_empty() {
        let quote = memchr::memchr(b'"', text).unwrap_or(text.len());
        let (between, rest) = text.split_at(quote);
        push_escaped(between, keep_tab, &mut out);
        let inside = rest.get(1..).unwrap_or_default();
        let end = mgp_json::string_end(inside).map_or(rest.len(), |end| end + 2);
        let (string, rest) = rest.split_at(end);
        push_escaped(string, escape, &mut out);
        text = rest;
    }
    out
}

/// Between tokens a tab stays, because it ends no line.
fn keep_tab(character: &[u8]) -> Cow<'static, [u8]> {
    match character {
        b"\t" => b"\t".into(),
        _ => b" ".into(),
    }
}

/// Appends a part, with each line end replaced.
fn push_escaped(part: &[u8], instead: impl Fn(&[u8]) -> Cow<'static, [u8]>, out: &mut Vec<u8>) {
    if is_one_line(part) {
        return out.extend_from_slice(part);
    }
    let mut at = 0;
    while let Some(&byte) = part.get(at) {
        let length = match byte {
            0..b' ' => 1,
            0xc2 | 0xe2 => wide_line_end_len(part, at),
            _ => 0,
        };
        match length {
            0 => out.push(byte),
            _ => out.extend_from_slice(&instead(&part[at..at + length])),
        }
        at += length.max(1);
    }
}

fn escape(character: &[u8]) -> Cow<'static, [u8]> {
    let character = std::str::from_utf8(character).unwrap_or(" ");
    let units = character.encode_utf16();
    let escaped: String = units.map(|unit| format!("\\u{unit:04x}")).collect();
    escaped.into_bytes().into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn flat(text: &str) -> String {
        let out = to_one_line(Bytes::copy_from_slice(text.as_bytes()));
        assert_eq!(&*to_one_line_bytes(text.as_bytes()), &*out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    /// MCP-068: line ends become spaces between tokens, and escapes in strings.
    #[test]
    fn all_line_ends_are_replaced() {
        let text =
            "{\r\n\t\"a\":\r\"x\\ny\\\\\",\n\"b\u{85}\u{2028}\":[\"\u{2029}\",\"\\\"\",\r1]}";
        let line = "{  \t\"a\": \"x\\ny\\\\\", \"b\\u0085\\u2028\":[\"\\u2029\",\"\\\"\", 1]}";
        assert_eq!(flat(text), line);
        let (before, after): (Value, Value) = (
            serde_json::from_str(text).unwrap(),
            serde_json::from_str(line).unwrap(),
        );
        assert_eq!(before, after);
    }

    /// Neighbouring code points of line ends are not changed.
    #[test]
    fn unchanged_text_is_not_copied() {
        for text in ["{}", "\"\u{84}\u{86}\u{2027}\u{202a}\u{e9}\u{7f}\"", ""] {
            let text = Bytes::copy_from_slice(text.as_bytes());
            assert_eq!(to_one_line(text.clone()).as_ptr(), text.as_ptr());
        }
    }

    /// Invalid JSON is converted, too.
    #[test]
    fn raw_control_characters_are_escaped() {
        assert_eq!(flat("\"a\u{b}b\u{1c}\"\u{c}"), "\"a\\u000bb\\u001c\" ");
        assert_eq!(flat("\"a\\\u{2028}\"\r"), "\"a\\\\u2028\" ");
        assert_eq!(flat("\"\u{2028}"), "\"\\u2028");
        assert_eq!(flat("\"\u{85}"), "\"\\u0085");
        assert_eq!(flat("\n"), " ");
    }

    fn ends_a_line(c: char) -> bool {
        (c < ' ' && c != '\t') || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}')
    }

    proptest! {
        #[test]
        fn any_text_becomes_one_line(
            pieces in proptest::collection::vec(
                prop_oneof!["[a\"\\\\ {}:,]{1,4}", "[\r\n\t\u{b}\u{85}\u{2028}\u{2029}é]", ".{0,40}"], 0..60),
        ) {
            let text = pieces.concat().repeat(20);
            prop_assert!(!flat(&text).contains(ends_a_line));
        }

        #[test]
        fn json_keeps_its_meaning(text in "[\u{80}-\u{90}\u{2020}-\u{2030}a\"\\\\]{0,40}") {
            let value = Value::from(text);
            let pretty = serde_json::to_string_pretty(&serde_json::json!({"k": [value, 1]})).unwrap();
            let line = flat(&pretty.replace('\n', "\r"));
            prop_assert!(!line.contains(ends_a_line));
            let (before, after): (Value, Value) =
                (serde_json::from_str(&pretty).unwrap(), serde_json::from_str(&line).unwrap());
            prop_assert_eq!(before, after);
        }
    }
}
