//! Text from strangers, made safe to print on a terminal.

use std::fmt::Write as _;

/// The bytes as printable text: colours are taken out, every other control character and every
/// mark that reorders text is shown by its number, bytes that are no UTF-8 become U+FFFD.
#[must_use]
pub fn visible(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.trim_end_matches('\r');
    while let Some(at) = rest.find(is_hidden) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        rest = match sequence(rest) {
            Some(end) => &rest[end..],
            None => shown(rest, &mut out),
        };
    }
    out.push_str(rest);
    out
}

/// Tabs are harmless; U+2028 and its neighbours break or reorder lines.
fn is_hidden(c: char) -> bool {
    (c.is_control() && c != '\t')
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The length of the terminal control sequence (`ESC [ … letter`) that `text` begins with.
fn sequence(text: &str) -> Option<usize> {
    let body = text.strip_prefix("\u{1b}[")?;
    let parameters = body
        .bytes()
        .take_while(|b| (b' '..=b'?').contains(b))
        .count();
    let last = *body.as_bytes().get(parameters)?;
    (b'@'..=b'~').contains(&last).then_some(2 + parameters + 1)
}

/// Writes the first character by its number and answers what follows it.
fn shown<'a>(text: &'a str, out: &mut String) -> &'a str {
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
    fn plain_text_stays() {
        assert_eq!(visible("a\tb é 漢 🦀\r".as_bytes()), "a\tb é 漢 🦀");
        assert_eq!(visible(b"\xff\xfe ok"), "\u{fffd}\u{fffd} ok");
    }

    #[test]
    fn colours_go_and_other_commands_show() {
        assert_eq!(visible(b"\x1b[1;31mred\x1b[0m \x1b[2J"), "red ");
        assert_eq!(visible(b"\x1b]0;title\x07"), "\\u{1b}]0;title\\u{7}");
        assert_eq!(visible(b"50%\r60%"), "50%\\u{d}60%");
        assert_eq!(
            visible("\u{9b}2J \u{202e}x".as_bytes()),
            "\\u{9b}2J \\u{202e}x"
        );
    }

    #[test]
    fn nothing_that_drives_a_terminal_survives() {
        let mut bytes: Vec<u8> = (0..=255).cycle().take(2000).collect();
        for at in 0..bytes.len() {
            bytes[at] = 0x1b;
            let text = visible(&bytes[at.saturating_sub(9)..bytes.len().min(at + 9)]);
            assert!(!text.chars().any(is_hidden), "{text:?}");
        }
        assert_eq!(visible(b"\x1b["), "\\u{1b}[");
    }
}
