//! Reads truncated or broken objects as far as possible, in one pass. The kernel acts only on a full parse.

use std::borrow::Cow;

use crate::string_end;

/// The byte order mark.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// The first member of this name in a possibly truncated object. Nothing after it is read.
#[must_use]
pub fn first_member<'t>(object: &'t [u8], wanted: &str) -> Option<&'t [u8]> {
    let mut named = members(object).filter(|(name, ..)| name == wanted);
    named.next().map(|(_, value, _)| value)
}

/// The readable members of a possibly truncated object; each with whether its value is complete.
pub fn members(text: &[u8]) -> impl Iterator<Item = (Cow<'_, str>, &[u8], bool)> {
    let text = text.strip_prefix(BOM).unwrap_or(text).trim_ascii_start();
    let mut rest = text.strip_prefix(b"{");
    std::iter::from_fn(move || {
        let (name, after_name) = split_name(rest?)?;
        let (value, after) = after_name.split_at(end_of_value(after_name));
        rest = after.strip_prefix(b",");
        Some((name, value, !after.is_empty()))
    })
}

/// The leading name, and the text after its colon.
fn split_name(text: &[u8]) -> Option<(Cow<'_, str>, &[u8])> {
    let inside = text.trim_ascii_start().strip_prefix(b"\"")?;
    let end = string_end(inside)?;
    let (raw, after_name) = (&inside[..end], &inside[end + 1..]);
    let after_name = after_name.trim_ascii_start().strip_prefix(b":")?;
    let name = match memchr::memchr(b'\\', raw) {
        None => String::from_utf8_lossy(raw),
        Some(_) => {
            let quoted = [b"\"", raw, b"\""].concat();
            let read = serde_json::from_slice::<String>(&quoted);
            // An unreadable name is none of the wanted ones.
            read.map_or_else(|_| String::from_utf8_lossy(raw), Cow::Owned)
        }
    };
    Some((name, after_name))
}

/// The end of the leading value: the next comma or bracket, or the end of the text.
fn end_of_value(text: &[u8]) -> usize {
    let (mut index, mut depth) = (0, 0_usize);
    while let Some(byte) = text.get(index) {
        match (byte, depth) {
            (b',' | b'}' | b']', 0) => return index,
            (b'{' | b'[', _) => depth += 1,
            (b'}' | b']', _) => depth -= 1,
            (b'"', _) => match string_end(&text[index + 1..]) {
                Some(end) => index += end + 1,
                None => return text.len(),
            },
            _ => {}
        }
        index += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_found_without_reading_what_is_behind_it() {
        let name =
            |text: &'static str| first_member(text.as_bytes(), "name").map(String::from_utf8_lossy);
        assert_eq!(
            name(r#"{"name": "a" ,"name":"b"}"#).as_deref(),
            Some(" \"a\" ")
        );
        assert_eq!(
            name(r#"{"x":{"name":1},"n\u0061me":2"#).as_deref(),
            Some("2")
        );
        assert_eq!(name(r#"{"name":"a","broken"#).as_deref(), Some("\"a\""));
        for none in [
            "",
            "[]",
            "{}",
            r#"{"x":{"name":1}}"#,
            r#"{"broken "name":1}"#,
        ] {
            assert_eq!(name(none), None, "{none}");
        }
    }
}
