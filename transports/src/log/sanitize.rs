//! Makes untrusted text safe to print on a terminal.

use std::fmt::Write as _;

/// The bytes as printable text: colours are removed; every other control character, every character that reorders text
/// and every invisible one is replaced by its number; bytes that are no UTF-8 become U+FFFD.
#[must_use]
pub fn sanitize(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.trim_end_matches('\r');
    while let Some(index) = rest.find(is_hidden) {
        out.push_str(&rest[..index]);
        rest = &rest[index..];
        if let Some(end) = joiner_length(rest, &out) {
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        rest = match control_sequence_length(rest) {
            Some(end) => &rest[end..],
            None => escape_first(rest, &mut out),
        };
    }
    out.push_str(rest);
    out
}

/// Whether a character drives a terminal, breaks or reorders lines, or is invisible, so that two names look the same or
/// a model reads more than a person: control characters but the tab, format characters, tags, variation selectors,
/// private use. (Unicode 16: `Cc`, `Cf`, `Co`, `Zl`, `Zp`, and the other default ignorable characters.)
#[must_use]
pub fn is_hidden(c: char) -> bool {
    (c.is_control() && c != '\t')
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}' | '\u{891}' | '\u{8e2}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{e000}'..='\u{f8ff}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}' | '\u{f0000}'..='\u{10ffff}')
}

/// The length of a joiner or selector after a letter or emoji that may need it, as in many scripts and in emoji of
/// several parts. Only one: a second one has no use.
fn joiner_length(rest: &str, before: &str) -> Option<usize> {
    let joins = |c: &char| matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}');
    let c = rest.chars().next().filter(joins)?;
    let previous = before.chars().next_back()?;
    let repeated = is_hidden(previous) && !matches!(previous, '\u{fe0f}' if c == '\u{200d}');
    (!previous.is_ascii() && !repeated).then(|| c.len_utf8())
}

/// The length of the terminal control sequence (`ESC [ … letter`) at the start of `text`.
fn control_sequence_length(text: &str) -> Option<usize> {
    let body = text.strip_prefix("\u{1b}[")?;
    let parameters = body
        .bytes()
        .take_while(|b| (b' '..=b'?').contains(b))
        .count();
    let last = *body.as_bytes().get(parameters)?;
    (b'@'..=b'~').contains(&last).then_some(2 + parameters + 1)
}

/// Writes the first character by its number, and returns the rest.
fn escape_first<'a>(text: &'a str, out: &mut String) -> &'a str {
    let mut chars = text.chars();
    if let Some(hidden) = chars.next() {
        let _ = write!(out, "{}", hidden.escape_unicode());
    }
    chars.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_unchanged() {
        assert_eq!(sanitize("a\tb é 漢 🦀\r".as_bytes()), "a\tb é 漢 🦀");
        assert_eq!(sanitize(b"\xff\xfe ok"), "\u{fffd}\u{fffd} ok");
        let joined = "\u{645}\u{6cc}\u{200c}\u{62e} \u{1f469}\u{200d}\u{1f4bb} \u{2764}\u{fe0f}\u{200d}\u{1f525}";
        assert_eq!(sanitize(joined.as_bytes()), joined);
    }

    #[test]
    fn colours_are_removed_and_other_commands_are_escaped() {
        assert_eq!(sanitize(b"\x1b[1;31mred\x1b[0m \x1b[2J"), "red ");
        assert_eq!(sanitize(b"\x1b]0;title\x07"), "\\u{1b}]0;title\\u{7}");
        assert_eq!(sanitize(b"50%\r60%"), "50%\\u{d}60%");
        assert_eq!(
            sanitize("\u{9b}2J \u{202e}x".as_bytes()),
            "\\u{9b}2J \\u{202e}x"
        );
    }

    /// Invisible characters are shown, because a model reads them and names differ by them.
    #[test]
    fn invisible_characters_are_shown_by_their_number() {
        for (text, shown) in [
            ("read\u{200b}file", "read\\u{200b}file"),
            ("a\u{61c}b", "a\\u{61c}b"),
            ("x\u{e0041}\u{e007f}", "x\\u{e0041}\\u{e007f}"),
            ("a\u{200d}b", "a\\u{200d}b"),
            ("\u{e9}\u{200d}\u{200d}", "\u{e9}\u{200d}\\u{200d}"),
            ("\u{1f469}\u{fe0f}\u{fe0f}", "\u{1f469}\u{fe0f}\\u{fe0f}"),
            ("\u{feff}a\u{ad}\u{f8ff}", "\\u{feff}a\\u{ad}\\u{f8ff}"),
        ] {
            assert_eq!(sanitize(text.as_bytes()), shown);
        }
    }

    #[test]
    fn no_terminal_command_survives() {
        let mut bytes: Vec<u8> = (0..=255).cycle().take(2000).collect();
        for index in 0..bytes.len() {
            bytes[index] = 0x1b;
            let text = sanitize(&bytes[index.saturating_sub(9)..bytes.len().min(index + 9)]);
            assert!(
                !text.chars().any(|c| c.is_control() && c != '\t'),
                "{text:?}"
            );
        }
        assert_eq!(sanitize(b"\x1b["), "\\u{1b}[");
    }
}
