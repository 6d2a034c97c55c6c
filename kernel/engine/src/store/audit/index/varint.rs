//! Variable-length integers (LEB128).

const CONTINUATION_BIT: u8 = 0x80;

/// Appends an integer.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = value.to_le_bytes()[0];
        value >>= 7;
        if value == 0 {
            return out.push(low & !CONTINUATION_BIT);
        }
        out.push(low | CONTINUATION_BIT);
    }
}

/// Appends a signed integer (zigzag).
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(
        out,
        (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned(),
    );
}

/// Reads integers.
pub(super) struct VarintReader<'a>(pub(super) &'a [u8]);

impl VarintReader<'_> {
    /// The next integer; `None` if it is invalid or missing.
    pub(super) fn read(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & !CONTINUATION_BIT);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte & CONTINUATION_BIT == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The next signed integer.
    pub(super) fn read_signed(&mut self) -> Option<i64> {
        let value = self.read()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Whether all was read.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_round_trip(value: u64, signed: i64, bits in 0u32..64) {
            let mut out = Vec::new();
            put(&mut out, value >> bits);
            put_signed(&mut out, signed >> bits);
            let mut read = VarintReader(&out);
            prop_assert_eq!(read.read(), Some(value >> bits));
            prop_assert_eq!(read.read_signed(), Some(signed >> bits));
            prop_assert!(read.is_empty());
        }
    }

    #[test]
    fn invalid_integers_are_rejected() {
        for bytes in [&[][..], &[0x80], &[0xff; 9], &[0xff; 11]] {
            assert_eq!(VarintReader(bytes).read(), None, "{bytes:?}");
        }
        let beyond = [&[0xff; 9][..], &[2]].concat();
        assert_eq!(VarintReader(&beyond).read(), None);
    }
}
