//! Maps keyed by numbers that the kernel assigns.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Nobody outside can choose the keys, so the hash need not withstand chosen ones.
pub(crate) type NumberMap<V> = HashMap<u64, V, BuildHasherDefault<NumberHasher>>;

/// Spreads consecutive numbers by one multiplication: the map sorts by the low bits, which stay
/// distinct, and compares by the high ones, which get mixed.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

/// 2^64 over the golden ratio, made odd: spreads neighbours far apart.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(GOLDEN);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(all(test, not(mgp_loom)))]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        let mut spread = NumberHasher::default();
        spread.write_u64(number);
        spread.finish()
    }

    #[test]
    fn neighbours_differ_at_both_ends_of_their_hash() {
        let low: std::collections::HashSet<_> = (0..128).map(|n| hash(n) & 127).collect();
        let high: std::collections::HashSet<_> = (0..128).map(|n| hash(n) >> 57).collect();
        assert_eq!(low.len(), 128);
        assert!(high.len() > 96, "{}", high.len());
    }
}
