//! Values without the characters of their long strings. Texts and files are most of what agents pass, few schemas look at
//! more of them than that they are strings, and to decode them takes longer than everything else of a check.

use std::borrow::Cow;

use memchr::memmem;
use mgp_json::string_end;

/// Shortest string that is replaced, in bytes with its escapes. Decoded it is longer than its stand-in, as an escape of six
/// bytes stands for one at least.
const LONG: usize = 6 * STAND_IN_LEN + 1;
/// The length of a stand-in: strings of an `enum` or a `const` are shorter, so it equals none of them, as what it stands for.
pub(super) const STAND_IN_LEN: usize = 512;

/// The same value with another string in place of each long one, borrowed if it has none. Names of members stay, and so do
/// strings with surrogates, which may be halves.
pub(super) fn replace_long_strings(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let (mut short, mut copied, mut at) = (String::new(), 0, 0);
    while bytes.len() - at >= LONG
        && let Some(quote) = memchr::memchr(b'"', &bytes[at..])
    {
        let start = at + quote + 1;
        let Some(len) = string_end(&bytes[start..]) else {
            break;
        };
        at = start + len + 1;
        if len >= LONG && is_replaceable(&bytes[start..start + len], &bytes[at..]) {
            short.push_str(&json[copied..start]);
            short.extend(std::iter::repeat_n('x', STAND_IN_LEN));
            copied = start + len;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    short.push_str(&json[copied..]);
    Cow::Owned(short)
}

fn is_replaceable(string: &[u8], after: &[u8]) -> bool {
    let is_surrogate = |at| matches!(string.get(at + 2), Some(b'd' | b'D'));
    !after.trim_ascii_start().starts_with(b":")
        && !memmem::find_iter(string, b"\\u").any(is_surrogate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_values_are_replaced() {
        let long = |plain: &str| plain.repeat(LONG / plain.len() + 1);
        let stand_in = "x".repeat(STAND_IN_LEN);
        let (text, escaped, half) = (long("y"), long("\\n\\\"\\\\"), long("\\uD83d"));
        let with =
            |a: &str, b: &str| format!(r#"{{"{text}" : 1,"a":["{a}","é",-0,""],"b":"{b}"}}"#);
        assert_eq!(
            replace_long_strings(&with(&text, &escaped)),
            with(&stand_in, &stand_in)
        );
        let kept = with(&"y".repeat(LONG - 1), &half);
        assert!(matches!(replace_long_strings(&kept), Cow::Borrowed(same) if same == kept));
        for broken in [&text, &format!("[\"{text}"), &format!("[\"{text}\\\"")] {
            assert_eq!(replace_long_strings(broken), **broken);
        }
    }
}
