//! Objects that are torn or broken: what can be followed of them, from the start, in one pass. What is acted on is read
//! whole afterwards.

use std::borrow::Cow;

use crate::string_end;

/// The mark some writers put before a text.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// The first member of this name in an object, or in the start of one. Nothing behind it is looked at.
#[must_use]
pub fn first_member<'t>(object: &'t [u8], wanted: &str) -> Option<&'t [u8]> {
    let mut named = members(object).filter(|(name, ..)| name == wanted);
    named.next().map(|(_, value, _)| value)
}

/// The members of an object, or of the start of one, as far as they can be followed; of each whether its
/// value is whole.
pub fn members(text: &[u8]) -> impl Iterator<Item = (Cow<'_, str>, &[u8], bool)> {
    let text = text.strip_prefix(BOM).unwrap_or(text).trim_ascii_start();
    let mut rest = text.strip_prefix(b"{");
    std::iter::from_fn(move || {
        let (name, behind) = split_name(rest?)?;
        let (value, after) = behind.split_at(end_of_value(behind));
        rest = after.strip_prefix(b",");
        Some((name, value, !after.is_empty()))
    })
}

/// The name that stands first, and what is behind its colon.
fn split_name(text: &[u8]) -> Option<(Cow<'_, str>, &[u8])> {
    let inside = text.trim_ascii_start().strip_prefix(b"\"")?;
    let end = string_end(inside)?;
    let (raw, behind) = (&inside[..end], &inside[end + 1..]);
    let behind = behind.trim_ascii_start().strip_prefix(b":")?;
    let name = match memchr::memchr(b'\\', raw) {
        None => String::from_utf8_lossy(raw),
        Some(_) => {
            let quoted = [b"\"", raw, b"\""].concat();
            let read = serde_json::from_slice::<String>(&quoted);
            // One that cannot be read is none of those that matter.
            read.map_or_else(|_| String::from_utf8_lossy(raw), Cow::Owned)
        }
    };
    Some((name, behind))
}

/// Where the value ends that stands first: at the comma or the bracket behind it, or with the text.
fn end_of_value(text: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = text.get(at) {
        match (byte, depth) {
            (b',' | b'}' | b']', 0) => return at,
            (b'{' | b'[', _) => depth += 1,
            (b'}' | b']', _) => depth -= 1,
            (b'"', _) => match string_end(&text[at + 1..]) {
                Some(end) => at += end + 1,
                None => return text.len(),
            },
            _ => {}
        }
        at += 1;
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
