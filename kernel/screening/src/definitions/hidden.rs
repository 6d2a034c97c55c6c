//! What a person who reads a definition does not see: unseen characters, comments, text far to the right, encodings.

use std::sync::LazyLock;

use regex::Regex;

use super::words::compile;
use crate::results::UnseenFilter;
use crate::validators::is_invisible;

/// From this many unseen characters on a text hides something; fewer are remains of an editor.
const UNSEEN_MAX: usize = 3;
/// So much white space within a line pushes the rest out of sight.
const GAP_MIN: usize = 60;
/// So many empty lines do, too.
const LINES_MIN: usize = 12;
/// Shortest encoded text that is decoded, and the most that are of one text.
const ENCODED_MIN: usize = 24;
const ENCODED_MAX: usize = 32;

static COMMENT: LazyLock<Regex> =
    LazyLock::new(|| compile(r"(?s)<!--(.*?)(?:-->|$)|\[//\]: ?# ?\((.*?)\)"));
static GAP: LazyLock<Regex> = LazyLock::new(|| {
    compile(&format!(
        r"[ \t\u{{a0}}\u{{2000}}-\u{{200a}}\u{{3000}}]{{{GAP_MIN},}}[^\s]|(?:\r?\n[ \t]*){{{LINES_MIN},}}[^\s]"
    ))
});
static ENCODED: LazyLock<Regex> =
    LazyLock::new(|| compile(&format!(r"[A-Za-z0-9+/_-]{{{ENCODED_MIN},}}={{0,2}}")));
static ESCAPED: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"(?:(?:\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|%[0-9a-fA-F]{2}|&#x?[0-9a-fA-F]{2,4};|\b0x[0-9a-fA-F]{2}\b[ ,]*|\b[01]{8}\b ?|\b[0-9]{2,3}\b[ ,]+)){8,}",
    )
});

/// A text that was hidden in another one.
pub(super) struct Hidden {
    pub(super) text: String,
    /// What that counts, whatever the text says.
    pub(super) weight: u32,
    /// Others hide such text for good reasons: it counts if it asks for something, or is to be decoded.
    pub(super) is_weak: bool,
}

impl Hidden {
    fn weak(text: String) -> Self {
        Self {
            text,
            weight: 0,
            is_weak: true,
        }
    }

    fn certain(text: String, weight: u32) -> Self {
        Self {
            text,
            weight,
            is_weak: false,
        }
    }
}

/// Texts hidden in this one, each with how; without unseen characters as the second value.
pub(super) fn find_hidden(text: &str) -> Vec<Hidden> {
    let mut hidden = Vec::new();
    if !text.is_ascii() {
        hidden.extend(find_unseen(text));
    }
    for found in COMMENT.captures_iter(text) {
        let inner = found
            .get(1)
            .or(found.get(2))
            .map_or("", |inner| inner.as_str());
        hidden.push(Hidden::certain(inner.trim().to_owned(), 30));
    }
    if let Some(gap) = GAP.find(text) {
        let rest = text[gap.start()..].trim_start();
        hidden.push(Hidden::certain(
            rest.lines().next().unwrap_or_default().to_owned(),
            20,
        ));
    }
    hidden.extend(find_disguised(text).map(|text| Hidden::certain(text, 100)));
    let encoded = ENCODED.find_iter(text).map(|it| it.as_str());
    for part in encoded.take(ENCODED_MAX) {
        if let Some(text) = decode_hex(part).or_else(|| decode_base64(part)) {
            hidden.push(Hidden::weak(text));
        }
    }
    for part in ESCAPED.find_iter(text).take(ENCODED_MAX) {
        if let Some(text) = decode_escapes(part.as_str()) {
            hidden.push(Hidden::weak(text));
        }
    }
    hidden
}

fn find_unseen(text: &str) -> Option<Hidden> {
    let mut filter = UnseenFilter::default();
    let unseen: Vec<char> = text.chars().filter(|c| !filter.keeps(*c)).collect();
    // The mark at the start of a file, joiners of fonts and marks of direction come in ones.
    let marks = unseen.iter().filter(|c| {
        matches!(
            c,
            '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{feff}' | '\u{ad}' | '\u{200b}' | '\u{2060}'
        )
    });
    let (marks, all) = (marks.count(), unseen.len());
    let reverses = unseen
        .iter()
        .any(|c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'));
    // Within text of Latin letters nothing unseen has a use, but a soft hyphen. At its ends are remains of an editor.
    let is_unseen = |c: char| c != '\u{ad}' && !c.is_ascii() && is_invisible(c);
    let inner = text.trim_matches(|c: char| c.is_whitespace() || is_unseen(c));
    let mut letters = inner.chars().filter(|c| c.is_alphabetic());
    let splits =
        letters.all(|c| c.is_ascii()) && inner.contains(|c| is_unseen(c) && unseen.contains(&c));
    let is_rare = all <= UNSEEN_MAX || marks == all && all * 12 < text.chars().count();
    if !reverses && !splits && is_rare {
        return None;
    }
    let shown = unseen.iter().filter_map(|c| {
        let number = u32::from(*c);
        let byte = match number {
            0xe0020..=0xe007e => number - 0xe0000,
            // Bytes as variation selectors.
            0xfe00..=0xfe0f => number - 0xfe00,
            0xe0100..=0xe01ef => number - 0xe0100 + 16,
            _ => return None,
        };
        char::from_u32(byte).filter(|c| (' '..='~').contains(c))
    });
    let mut shown: String = shown.collect();
    if shown.is_empty() {
        shown = decode_two_signs(&unseen).unwrap_or_default();
    }
    Some(Hidden::certain(shown, 120))
}

/// Bits as two kinds of unseen characters.
fn decode_two_signs(unseen: &[char]) -> Option<String> {
    let zero = *unseen.first()?;
    let bytes = unseen.chunks_exact(8).map(|bits| {
        let byte = bits
            .iter()
            .fold(0_u8, |byte, bit| byte << 1 | u8::from(*bit != zero));
        char::from(byte)
    });
    let text: String = bytes.collect();
    text.chars()
        .all(|c| (' '..='~').contains(&c))
        .then_some(text)
}

/// Text as a person could write it: printable, with words.
fn as_prose(bytes: Vec<u8>) -> Option<String> {
    let text = String::from_utf8(bytes).ok()?;
    let is_prose = text.chars().all(|c| !c.is_control() || c.is_whitespace())
        && text.split_whitespace().count() >= 3
        && !text.trim_start().starts_with('{');
    is_prose.then_some(text)
}

fn decode_hex(part: &str) -> Option<String> {
    if !part.len().is_multiple_of(2) {
        return None;
    }
    let digit = |c: u8| char::from(c).to_digit(16);
    let bytes = part
        .as_bytes()
        .chunks_exact(2)
        .map(|pair| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok());
    as_prose(bytes.collect::<Option<_>>()?)
}

fn decode_base64(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let (mut bits, mut count) = (0_u32, 0);
    for c in part.bytes().take_while(|c| *c != b'=') {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap_or_default());
        }
    }
    as_prose(bytes)
}

/// Prose in another order or with other letters: backwards, rotated by 13, or with digits for letters.
fn find_disguised(text: &str) -> Option<String> {
    let sentences = super::texts::sentences(text)
        .filter(|sentence| sentence.is_ascii() && sentence.len() >= ENCODED_MIN);
    let disguised = sentences.filter(|sentence| count_common(sentence) == 0);
    disguised.take(ENCODED_MAX).find_map(|sentence| {
        let backwards: String = sentence.chars().rev().collect();
        let rotated: String = sentence.chars().map(rotate).collect();
        let spelt: String = sentence.chars().map(spell).collect();
        [backwards, rotated, spelt]
            .into_iter()
            .find(|plain| count_common(plain) >= 3)
    })
}

/// Words that most sentences have.
fn count_common(text: &str) -> usize {
    const COMMON: [&str; 20] = [
        "the",
        "and",
        "to",
        "of",
        "all",
        "that",
        "not",
        "with",
        "this",
        "user",
        "send",
        "from",
        "for",
        "you",
        "your",
        "tool",
        "previous",
        "instructions",
        "keys",
        "file",
    ];
    let words = text
        .split(|c: char| !c.is_alphanumeric())
        .map(str::to_lowercase);
    words.filter(|word| COMMON.contains(&&**word)).count()
}

fn rotate(c: char) -> char {
    let turn = |first: u8, c: u8| char::from((c - first + 13) % 26 + first);
    match c {
        'a'..='z' => turn(b'a', c as u8),
        'A'..='Z' => turn(b'A', c as u8),
        other => other,
    }
}

fn spell(c: char) -> char {
    match c {
        '0' => 'o',
        '1' | '!' => 'i',
        '3' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        '7' => 't',
        other => other,
    }
}

fn decode_escapes(part: &str) -> Option<String> {
    let is_binary = part.bytes().all(|c| matches!(c, b'0' | b'1' | b' '));
    let radix = match part {
        _ if is_binary => 2,
        _ if part.starts_with(['\\', '%']) || part.starts_with("&#x") || part.starts_with("0x") => {
            16
        }
        _ => 10,
    };
    let numbers = if part.starts_with('%') || part.starts_with('\\') {
        part.split(['%', '\\', 'x', 'u']).collect::<Vec<_>>()
    } else {
        part.split(|c: char| !c.is_ascii_hexdigit()).collect()
    };
    let bytes = numbers
        .into_iter()
        .filter(|n| !n.is_empty() && (*n != "0" || radix == 2));
    let bytes: Option<Vec<u8>> = bytes.map(|n| u8::from_str_radix(n, radix).ok()).collect();
    as_prose(bytes?)
}
