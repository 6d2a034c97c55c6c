//! Decodes the wire format to JSON text, without intermediate values.

use std::borrow::Cow;

use super::{MAX_DEPTH, StructError, StructErrorKind, number, reject_duplicate_keys};

/// A field of a message.
enum WireField<'a> {
    Varint(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

/// The unread fields of a message.
struct WireFields<'a>(&'a [u8]);

struct StructReader {
    out: Vec<u8>,
    max_len: usize,
}

/// The JSON text of a `Struct`.
pub(super) fn decode_struct(wire: &[u8], longest: usize) -> Result<String, StructError> {
    let mut reader = StructReader {
        out: Vec::with_capacity(wire.len().min(longest)),
        max_len: longest,
    };
    reader.write_object(wire, MAX_DEPTH)?;
    Ok(String::from_utf8(reader.out).expect("every piece is checked, or ours"))
}

impl StructReader {
    /// Writes a `Struct`; `levels` is the remaining depth, its own included.
    fn write_object(&mut self, wire: &[u8], levels: usize) -> Result<(), StructError> {
        let levels = levels.checked_sub(3).ok_or(StructErrorKind::TooDeep)?;
        let (mut fields, mut keys) = (WireFields(wire), Vec::new());
        self.out.push(b'{');
        while let Some(field) = fields.next_field()? {
            let (1, WireField::Bytes(entry)) = field else {
                return Err(StructErrorKind::Malformed("a Struct has `fields` only").into());
            };
            let (key, value) = split_entry(entry)?;
            if !keys.is_empty() {
                self.out.push(b',');
            }
            keys.push(Cow::Borrowed(key));
            self.write_string(key)?;
            self.out.push(b':');
            self.write_value(value, levels)
                .map_err(|error| error.nested_in(key))?;
        }
        self.out.push(b'}');
        reject_duplicate_keys(&mut keys)?;
        self.check_length()
    }

    /// Writes a `ListValue`; `levels` is the remaining depth, its own included.
    fn write_list(&mut self, wire: &[u8], levels: usize) -> Result<(), StructError> {
        let levels = levels.checked_sub(2).ok_or(StructErrorKind::TooDeep)?;
        let (mut fields, mut count) = (WireFields(wire), 0_usize);
        self.out.push(b'[');
        while let Some(field) = fields.next_field()? {
            let (1, WireField::Bytes(value)) = field else {
                return Err(StructErrorKind::Malformed("a ListValue has `values` only").into());
            };
            if count > 0 {
                self.out.push(b',');
            }
            self.write_value(value, levels)
                .map_err(|error| error.nested_in(&count.to_string()))?;
            count += 1;
        }
        self.out.push(b']');
        self.check_length()
    }

    fn write_value(&mut self, wire: &[u8], levels: usize) -> Result<(), StructError> {
        let mut fields = WireFields(wire);
        let Some(kind) = fields.next_field()? else {
            return Err(StructErrorKind::Malformed("a Value without a kind").into());
        };
        if !fields.0.is_empty() {
            return Err(StructErrorKind::Malformed("a Value of more than one kind").into());
        }
        match kind {
            (1, WireField::Varint(0)) => self.out.extend_from_slice(b"null"),
            (2, WireField::Double(value)) => number::write_double(value, &mut self.out)?,
            (3, WireField::Bytes(text)) => self.write_string(parse_utf8(text)?)?,
            (4, WireField::Varint(0)) => self.out.extend_from_slice(b"false"),
            (4, WireField::Varint(1)) => self.out.extend_from_slice(b"true"),
            (5, WireField::Bytes(fields)) => return self.write_object(fields, levels),
            (6, WireField::Bytes(values)) => return self.write_list(values, levels),
            _ => return Err(StructErrorKind::Malformed("a Value of an unknown kind").into()),
        }
        self.check_length()
    }

    fn write_string(&mut self, text: &str) -> Result<(), StructError> {
        serde_json::to_writer(&mut self.out, text).expect("a vector takes all text");
        self.check_length()
    }

    fn check_length(&self) -> Result<(), StructError> {
        if self.out.len() > self.max_len {
            Err(StructErrorKind::TooLong(self.max_len).into())
        } else {
            Ok(())
        }
    }
}

/// Key and value of a member. A missing key is the empty one.
fn split_entry(entry: &[u8]) -> Result<(&str, &[u8]), StructErrorKind> {
    let (mut fields, mut key, mut value) = (WireFields(entry), None, None);
    while let Some(field) = fields.next_field()? {
        let is_duplicate = match field {
            (1, WireField::Bytes(text)) => key.replace(parse_utf8(text)?).is_some(),
            (2, WireField::Bytes(wire)) => value.replace(wire).is_some(),
            _ => {
                return Err(StructErrorKind::Malformed(
                    "a member has a key and a value only",
                ));
            }
        };
        if is_duplicate {
            return Err(StructErrorKind::Malformed(
                "a member with two keys or values",
            ));
        }
    }
    let value = value.ok_or(StructErrorKind::Malformed("a member without a value"))?;
    Ok((key.unwrap_or_default(), value))
}

fn parse_utf8(bytes: &[u8]) -> Result<&str, StructErrorKind> {
    std::str::from_utf8(bytes).map_err(|_| StructErrorKind::Malformed("a string that is not UTF-8"))
}

impl<'a> WireFields<'a> {
    fn next_field(&mut self) -> Result<Option<(u64, WireField<'a>)>, StructErrorKind> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.read_varint()?;
        let field = match key & 7 {
            0 => WireField::Varint(self.read_varint()?),
            1 => {
                let bytes = self
                    .take_bytes(8)?
                    .try_into()
                    .expect("eight bytes were taken");
                WireField::Double(f64::from_le_bytes(bytes))
            }
            2 => {
                let len = self.read_varint()?;
                let len = usize::try_from(len).map_err(|_| TRUNCATED)?;
                WireField::Bytes(self.take_bytes(len)?)
            }
            _ => return Err(StructErrorKind::Malformed("a field of an unknown form")),
        };
        Ok(Some((key >> 3, field)))
    }

    fn take_bytes(&mut self, len: usize) -> Result<&'a [u8], StructErrorKind> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(taken)
    }

    fn read_varint(&mut self) -> Result<u64, StructErrorKind> {
        let mut value = 0_u64;
        for (nth, byte) in self.0.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            value |= bits << (7 * nth);
            if byte & 0x80 == 0 {
                // The tenth byte holds one bit.
                if nth == 9 && bits > 1 {
                    break;
                }
                self.0 = &self.0[nth + 1..];
                return Ok(value);
            }
        }
        Err(TRUNCATED)
    }
}

const TRUNCATED: StructErrorKind =
    StructErrorKind::Malformed("it breaks off, or a length is wrong");
