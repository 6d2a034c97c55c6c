//! The four kinds of fields of the protobuf encoding that OTLP's messages have, written by hand: a library would
//! bring a code generator for some hundred lines.

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct ProtoMessage(Vec<u8>);

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

impl ProtoMessage {
    /// The bytes of it.
    pub(super) fn bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u32, kind: u64) {
        self.varint(u64::from(field) << 3 | kind);
    }

    /// A number, which is left out where it is 0.
    pub(super) fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.tag(field, VARINT);
            self.varint(value);
        }
    }

    /// A number that stands there even as 0: one of several alternatives.
    pub(super) fn chosen_number(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    /// Eight bytes.
    pub(super) fn fixed(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A real number.
    pub(super) fn real(&mut self, field: u32, value: f64) {
        self.fixed(field, value.to_bits());
    }

    /// Bytes or text.
    pub(super) fn put(&mut self, field: u32, value: &[u8]) {
        self.tag(field, LENGTH);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// Bytes or text, left out where there are none.
    pub(super) fn put_some(&mut self, field: u32, value: &[u8]) {
        if !value.is_empty() {
            self.put(field, value);
        }
    }

    /// A message within.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.put(field, &inner.0);
    }

    /// Many numbers of eight bytes, packed.
    pub(super) fn packed(&mut self, field: u32, values: impl Iterator<Item = u64>) {
        let bytes: Vec<u8> = values.flat_map(u64::to_le_bytes).collect();
        self.put(field, &bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the protobuf documentation ("Encoding").
    #[test]
    fn fields_are_written_as_documented() {
        let mut message = ProtoMessage::default();
        message.number(1, 150);
        message.put(2, b"testing");
        message.message(3, |inner| inner.number(1, 150));
        message.number(4, 0);
        let want: &[u8] = b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01";
        assert_eq!(message.bytes(), want);
        let mut message = ProtoMessage::default();
        message.fixed(1, 1);
        message.packed(2, [1, 2].into_iter());
        let want: &[u8] = b"\x09\x01\0\0\0\0\0\0\0\x12\x10\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0";
        assert_eq!(message.bytes(), want);
    }
}
