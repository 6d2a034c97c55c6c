//! From JSON text to the wire, without values in between.

use std::borrow::Cow;

use memchr::memchr2;
use serde::de::IgnoredAny;

use super::{LEVELS, NotExact, Why, number, twice};

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
const LONGEST_VARINT: usize = 10;

struct StructWriter<'a> {
    /// What is still to be read: the rest of a text that is JSON.
    rest: &'a str,
    out: Vec<u8>,
    longest: usize,
}

/// The `Struct` of JSON text.
pub(super) fn object(text: &str, longest: usize) -> Result<Vec<u8>, NotExact> {
    // Everything below relies on it.
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return Err(Why::NotAnObject("it cannot be read, or is nested too deeply").into());
    }
    let mut writer = StructWriter {
        rest: text,
        out: Vec::with_capacity(text.len().min(longest)),
        longest,
    };
    match writer.next() {
        b'{' => writer.members(LEVELS)?,
        _ => return Err(Why::NotAnObject("it is another value").into()),
    }
    Ok(writer.out)
}

impl<'a> StructWriter<'a> {
    /// The byte that the next token begins with.
    fn next(&mut self) -> u8 {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        self.rest.as_bytes().first().copied().unwrap_or_default()
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    /// True at the end of an object or list, which is passed; a comma before the next member is, too.
    fn ends(&mut self, end: u8) -> bool {
        let next = self.next();
        if next == b',' || next == end {
            self.skip(1);
        }
        next == end
    }

    /// The members of an object, with so many levels left, its own included.
    fn members(&mut self, levels: usize) -> Result<(), NotExact> {
        let levels = levels.checked_sub(3).ok_or(Why::TooDeep)?;
        let mut keys = Vec::new();
        self.skip(1);
        while !self.ends(b'}') {
            self.next();
            let key = self.string()?;
            let start = self.out.len();
            self.bytes(KEY, key.as_bytes());
            self.next();
            self.skip(1);
            self.value(VALUE, levels).map_err(|no| no.within(&key))?;
            self.wrap(start, &[ITEM]);
            keys.push(key);
            self.bounded()?;
        }
        twice(&mut keys)
    }

    /// The items of a list, with so many levels left, its own included.
    fn items(&mut self, levels: usize) -> Result<(), NotExact> {
        let levels = levels.checked_sub(2).ok_or(Why::TooDeep)?;
        let mut count = 0_usize;
        self.skip(1);
        while !self.ends(b']') {
            self.value(ITEM, levels)
                .map_err(|no| no.within(&count.to_string()))?;
            count += 1;
            self.bounded()?;
        }
        Ok(())
    }

    /// A `Value` as the field `tag`.
    fn value(&mut self, tag: u8, levels: usize) -> Result<(), NotExact> {
        let start = self.out.len();
        match self.next() {
            b'{' => {
                self.members(levels)?;
                self.wrap(start, &[tag, OBJECT]);
            }
            b'[' => {
                self.items(levels)?;
                self.wrap(start, &[tag, LIST]);
            }
            b'"' => {
                let text = self.string()?;
                self.bytes(STRING, text.as_bytes());
                self.wrap(start, &[tag]);
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
                let value = number::double(self.number())?;
                self.out.extend_from_slice(&[tag, 9, NUMBER]);
                self.out.extend_from_slice(&value.to_le_bytes());
            }
        }
        Ok(())
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Why> {
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
        match escaped {
            false => Ok(Cow::Borrowed(&token[1..at])),
            // Half of a surrogate pair is no character, and no string of the wire.
            true => serde_json::from_str(token)
                .map(Cow::Owned)
                .map_err(|_| Why::NotAnObject("a string has half of a surrogate pair")),
        }
    }

    fn number(&mut self) -> &'a str {
        let end = self
            .rest
            .find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'))
            .unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        self.rest = rest;
        number
    }

    fn bytes(&mut self, tag: u8, bytes: &[u8]) {
        self.out.push(tag);
        let (length, taken) = varint(bytes.len());
        self.out.extend_from_slice(&length[..taken]);
        self.out.extend_from_slice(bytes);
    }

    /// Puts tags and lengths before what was written since `start`, the innermost last. What has just been
    /// written moves by a few bytes.
    fn wrap(&mut self, start: usize, tags: &[u8]) {
        let mut head = [0; 2 * (1 + LONGEST_VARINT)];
        let (mut at, mut len) = (head.len(), self.out.len() - start);
        for tag in tags.iter().rev() {
            let (length, bytes) = varint(len);
            at -= 1 + bytes;
            head[at] = *tag;
            head[at + 1..][..bytes].copy_from_slice(&length[..bytes]);
            len += 1 + bytes;
        }
        self.out.splice(start..start, head[at..].iter().copied());
    }

    fn bounded(&self) -> Result<(), NotExact> {
        match self.out.len() > self.longest {
            true => Err(Why::TooLong(self.longest).into()),
            false => Ok(()),
        }
    }
}

/// A length, and how many bytes it takes.
fn varint(mut value: usize) -> ([u8; LONGEST_VARINT], usize) {
    let (mut bytes, mut len) = ([0; LONGEST_VARINT], 0);
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
