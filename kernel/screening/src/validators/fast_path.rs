//! Fast recognition of texts that cannot violate any rule: nearly all texts.
//!
//! A text passes if it has none of the characters that the rules of a validator look for, at the positions
//! where they look for them. All other texts are checked; a rule that looks for another character has to be
//! added here.

/// Bytes checked together.
const STRIDE: usize = 32;
/// The longest label of a host name (RFC 1035 §2.3.4).
const LABEL_MAX: usize = 63;

/// True for letters, digits, spaces and commas, which no rule looks for.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() | (byte == b' ') | (byte == b',')
}

/// True if each byte is plain, or accepted by `passes`, which gets the bytes before and after it; the text
/// counts as surrounded by spaces.
fn all_bytes(text: &str, passes: impl Fn(u8, u8, u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let at = |index: Option<usize>| index.and_then(|i| bytes.get(i)).copied().unwrap_or(b' ');
    bytes.chunks(STRIDE).enumerate().all(|(nth, chunk)| {
        // Branch-free, so that many bytes are checked at once.
        let plain = chunk.iter().fold(true, |all, byte| all & is_plain(*byte));
        plain
            || chunk.iter().enumerate().all(|(within, byte)| {
                let index = nth * STRIDE + within;
                is_plain(*byte) || passes(at(index.checked_sub(1)), *byte, at(Some(index + 1)))
            })
    })
}

/// True for punctuation of prose.
fn is_punctuation(byte: u8) -> bool {
    matches!(byte, b'_' | b'\'' | b'"' | b'!' | b'(' | b')' | b'+' | b'*')
}

/// True for a text without a special role that no rule of `sandbox` matches: it has no separators,
/// redirections, options, paths, variables or escapes.
pub(super) fn is_safe_for_sandbox(text: &str) -> bool {
    all_bytes(text, |before, byte, after| match byte {
        b'.' | b'-' | b'@' | b'#' => before.is_ascii_alphanumeric() && after != b'.',
        b':' => before != b':' && after != b':',
        b'?' => true,
        other => is_punctuation(other),
    })
}

/// True for prose without a special role and of several words that no rule of `network_restricted` matches:
/// it has no name or address with a port, a path or a scheme.
pub(super) fn is_safe_for_network(text: &str) -> bool {
    let several = text.trim().contains(' ');
    several
        && all_bytes(text, |_, byte, after| match byte {
            b'.' | b':' => after == b' ',
            b'-' | b'?' | b';' => true,
            other => is_punctuation(other),
        })
}

/// True for a value that is one word of letters and digits only, and longer than any host name.
pub(super) fn is_blob(text: &str) -> bool {
    let wordy = |chunk: &[u8]| {
        let each = chunk.iter().map(u8::is_ascii_alphanumeric);
        each.fold(true, |all, one| all & one)
    };
    text.len() >= 300 && text.as_bytes().chunks(STRIDE).all(wordy)
}

/// True for a value that is one word of letters and digits, no longer than a label of a host name, and
/// begins with a letter: no address and no URL, unless it is an internal
/// [name](super::addresses::internal_name_reason).
pub(super) fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= LABEL_MAX
        && bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.iter().all(u8::is_ascii_alphanumeric)
}

/// True for the arguments of a call, as JSON text, in which no text needs a detailed check.
#[must_use]
pub fn is_trivially_safe(arguments: &str) -> bool {
    all_bytes(arguments, |before, byte, after| match byte {
        b'{' | b'}' | b'[' | b']' => true,
        b':' => before == b'"' || after == b' ',
        b'.' => before.is_ascii_alphanumeric() && matches!(after, b' ' | b'"'),
        b'-' => before.is_ascii_alphanumeric(),
        other => is_punctuation(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_passes_and_special_characters_do_not() {
        let prose = "The quick brown fox (a well-known one) jumps; it's fun. Isn't it? Yes: fun.";
        assert!(is_safe_for_network(prose) && !is_safe_for_sandbox(prose));
        assert!(is_safe_for_sandbox(
            "A well-known fox, isn't it? Yes: fun. End."
        ));
        for loud in [
            "a $(id)", "a ../b", "a -rf b", "a/b", "x ~", "a\nb", "a=b", "ext::sh", "é", ".hidden",
            "%2e",
        ] {
            assert!(!is_safe_for_sandbox(loud), "{loud}");
        }
        for loud in [
            "localhost",
            "see http://x",
            "at 10.0.0.1 now",
            "a b:80",
            "a @b",
            "x=y z",
            "a\\b c",
            "a [b c",
        ] {
            assert!(!is_safe_for_network(loud), "{loud}");
        }
        assert!(is_blob(&"a".repeat(300)) && !is_blob("localhost"));
        assert!(!is_blob(&"a".repeat(299)) && !is_blob(&"a/".repeat(150)));
        assert!(is_word(&"a".repeat(LABEL_MAX)) && !is_word(&"a".repeat(LABEL_MAX + 1)));
        assert!(!is_word("1a") && !is_word("a.b") && !is_word(""));
        let plain: String = (' '..='~')
            .filter(|c| *c == ',' || c.is_ascii_alphanumeric())
            .collect();
        assert!(is_safe_for_sandbox(&plain) && is_trivially_safe(&plain));
        assert!(is_trivially_safe(r#"{"text":"All is well.","n":[1,2]}"#));
        assert!(
            !is_trivially_safe(r#"{"text":"see http://x"}"#)
                && !is_trivially_safe(r#"{"a":"-rf"}"#)
        );
        for loud in [r#"{"a":"b:c"}"#, r#"{"a":".b"}"#, r#"{"a":"a.b"}"#] {
            assert!(!is_trivially_safe(loud), "{loud}");
        }
    }
}
