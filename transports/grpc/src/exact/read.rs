//! From the wire to JSON text, without values in between.

use std::borrow::Cow;

use super::{LEVELS, NotExact, Why, number, twice};

/// A field of a message.
enum WireField<'a> {
    Varint(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

/// The fields of a message that are still to be read.
struct WireFields<'a>(&'a [u8]);

struct StructReader {
    out: Vec<u8>,
    longest: usize,
}

/// The JSON text of a `Struct`.
pub(super) fn object(wire: &[u8], longest: usize) -> Result<String, NotExact> {
    let mut reader = StructReader {
        out: Vec::with_capacity(wire.len().min(longest)),
        longest,
    };
    reader.object(wire, LEVELS)?;
    Ok(String::from_utf8(reader.out).expect("every piece is checked, or ours"))
}

impl StructReader {
    /// A `Struct`, with so many levels left, its own included.
    fn object(&mut self, wire: &[u8], levels: usize) -> Result<(), NotExact> {
        let levels = levels.checked_sub(3).ok_or(Why::TooDeep)?;
        let (mut fields, mut keys) = (WireFields(wire), Vec::new());
        self.out.push(b'{');
        while let Some(field) = fields.next()? {
            let (1, WireField::Bytes(entry)) = field else {
                return Err(Why::Malformed("a Struct has `fields` only").into());
            };
            let (key, value) = parts(entry)?;
            if !keys.is_empty() {
                self.out.push(b',');
            }
            keys.push(Cow::Borrowed(key));
            self.text(key)?;
            self.out.push(b':');
            self.value(value, levels).map_err(|no| no.within(key))?;
        }
        self.out.push(b'}');
        twice(&mut keys)?;
        self.bounded()
    }

    /// A `ListValue`, with so many levels left, its own included.
    fn list(&mut self, wire: &[u8], levels: usize) -> Result<(), NotExact> {
        let levels = levels.checked_sub(2).ok_or(Why::TooDeep)?;
        let (mut fields, mut count) = (WireFields(wire), 0_usize);
        self.out.push(b'[');
        while let Some(field) = fields.next()? {
            let (1, WireField::Bytes(value)) = field else {
                return Err(Why::Malformed("a ListValue has `values` only").into());
            };
            if count > 0 {
                self.out.push(b',');
            }
            self.value(value, levels)
                .map_err(|no| no.within(&count.to_string()))?;
            count += 1;
        }
        self.out.push(b']');
        self.bounded()
    }

    fn value(&mut self, wire: &[u8], levels: usize) -> Result<(), NotExact> {
        let mut fields = WireFields(wire);
        let Some(kind) = fields.next()? else {
            return Err(Why::Malformed("a Value without a kind").into());
        };
        if !fields.0.is_empty() {
            return Err(Why::Malformed("a Value of more than one kind").into());
        }
        match kind {
            (1, WireField::Varint(0)) => self.out.extend_from_slice(b"null"),
            (2, WireField::Double(value)) => number::write(value, &mut self.out)?,
            (3, WireField::Bytes(text)) => self.text(utf8(text)?)?,
            (4, WireField::Varint(0)) => self.out.extend_from_slice(b"false"),
            (4, WireField::Varint(1)) => self.out.extend_from_slice(b"true"),
            (5, WireField::Bytes(fields)) => return self.object(fields, levels),
            (6, WireField::Bytes(values)) => return self.list(values, levels),
            _ => return Err(Why::Malformed("a Value of an unknown kind").into()),
        }
        self.bounded()
    }

    fn text(&mut self, text: &str) -> Result<(), NotExact> {
        serde_json::to_writer(&mut self.out, text).expect("a vector takes all text");
        self.bounded()
    }

    fn bounded(&self) -> Result<(), NotExact> {
        match self.out.len() > self.longest {
            true => Err(Why::TooLong(self.longest).into()),
            false => Ok(()),
        }
    }
}

/// Key and value of a member. A key that is left out is the empty one.
fn parts(entry: &[u8]) -> Result<(&str, &[u8]), Why> {
    let (mut fields, mut key, mut value) = (WireFields(entry), None, None);
    while let Some(field) = fields.next()? {
        let again = match field {
            (1, WireField::Bytes(text)) => key.replace(utf8(text)?).is_some(),
            (2, WireField::Bytes(wire)) => value.replace(wire).is_some(),
            _ => return Err(Why::Malformed("a member has a key and a value only")),
        };
        if again {
            return Err(Why::Malformed("a member with two keys or values"));
        }
    }
    let value = value.ok_or(Why::Malformed("a member without a value"))?;
    Ok((key.unwrap_or_default(), value))
}

fn utf8(bytes: &[u8]) -> Result<&str, Why> {
    std::str::from_utf8(bytes).map_err(|_| Why::Malformed("a string that is not UTF-8"))
}

impl<'a> WireFields<'a> {
    fn next(&mut self) -> Result<Option<(u64, WireField<'a>)>, Why> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let field = match key & 7 {
            0 => WireField::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?.try_into().expect("eight bytes were taken");
                WireField::Double(f64::from_le_bytes(bytes))
            }
            2 => {
                let len = self.varint()?;
                let len = usize::try_from(len).map_err(|_| TORN)?;
                WireField::Bytes(self.take(len)?)
            }
            _ => return Err(Why::Malformed("a field of an unknown form")),
        };
        Ok(Some((key >> 3, field)))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Why> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(TORN)?;
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Why> {
        let mut value = 0_u64;
        for (nth, byte) in self.0.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            value |= bits << (7 * nth);
            if byte & 0x80 == 0 {
                // The tenth byte has room for one bit.
                if nth == 9 && bits > 1 {
                    break;
                }
                self.0 = &self.0[nth + 1..];
                return Ok(value);
            }
        }
        Err(TORN)
    }
}

const TORN: Why = Why::Malformed("it breaks off, or a length is wrong");
