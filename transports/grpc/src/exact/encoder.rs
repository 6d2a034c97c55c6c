//! From JSON text to the wire, without values in between.

use std::borrow::Cow;

use memchr::memchr2;
use serde::de::IgnoredAny;

use super::{MAX_DEPTH, StructError, StructErrorKind, number, reject_duplicate_keys};

const ITEM: u8 = 0x0a;
const KEY: u8 = 0x0a;
const VALUE: u8 = 0x12;
const NULL: u8 = 0x08;
const NUMBER: u8 = 0x11;
const STRING: u8 = 0x1a;
const BOOL: u8 = 0x20;
const OBJECT: u8 = 0x2a;
const LIST: u8 = 0x32;

/// Bytes that the longest length takes.
const MAX_VARINT_LEN: usize = 10;

struct StructWriter<'a> {
    /// What is still to be read: the rest of a text that is JSON.
    rest: &'a str,
    out: Vec<u8>,
    max_len: usize,
}

/// The `Struct` of JSON text.
pub(super) fn encode_struct(text: &str, longest: usize) -> Result<Vec<u8>, StructError> {
    // Everything below relies on it.
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return Err(
            StructErrorKind::NotAnObject("it cannot be read, or is nested too deeply").into(),
        );
    }
    let mut writer = StructWriter {
        rest: text,
        out: Vec::with_capacity(text.len().min(longest)),
        max_len: longest,
    };
    match writer.peek_token() {
        b'{' => writer.encode_members(MAX_DEPTH)?,
        _ => return Err(StructErrorKind::NotAnObject("it is another value").into()),
    }
    Ok(writer.out)
}

impl<'a> StructWriter<'a> {
    /// The byte that the next token begins with.
    fn peek_token(&mut self) -> u8 {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        self.rest.as_bytes().first().copied().unwrap_or_default()
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    /// True at the end of an object or list, which is passed; a comma before the next member is, too.
    fn consume_end(&mut self, end: u8) -> bool {
        let next = self.peek_token();
        if next == b',' || next == end {
            self.skip(1);
        }
        next == end
    }

    /// The members of an object, with so many levels left, its own included.
    fn encode_members(&mut self, levels: usize) -> Result<(), StructError> {
        let levels = levels.checked_sub(3).ok_or(StructErrorKind::TooDeep)?;
        let mut keys = Vec::new();
        self.skip(1);
        while !self.consume_end(b'}') {
            self.peek_token();
            let key = self.parse_string()?;
            let start = self.out.len();
            self.write_bytes(KEY, key.as_bytes());
            self.peek_token();
            self.skip(1);
            self.encode_value(VALUE, levels)
                .map_err(|no| no.nested_in(&key))?;
            self.prepend_length(start, &[ITEM]);
            keys.push(key);
            self.check_length()?;
        }
        reject_duplicate_keys(&mut keys)
    }

    /// The items of a list, with so many levels left, its own included.
    fn encode_items(&mut self, levels: usize) -> Result<(), StructError> {
        let levels = levels.checked_sub(2).ok_or(StructErrorKind::TooDeep)?;
        let mut count = 0_usize;
        self.skip(1);
        while !self.consume_end(b']') {
            self.encode_value(ITEM, levels)
                .map_err(|no| no.nested_in(&count.to_string()))?;
            count += 1;
            self.check_length()?;
        }
        Ok(())
    }

    /// A `Value` as the field `tag`.
    fn encode_value(&mut self, tag: u8, levels: usize) -> Result<(), StructError> {
        let start = self.out.len();
        match self.peek_token() {
            b'{' => {
                self.encode_members(levels)?;
                self.prepend_length(start, &[tag, OBJECT]);
            }
            b'[' => {
                self.encode_items(levels)?;
                self.prepend_length(start, &[tag, LIST]);
            }
            b'"' => {
                let text = self.parse_string()?;
                self.write_bytes(STRING, text.as_bytes());
                self.prepend_length(start, &[tag]);
            }
            b'n' => {
                self.skip(4);
                self.out.extend_from_slice(&[tag, 2, NULL, 0]);
            }
            b't' => {
                self.skip(4);
                self.out.extend_from_slice(&[tag, 2, BOOL, 1]);
            }
            b'f' => {
                self.skip(5);
                self.out.extend_from_slice(&[tag, 2, BOOL, 0]);
            }
            _ => {
                let value = number::parse_double(self.take_number())?;
                self.out.extend_from_slice(&[tag, 9, NUMBER]);
                self.out.extend_from_slice(&value.to_le_bytes());
            }
        }
        Ok(())
    }

    fn parse_string(&mut self) -> Result<Cow<'a, str>, StructErrorKind> {
        let bytes = self.rest.as_bytes();
        let (mut at, mut escaped) = (1, false);
        let whole = "a string of JSON ends";
        loop {
            at += memchr2(b'"', b'\\', &bytes[at..]).expect(whole);
            if bytes[at] == b'"' {
                break;
            }
            escaped = true;
            at += 2;
        }
        let (token, rest) = self.rest.split_at(at + 1);
        self.rest = rest;
        if !escaped {
            Ok(Cow::Borrowed(&token[1..at]))
        } else {
            // Half of a surrogate pair is no character, and no valid JSON string.
            serde_json::from_str(token)
                .map(Cow::Owned)
                .map_err(|_| StructErrorKind::NotAnObject("a string has half of a surrogate pair"))
        }
    }

    fn take_number(&mut self) -> &'a str {
        let end = self
            .rest
            .find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'))
            .unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        self.rest = rest;
        number
    }

    fn write_bytes(&mut self, tag: u8, bytes: &[u8]) {
        self.out.push(tag);
        let (length, taken) = encode_varint(bytes.len());
        self.out.extend_from_slice(&length[..taken]);
        self.out.extend_from_slice(bytes);
    }

    /// Puts tags and lengths before what was written since `start`, the innermost last. What has just been
    /// written moves by a few bytes.
    fn prepend_length(&mut self, start: usize, tags: &[u8]) {
        let mut head = [0; 2 * (1 + MAX_VARINT_LEN)];
        let (mut at, mut len) = (head.len(), self.out.len() - start);
        for tag in tags.iter().rev() {
            let (length, bytes) = encode_varint(len);
            at -= 1 + bytes;
            head[at] = *tag;
            head[at + 1..][..bytes].copy_from_slice(&length[..bytes]);
            len += 1 + bytes;
        }
        self.out.splice(start..start, head[at..].iter().copied());
    }

    fn check_length(&self) -> Result<(), StructError> {
        if self.out.len() > self.max_len {
            Err(StructErrorKind::TooLong(self.max_len).into())
        } else {
            Ok(())
        }
    }
}

/// A length, and how many bytes it takes.
fn encode_varint(mut value: usize) -> ([u8; MAX_VARINT_LEN], usize) {
    let (mut bytes, mut len) = ([0; MAX_VARINT_LEN], 0);
    loop {
        let more = value >= 0x80;
        bytes[len] = u8::try_from(value & 0x7f).expect("seven bits") | (u8::from(more) << 7);
        value >>= 7;
        len += 1;
        if !more {
            return (bytes, len);
        }
    }
}
