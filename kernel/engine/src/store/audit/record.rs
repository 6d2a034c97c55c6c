//! One line of the log: `{"seq":1,"prev":"…","event":{…},"hash":"…"}`.

use std::fmt;
use std::io::Write;
use std::sync::LazyLock;

/// Longest event taken into a line, in bytes. A longer one is written without its details.
pub const EVENT_MAX: usize = 32 << 10;
const OPEN_TOKEN: &str = r#"{"seq":"#;
const PREVIOUS_TOKEN: &str = r#","prev":""#;
const EVENT_TOKEN: &str = r#"","event":"#;
const HASH_TOKEN: &str = r#","hash":""#;
const CLOSE_TOKEN: &str = r#""}"#;
const HASH_HEX_LEN: usize = 64;
/// From the comma before `hash` to the end of the line.
const SUFFIX_LEN: usize = HASH_TOKEN.len() + HASH_HEX_LEN + CLOSE_TOKEN.len();
/// Most lines fit into this many bytes.
const LINE_CAPACITY: usize = 1_024;

/// The hash of a record: of its line up to the hash, which includes the previous hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordDigest([u8; blake3::OUT_LEN]);

impl RecordDigest {
    /// The previous hash of the first record.
    pub(crate) const START: Self = Self([0; blake3::OUT_LEN]);

    fn hash_body(body: &[u8]) -> Self {
        // The key of the context is computed once, because that costs as much as a record.
        static KEYED: LazyLock<blake3::Hasher> =
            LazyLock::new(|| blake3::Hasher::new_derive_key("mgp 2026-11 audit record"));
        let mut hasher = KEYED.clone();
        hasher.update(body);
        Self(hasher.finalize().into())
    }

    fn to_hex(self) -> [u8; HASH_HEX_LEN] {
        render_hex(&self.0)
    }

    /// Reads 64 lower-case hexadecimal digits; a hash has only one spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digit = |b: u8| match b {
            b'0'..=b'9' => Some(b - b'0'),
            b'a'..=b'f' => Some(b - b'a' + 10),
            _ => None,
        };
        let mut out = [0; blake3::OUT_LEN];
        if text.len() != HASH_HEX_LEN {
            return None;
        }
        for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(out))
    }
}

/// 64 lower-case digits. Each call has three of these, and blake3's own takes a check for each digit.
pub(super) fn render_hex(digest: &[u8; blake3::OUT_LEN]) -> [u8; HASH_HEX_LEN] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = [0; HASH_HEX_LEN];
    for (pair, byte) in hex.chunks_exact_mut(2).zip(digest) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    hex
}

impl fmt::Display for RecordDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_hex()).expect("digits are ASCII"))
    }
}

impl fmt::Debug for RecordDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A complete line with a correct hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditRecord<'a> {
    /// The number, from 1.
    pub sequence: u64,
    /// Hash of the record before.
    pub(crate) previous: RecordDigest,
    /// The event, as JSON text.
    pub event: &'a str,
    /// Its own hash.
    pub hash: RecordDigest,
}

/// Writes the line of an event, newline included, and returns its hash. `event` writes JSON on one line.
pub(super) fn write_line(
    sequence: u64,
    previous: RecordDigest,
    event: impl FnOnce(&mut Vec<u8>),
) -> (Vec<u8>, RecordDigest) {
    const MEMORY: &str = "writing to memory succeeds";
    let mut line = Vec::with_capacity(LINE_CAPACITY);
    write!(line, "{OPEN_TOKEN}{sequence}").expect(MEMORY);
    line.extend_from_slice(PREVIOUS_TOKEN.as_bytes());
    line.extend_from_slice(&previous.to_hex());
    line.extend_from_slice(EVENT_TOKEN.as_bytes());
    event(&mut line);
    let hash = RecordDigest::hash_body(&line);
    line.extend_from_slice(HASH_TOKEN.as_bytes());
    line.extend_from_slice(&hash.to_hex());
    line.extend_from_slice(CLOSE_TOKEN.as_bytes());
    line.push(b'\n');
    (line, hash)
}

impl<'a> AuditRecord<'a> {
    /// Reads a line without its newline; `None` if any byte of it was changed.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        if !has_record_suffix(line) {
            return None;
        }
        let line = std::str::from_utf8(line).ok()?;
        let (body, tail) = line.split_at_checked(line.len() - SUFFIX_LEN)?;
        let hash =
            RecordDigest::parse(tail.get(HASH_TOKEN.len()..HASH_TOKEN.len() + HASH_HEX_LEN)?)?;
        if RecordDigest::hash_body(body.as_bytes()) != hash {
            return None;
        }
        let (sequence, rest) = body.strip_prefix(OPEN_TOKEN)?.split_once(PREVIOUS_TOKEN)?;
        let (previous, event) = rest.split_once(EVENT_TOKEN)?;
        Some(Self {
            sequence: sequence.parse().ok()?,
            previous: RecordDigest::parse(previous)?,
            event,
            hash,
        })
    }
}

/// Whether the bytes end like a record, valid or not.
pub(super) fn has_record_suffix(line: &[u8]) -> bool {
    let tail = line.len().checked_sub(SUFFIX_LEN).map(|at| &line[at..]);
    tail.is_some_and(|t| {
        t.starts_with(HASH_TOKEN.as_bytes()) && t.ends_with(CLOSE_TOKEN.as_bytes())
    })
}

/// Whether the bytes begin like a record.
pub(super) fn has_record_prefix(line: &[u8]) -> bool {
    line.starts_with(OPEN_TOKEN.as_bytes())
}

/// The number that can still be read in a damaged line.
pub(super) fn parse_sequence(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(OPEN_TOKEN.as_bytes())?;
    let end = rest.iter().position(|b| !b.is_ascii_digit())?;
    std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(sequence: u64, event: &str) -> (Vec<u8>, RecordDigest) {
        write_line(sequence, RecordDigest::START, |line| {
            line.extend_from_slice(event.as_bytes());
        })
    }

    #[test]
    fn a_written_line_is_parsed() {
        let (line, hash) = line(7, r#"{"a":"\n"}"#);
        assert!(line.ends_with(b"\"}\n") && line.iter().filter(|b| **b == b'\n').count() == 1);
        let record = AuditRecord::parse(line.trim_ascii_end()).unwrap();
        assert_eq!((record.sequence, record.hash), (7, hash));
        assert_eq!(record.event, r#"{"a":"\n"}"#);
        assert_eq!(RecordDigest::parse(&hash.to_string()), Some(hash));
        assert_eq!(RecordDigest::parse(&format!("{:A>64}", "")), None);
    }

    proptest! {
        /// Also in the hash.
        #[test]
        fn any_changed_byte_is_detected(at in 0usize..1000, mask in 1u8..) {
            let (line, _) = line(12, r#"{"event_type":"TOOL_EXECUTED","n":"é"}"#);
            let mut bytes = line.trim_ascii_end().to_vec();
            let at = at % bytes.len();
            bytes[at] ^= mask;
            prop_assert_eq!(AuditRecord::parse(&bytes), None);
        }
    }
}
