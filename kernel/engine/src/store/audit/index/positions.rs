//! The table of a block, in pieces: the time and position of each record.

use super::varint::{VarintReader, put, put_signed};

/// Records of a piece: finding one record reads one piece. 16 pieces fit into a page of the database.
pub(super) const PIECE_RECORDS: usize = 256;

/// The position of a record in its file. Ordered by time, then by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordLocation {
    /// The time of the record, in milliseconds since 1970.
    pub at_ms: u64,
    /// The offset of its line.
    pub offset: u64,
    /// The length of the line without its newline.
    pub len: u32,
}

impl RecordLocation {
    /// The offset of the next line, if nothing is between.
    fn end(&self) -> u64 {
        self.offset
            .saturating_add(u64::from(self.len))
            .saturating_add(1)
    }
}

/// Encodes a piece as differences between records. Most records follow each other in the file, too, which takes one
/// byte.
pub(super) fn encode(piece: &[RecordLocation]) -> Vec<u8> {
    let mut out = Vec::with_capacity(piece.len() * 5 + 16);
    let (mut at_ms, mut end) = (0, 0_u64);
    for place in piece {
        put(&mut out, place.at_ms - at_ms);
        put_signed(&mut out, place.offset.wrapping_sub(end).cast_signed());
        put(&mut out, u64::from(place.len));
        (at_ms, end) = (place.at_ms, place.end());
    }
    out
}

/// Decodes a piece; `None` if it is invalid.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<RecordLocation>> {
    let mut read = VarintReader(bytes);
    let mut out = Vec::with_capacity(PIECE_RECORDS);
    let (mut at_ms, mut end) = (0_u64, 0_u64);
    while !read.is_empty() {
        at_ms = at_ms.checked_add(read.read()?)?;
        let place = RecordLocation {
            at_ms,
            offset: end.wrapping_add(read.read_signed()?.cast_unsigned()),
            len: u32::try_from(read.read()?).ok()?,
        };
        end = place.end();
        out.push(place);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_table_round_trips(places in vec((0u64..u64::MAX, any::<u64>(), any::<u32>()), 0..300)) {
            let place = |(at_ms, offset, len)| RecordLocation { at_ms, offset, len };
            let mut places: Vec<_> = places.into_iter().map(place).collect();
            places.sort_unstable();
            prop_assert_eq!(decode(&encode(&places)), Some(places));
        }

        #[test]
        fn any_bytes_decode_to_a_sorted_table_or_none(bytes in vec(any::<u8>(), 0..60)) {
            let table = decode(&bytes).unwrap_or_default();
            prop_assert!(table.is_sorted_by_key(|place| place.at_ms));
        }
    }

    /// Records that follow each other within two seconds take four bytes, whatever they hold.
    #[test]
    fn a_record_takes_four_bytes() {
        let place = |n: u64| RecordLocation {
            at_ms: 1_700_000_000_000 + n * 100,
            offset: n * 601,
            len: 600,
        };
        let piece: Vec<_> = (0..PIECE_RECORDS as u64).map(place).collect();
        assert!(encode(&piece).len() <= PIECE_RECORDS * 4 + 8);
    }
}
