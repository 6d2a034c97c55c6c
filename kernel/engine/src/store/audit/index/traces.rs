//! The traces of a block: 24 bits of each hash, in 256 lists by the first eight bits.

use super::varint::{VarintReader, put};
use crate::store::audit::query::ValueHash;

/// Part of a trace's hash. One in 16 million others collides, so that a bucket of 64 records rarely has a false match,
/// which only costs a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TraceKey {
    /// The first eight bits: the list.
    pub(super) bucket: u8,
    /// The other 16 bits.
    pub(super) rest: u16,
}

impl TraceKey {
    pub(super) fn from_hash(hash: ValueHash) -> Self {
        let [bucket, high, low, ..] = hash.0.to_be_bytes();
        Self {
            bucket,
            rest: u16::from_be_bytes([high, low]),
        }
    }
}

/// Encodes ascending traces, each with the ordinal of its record.
pub(super) fn encode(list: &[(TraceKey, u16)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(list.len() * 4 + 2);
    put(&mut out, list.len() as u64);
    let mut before = 0;
    for (key, ordinal) in list {
        put(&mut out, u64::from(key.rest - before));
        put(&mut out, u64::from(*ordinal));
        before = key.rest;
    }
    out
}

/// The ordinals of one trace in the list of its bucket; `None` if the list is invalid for a block of this many records.
pub(super) fn find(bytes: &[u8], key: TraceKey, records: usize) -> Option<Vec<u16>> {
    let mut read = VarintReader(bytes);
    let count = usize::try_from(read.read()?).ok()?;
    if count > records {
        return None;
    }
    let mut out = Vec::new();
    let mut rest = 0_u64;
    for _ in 0..count {
        rest = rest.checked_add(read.read()?)?;
        let ordinal = read.read()?;
        if ordinal >= records as u64 {
            return None;
        }
        if rest == u64::from(key.rest) {
            out.push(u16::try_from(ordinal).ok()?);
        }
    }
    read.is_empty().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        /// Each trace of a list is found with all its records, and no other.
        #[test]
        fn each_trace_is_found(list in vec((0u16..40, 0u16..1000), 0..100), cut in 1usize..5) {
            let key = |rest| TraceKey { bucket: 7, rest };
            let mut list: Vec<_> = list.into_iter().map(|(rest, ordinal)| (key(rest), ordinal)).collect();
            list.sort_unstable();
            list.dedup();
            let bytes = encode(&list);
            for rest in 0..41 {
                let of = list.iter().filter(|(of, _)| *of == key(rest)).map(|(_, ordinal)| *ordinal);
                prop_assert_eq!(find(&bytes, key(rest), 1000), Some(of.collect()));
            }
            let short = &bytes[..bytes.len().saturating_sub(cut)];
            prop_assert_eq!(find(short, key(0), 1000), None);
        }

        #[test]
        fn any_bytes_are_a_list_or_none(bytes in vec(any::<u8>(), 0..60)) {
            let found = find(&bytes, TraceKey { bucket: 0, rest: 3 }, 100).unwrap_or_default();
            prop_assert!(found.iter().all(|ordinal| *ordinal < 100));
        }
    }
}
