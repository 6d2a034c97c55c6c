//! The field types of the protobuf encoding that OTLP uses, encoded and decoded by hand: a library would bring a code
//! generator for some hundred lines.

/// A message under construction.
#[derive(Debug, Default)]
pub(super) struct ProtoMessage(Vec<u8>);

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;
const FIXED32: u64 = 5;

impl ProtoMessage {
    /// The encoded bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn write_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn write_tag(&mut self, field: u32, kind: u64) {
        self.write_varint(u64::from(field) << 3 | kind);
    }

    /// Writes a number, which is left out where it is 0.
    pub(super) fn write_number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.write_tag(field, VARINT);
            self.write_varint(value);
        }
    }

    /// Writes a number even if it is 0: a member of a `oneof`.
    pub(super) fn write_oneof_number(&mut self, field: u32, value: u64) {
        self.write_tag(field, VARINT);
        self.write_varint(value);
    }

    /// Writes eight bytes.
    pub(super) fn write_fixed64(&mut self, field: u32, value: u64) {
        self.write_tag(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes a real number.
    pub(super) fn write_double(&mut self, field: u32, value: f64) {
        self.write_fixed64(field, value.to_bits());
    }

    /// Writes bytes or text.
    pub(super) fn write_bytes(&mut self, field: u32, value: &[u8]) {
        self.write_tag(field, LENGTH_DELIMITED);
        self.write_varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// Writes bytes or text, left out where empty.
    pub(super) fn write_nonempty_bytes(&mut self, field: u32, value: &[u8]) {
        if !value.is_empty() {
            self.write_bytes(field, value);
        }
    }

    /// Writes an embedded message.
    pub(super) fn write_message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.write_bytes(field, &inner.0);
    }

    /// Writes many numbers of eight bytes, packed.
    pub(super) fn write_packed_fixed64(&mut self, field: u32, values: impl Iterator<Item = u64>) {
        let bytes: Vec<u8> = values.flat_map(u64::to_le_bytes).collect();
        self.write_bytes(field, &bytes);
    }
}

/// The fields of a received message, up to its end or to an invalid field.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProtoFields<'a>(pub(super) &'a [u8]);

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProtoValue<'a> {
    /// A varint or fixed-size number.
    Number(u64),
    /// Bytes, a text or a message.
    Bytes(&'a [u8]),
}

impl<'a> ProtoFields<'a> {
    fn read_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn read_bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> Iterator for ProtoFields<'a> {
    type Item = (u64, ProtoValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.read_varint()?;
        let value = match tag & 7 {
            VARINT => ProtoValue::Number(self.read_varint()?),
            FIXED64 => ProtoValue::Number(u64::from_le_bytes(*self.read_bytes(8)?.first_chunk()?)),
            FIXED32 => {
                ProtoValue::Number(u32::from_le_bytes(*self.read_bytes(4)?.first_chunk()?).into())
            }
            LENGTH_DELIMITED => {
                let length = self.read_varint()?;
                ProtoValue::Bytes(self.read_bytes(length)?)
            }
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written is read, and of what is no message nothing is read beyond its end.
    #[test]
    fn fields_survive_a_round_trip() {
        let mut message = ProtoMessage::default();
        message.write_number(1, u64::MAX);
        message.write_fixed64(2, 7);
        message.write_bytes(300, b"x");
        let bytes = message.into_bytes();
        let read: Vec<_> = ProtoFields(&bytes).collect();
        let want = [
            (1, ProtoValue::Number(u64::MAX)),
            (2, ProtoValue::Number(7)),
            (300, ProtoValue::Bytes(b"x")),
        ];
        assert_eq!(read, want);
        for end in 0..bytes.len() {
            assert!(ProtoFields(&bytes[..end]).count() < 3, "{end}");
        }
        for bad in [
            &b"{\"a\":1}"[..],
            &[0xff; 20],
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7fx",
        ] {
            assert_eq!(ProtoFields(bad).count(), 0, "{bad:?}");
        }
    }

    /// The examples of the protobuf documentation ("Encoding").
    #[test]
    fn fields_are_encoded_as_documented() {
        let mut message = ProtoMessage::default();
        message.write_number(1, 150);
        message.write_bytes(2, b"testing");
        message.write_message(3, |inner| inner.write_number(1, 150));
        message.write_number(4, 0);
        let want: &[u8] = b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01";
        assert_eq!(message.into_bytes(), want);
        let mut message = ProtoMessage::default();
        message.write_fixed64(1, 1);
        message.write_packed_fixed64(2, [1, 2].into_iter());
        let want: &[u8] = b"\x09\x01\0\0\0\0\0\0\0\x12\x10\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0";
        assert_eq!(message.into_bytes(), want);
    }
}
