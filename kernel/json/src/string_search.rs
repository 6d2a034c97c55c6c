//! A quick search for a name in JSON text, before parsing.
//!
//! A name may be written with escapes: PHP's `json_encode` writes every `/` as `\/`, and `\u002f` is
//! legal too.

use memchr::memmem;

/// Whether the strings of `text` may contain `word`, verbatim or escaped. May be wrongly true, never wrongly false: the
/// caller parses the text then.
///
/// `word` is ASCII, with its quotes where it is a whole string. Escapes of other characters than its own,
/// as in text beyond ASCII or in HTML made safe, count for nothing.
#[must_use]
pub fn can_contain_string(text: &[u8], word: &str) -> bool {
    can_contain_strings(text, [word]) == [true]
}

/// The same for several words, with one look for escapes.
#[must_use]
pub fn can_contain_strings<const N: usize>(text: &[u8], words: [&str; N]) -> [bool; N] {
    let mut found = words.map(|word| memmem::find(text, word.as_bytes()).is_some());
    if found == [true; N] {
        return found;
    }
    let Some(first) = memchr::memchr(b'\\', text) else {
        return found;
    };
    let escaped = &text[first..];
    // Long texts have an escape in each line, but few that can stand for a character of a word.
    if words.iter().any(|word| word.contains('/')) && memmem::find(escaped, b"\\/").is_some() {
        for (found, word) in found.iter_mut().zip(words) {
            *found = *found || word.contains('/');
        }
    }
    for at in memmem::find_iter(escaped, ESCAPED_ASCII) {
        let named = escaped[at + ESCAPED_ASCII.len()..].first_chunk();
        let named = named.and_then(|digits| parse_hex(*digits));
        for (found, word) in found.iter_mut().zip(words) {
            *found = *found || named.is_some_and(|named| word.contains(named));
        }
        if found == [true; N] {
            break;
        }
    }
    found
}

/// What every escape of an ASCII character by its number begins with.
const ESCAPED_ASCII: &[u8] = b"\\u00";

/// The character of two hexadecimal digits.
fn parse_hex(digits: [u8; 2]) -> Option<char> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    char::from_u32(high? * 16 + low?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A word with some of its characters escaped, each in one of the ways that JSON has.
    fn escaped(word: &'static str) -> impl Strategy<Value = String> {
        let ways = prop::collection::vec(0..32_u8, word.len());
        ways.prop_map(move |ways| {
            let characters = word.chars().zip(ways);
            let written = characters.map(|(c, way)| match (way, c) {
                (0, _) => format!("\\u{:04x}", u32::from(c)),
                (1, _) => format!("\\u{:04X}", u32::from(c)),
                (2..16, '/') => "\\/".to_owned(),
                _ => c.to_string(),
            });
            written.collect()
        })
    }

    proptest! {
        #[test]
        fn no_way_to_write_a_name_hides_it(
            before in r#"([a-z"{}é]|\\n|\\"|\\\\|\\/|\\u00e9|\\u00){0,40}"#,
            name in prop_oneof![escaped("_mgp/stream"), escaped("taskId")],
            after in r#"([a-z"]|\\n|\\){0,40}"#,
        ) {
            let text = [before, name, after].concat();
            let [stream, task] = can_contain_strings(text.as_bytes(), ["_mgp/stream", "taskId"]);
            prop_assert!(stream || task, "{}", text);
        }
    }

    #[test]
    fn a_name_is_found_however_it_is_escaped() {
        let finds = |text: &str| can_contain_string(text.as_bytes(), "a.b/isError");
        assert!(finds(r#"{"a.b/isError":1}"#));
        assert!(finds(r#"{"a.b\/isError":1}"#));
        assert!(finds(r#"{"a.b\u002fisError":1}"#));
        assert!(finds(r#"{"a.b\u002FisError":1}"#));
        assert!(finds(r#"{"a.b/is\u0045rror":1}"#));
        assert!(!finds(
            r#"{"text":"caf\u00e9 \u003cb\u003e \u2028 \n \"q\" c:\\x"}"#
        ));
        assert!(!finds(r#""\u00"#));
        assert!(!can_contain_string(br#"{"url":"http:\/\/x"}"#, "isError"));
    }

    #[test]
    fn several_words_are_found_as_each_alone() {
        let words = ["\"isError\"", "\"taskId\"", "\"structuredContent\""];
        let long = "x".repeat(1000);
        for text in [
            r#"{"isError":true}"#,
            r#"{"content":[],"structuredContent":{},"task":{"taskId":"t"},"isError":false}"#,
            r#"{"task\u0049d":1,"text":"a\nb"}"#,
            r#"{"content":[{"type":"text","text":"isError"}]}"#,
            r#"{"text":"\""#,
            "",
            &format!(r#"{{"a":"{long}","taskId":1,"b":"{long}"}}"#),
        ] {
            let alone = words.map(|word| can_contain_string(text.as_bytes(), word));
            assert_eq!(can_contain_strings(text.as_bytes(), words), alone, "{text}");
        }
    }
}
