//! Texts with their JSON escapes undone.

use std::borrow::Cow;

/// JSON within JSON within JSON is as deep as anybody nests texts; what is escaped more often is not read.
const ROUNDS_MAX: usize = 8;

/// A text as each further reader of JSON would read it, until there is nothing left to undo; `None` at the end where
/// there still is.
pub(super) struct UnescapeRounds {
    text: String,
    round: usize,
}

impl UnescapeRounds {
    pub(super) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            round: 0,
        }
    }
}

impl Iterator for UnescapeRounds {
    type Item = Option<String>;

    fn next(&mut self) -> Option<Option<String>> {
        let Cow::Owned(undone) = unescape(&self.text) else {
            return None;
        };
        self.round += 1;
        if self.round > ROUNDS_MAX {
            return (self.round == ROUNDS_MAX + 1).then_some(None);
        }
        self.text.clone_from(&undone);
        Some(Some(undone))
    }
}

/// A text with its escapes undone once (RFC 8259 §7). What is no escape stays; half a pair of surrogates becomes
/// U+FFFD, as readers have it who take such a text at all.
pub(super) fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut changed) = (text, false);
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let (meant, len) = parse_escape(&rest[at..]);
        match meant {
            Some(meant) => out.push(meant),
            None => out.push_str(&rest[at..at + len]),
        }
        changed |= meant.is_some();
        rest = &rest[at + len..];
    }
    out.push_str(rest);
    if changed {
        Cow::Owned(out)
    } else {
        Cow::Borrowed(text)
    }
}

/// What the escape at the start of this text means, and its length; `None` where it is none.
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
