//! Encodes JSON text in the wire format, without intermediate values.

use std::borrow::Cow;

use mgp_json::{Token, Tokens};
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

/// Bytes of the longest varint.
const MAX_VARINT_LEN: usize = 10;

struct StructWriter<'a> {
    /// The unread tokens of valid JSON text.
    tokens: Tokens<'a>,
    out: Vec<u8>,
    max_len: usize,
}

/// Encodes JSON text as a `Struct`.
pub(super) fn encode_struct(text: &str, longest: usize) -> Result<Vec<u8>, StructError> {
    // All code below relies on valid JSON.
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return Err(
            StructErrorKind::NotAnObject("it cannot be read, or is nested too deeply").into(),
        );
    }
    let mut writer = StructWriter {
        tokens: Tokens::new(text),
        out: Vec::with_capacity(text.len().min(longest)),
        max_len: longest,
    };
    if writer.tokens.next() != Some(Token::Mark(b'{')) {
        return Err(StructErrorKind::NotAnObject("it is another value").into());
    }
    writer.encode_members(MAX_DEPTH)?;
    Ok(writer.out)
}

impl<'a> StructWriter<'a> {
    /// Encodes the members of an object; `levels` is the remaining depth, its own included.
    fn encode_members(&mut self, levels: usize) -> Result<(), StructError> {
        let levels = levels.checked_sub(3).ok_or(StructErrorKind::TooDeep)?;
        let mut keys = Vec::new();
        while let Some(name) = self.next_entry(b'}') {
            let key = parse_string(name)?;
            let start = self.out.len();
            self.write_bytes(KEY, key.as_bytes());
            self.tokens.next();
            let value = self.tokens.next();
            let value = value.expect("a name of JSON has a value");
            self.encode_value(VALUE, value, levels)
                .map_err(|error| error.nested_in(&key))?;
            self.prepend_length(start, &[ITEM]);
            keys.push(key);
            self.check_length()?;
        }
        reject_duplicate_keys(&mut keys)
    }

    /// Encodes the items of a list; `levels` is the remaining depth, its own included.
    fn encode_items(&mut self, levels: usize) -> Result<(), StructError> {
        let levels = levels.checked_sub(2).ok_or(StructErrorKind::TooDeep)?;
        let mut count = 0_usize;
        while let Some(item) = self.next_entry(b']') {
            self.encode_value(ITEM, item, levels)
                .map_err(|error| error.nested_in(&count.to_string()))?;
            count += 1;
            self.check_length()?;
        }
        Ok(())
    }

    /// The first token of the next member or item; `None` at the end, which is consumed.
    fn next_entry(&mut self, end: u8) -> Option<Token<'a>> {
        let next = self.tokens.find(|token| *token != Token::Mark(b','))?;
        (next != Token::Mark(end)).then_some(next)
    }

    /// Encodes the `Value` that begins with this token, as the field `tag`.
    fn encode_value(
        &mut self,
        tag: u8,
        first: Token<'a>,
        levels: usize,
    ) -> Result<(), StructError> {
        let start = self.out.len();
        match first {
            Token::Mark(b'{') => {
                self.encode_members(levels)?;
                self.prepend_length(start, &[tag, OBJECT]);
            }
            Token::Mark(_) => {
                self.encode_items(levels)?;
                self.prepend_length(start, &[tag, LIST]);
            }
            Token::String(_) => {
                let text = parse_string(first)?;
                self.write_bytes(STRING, text.as_bytes());
                self.prepend_length(start, &[tag]);
            }
            Token::Scalar("null") => self.out.extend_from_slice(&[tag, 2, NULL, 0]),
            Token::Scalar("true") => self.out.extend_from_slice(&[tag, 2, BOOL, 1]),
            Token::Scalar("false") => self.out.extend_from_slice(&[tag, 2, BOOL, 0]),
            Token::Scalar(number) => {
                let value = number::parse_double(number)?;
                self.out.extend_from_slice(&[tag, 9, NUMBER]);
                self.out.extend_from_slice(&value.to_le_bytes());
            }
        }
        Ok(())
    }

    fn write_bytes(&mut self, tag: u8, bytes: &[u8]) {
        self.out.push(tag);
        let (length, taken) = encode_varint(bytes.len());
        self.out.extend_from_slice(&length[..taken]);
        self.out.extend_from_slice(bytes);
    }

    /// Inserts tags and lengths before the bytes written since `start`, the innermost last. Moves these bytes by a few
    /// positions.
    fn prepend_length(&mut self, start: usize, tags: &[u8]) {
        let mut head = [0; 2 * (1 + MAX_VARINT_LEN)];
        let (mut position, mut len) = (head.len(), self.out.len() - start);
        for tag in tags.iter().rev() {
            let (length, bytes) = encode_varint(len);
            position -= 1 + bytes;
            head[position] = *tag;
            head[position + 1..][..bytes].copy_from_slice(&length[..bytes]);
            len += 1 + bytes;
        }
        self.out
            .splice(start..start, head[position..].iter().copied());
    }

    fn check_length(&self) -> Result<(), StructError> {
        if self.out.len() > self.max_len {
            Err(StructErrorKind::TooLong(self.max_len).into())
        } else {
            Ok(())
        }
    }
}

/// Decodes a string; half of a surrogate pair is invalid.
fn parse_string(token: Token<'_>) -> Result<Cow<'_, str>, StructErrorKind> {
    let text = token.as_text();
    text.ok_or(StructErrorKind::NotAnObject(
        "a string has half of a surrogate pair",
    ))
}

/// A varint, and its number of bytes.
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
