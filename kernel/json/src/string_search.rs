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
    memmem::find(text, word.as_bytes()).is_some()
        || (word.contains('/') && memmem::find(text, br"\/").is_some())
        || memmem::find_iter(text, br"\u00").any(|at| is_escape_in(&text[at + 4..], word))
}

/// Whether these two digits name a character of the word.
fn is_escape_in(digits: &[u8], word: &str) -> bool {
    let [high, low, ..] = *digits else {
        return false;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let code = digit(high).zip(digit(low)).map(|(h, l)| h * 16 + l);
    code.and_then(char::from_u32)
        .is_some_and(|named| word.contains(named))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
