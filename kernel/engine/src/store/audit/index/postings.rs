//! The records of one value within a block: their ordinals, as gaps.

use super::varint::{VarintReader, put};

/// Encodes ascending ordinals.
pub(super) fn encode(ordinals: &[u16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(ordinals.len() + 2);
    put(&mut out, ordinals.len() as u64);
    let mut next = 0;
    for ordinal in ordinals {
        put(&mut out, u64::from(*ordinal) - next);
        next = u64::from(*ordinal) + 1;
    }
    out
}

/// Decodes a list; `None` if it is invalid for a block of this many records.
pub(super) fn decode(bytes: &[u8], records: usize) -> Option<Vec<u16>> {
    let mut read = VarintReader(bytes);
    let count = usize::try_from(read.read()?).ok()?;
    if count > records {
        return None;
    }
    let mut out = Vec::with_capacity(count);
    let mut next = 0_u64;
    for _ in 0..count {
        let ordinal = next.checked_add(read.read()?)?;
        if ordinal >= records as u64 {
            return None;
        }
        out.push(u16::try_from(ordinal).ok()?);
        next = ordinal + 1;
    }
    read.is_empty().then_some(out)
}

/// Intersects two ascending lists, in place.
pub(super) fn intersect(list: &mut Vec<u16>, other: &[u16]) {
    let mut other = other.iter().peekable();
    list.retain(|ordinal| {
        while other.next_if(|next| *next < ordinal).is_some() {}
        other.peek() == Some(&ordinal)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// A truncated list is invalid.
        #[test]
        fn a_list_round_trips(ordinals in btree_set(0u16..1000, 0..200), cut in 1usize..9) {
            let ordinals: Vec<u16> = ordinals.into_iter().collect();
            let bytes = encode(&ordinals);
            prop_assert_eq!(decode(&bytes, 1000), Some(ordinals.clone()));
            prop_assert_eq!(decode(&bytes[..bytes.len().saturating_sub(cut)], 1000), None);
            if let Some(last) = ordinals.last() {
                prop_assert_eq!(decode(&bytes, usize::from(*last)), None);
            }
        }

        #[test]
        fn any_bytes_decode_to_a_sorted_list_or_none(bytes in vec(any::<u8>(), 0..40)) {
            let list = decode(&bytes, 300).unwrap_or_default();
            prop_assert!(list.is_sorted_by(|a, b| a < b));
        }

        #[test]
        fn intersect_retains_common_ordinals(one in btree_set(0u16..50, 0..30), other in btree_set(0u16..50, 0..30)) {
            let both: BTreeSet<u16> = one.intersection(&other).copied().collect();
            let mut kept: Vec<u16> = one.into_iter().collect();
            let other: Vec<u16> = other.into_iter().collect();
            intersect(&mut kept, &other);
            prop_assert!(kept.into_iter().eq(both));
        }
    }
}
