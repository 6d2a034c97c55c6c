//! Ids of requests to a server or a client.
//!
//! Requests are numbered inside the kernel. A server gets the plain number, because many servers keep ids in 32 bits.
//! That is safe: the connection belongs to the server, an answer counts only for a request in flight there, and a new
//! connection starts with a new table.
//!
//! A client gets the number encrypted with a key of its connection, so that nobody can guess it. The encryption is a
//! permutation: no id repeats, and each can be decoded without a table. Clients answer in requests of their own, and
//! an answer meant for an earlier kernel process matches no request of this one.

use std::fmt;

use siphasher::sip::SipHasher24;

/// Bits of an id: every double, and so JavaScript, holds this many exactly.
const BITS: u32 = 53;
/// Bits of the right half; the left half has the rest.
const RIGHT_BITS: u32 = 27;
/// Four rounds with a good function make a pseudo-random permutation; two more cost little.
const ROUNDS: u64 = 6;

/// An id, or a progress token, as a peer sees it: below 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WireId(u64);

impl fmt::Display for WireId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The ids of one connection.
#[derive(Clone)]
pub struct RequestIds(Option<SipHasher24>);

impl RequestIds {
    /// Takes 16 bytes of good randomness, new for each connection.
    #[must_use]
    pub fn new(key: [u8; 16]) -> Self {
        Self(Some(SipHasher24::new_with_key(&key)))
    }

    /// Ids that are the plain numbers.
    #[must_use]
    pub fn unencrypted() -> Self {
        Self(None)
    }

    /// Encodes the id for the request of this number. Different numbers below 2^53 have different ids; a kernel never
    /// counts that far.
    #[must_use]
    pub fn encode(&self, number: u64) -> WireId {
        let Some(key) = &self.0 else {
            return WireId(number);
        };
        let rounds = 0..ROUNDS;
        let halves = rounds.fold(split_halves(number), |halves, round| {
            mix_half(key, halves, round)
        });
        WireId(join_halves(halves))
    }

    /// Decodes the number of a request; `None` for what cannot be an id of this connection.
    #[must_use]
    pub fn decode(&self, said: u64) -> Option<u64> {
        if said >> BITS != 0 {
            return None;
        }
        let Some(key) = &self.0 else {
            return Some(said);
        };
        let rounds = (0..ROUNDS).rev();
        Some(join_halves(
            rounds.fold(split_halves(said), |halves, round| {
                mix_half(key, halves, round)
            }),
        ))
    }
}

/// One half, combined with a key-dependent hash of the other. Its own inverse.
fn mix_half(key: &SipHasher24, (left, right): (u64, u64), round: u64) -> (u64, u64) {
    let mixed = |half: u64| key.hash(&(round << 32 | half).to_le_bytes());
    match round % 2 {
        0 => (left ^ (mixed(right) & bit_mask(BITS - RIGHT_BITS)), right),
        _ => (left, right ^ (mixed(left) & bit_mask(RIGHT_BITS))),
    }
}

impl fmt::Debug for RequestIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestIds")
    }
}

fn bit_mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

fn split_halves(whole: u64) -> (u64, u64) {
    (
        whole >> RIGHT_BITS & bit_mask(BITS - RIGHT_BITS),
        whole & bit_mask(RIGHT_BITS),
    )
}

fn join_halves((left, right): (u64, u64)) -> u64 {
    left << RIGHT_BITS | right
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_are_scattered_and_never_repeat() {
        let ids = RequestIds::new([7; 16]);
        let shown: Vec<u64> = (1..=10_000).map(|number| ids.encode(number).0).collect();
        let different: HashSet<&u64> = shown.iter().collect();
        assert_eq!(different.len(), shown.len());
        assert!(shown.iter().all(|id| id >> BITS == 0));
        // Ids of successive numbers differ in half of their 53 bits, more or less.
        let differ = shown.windows(2).map(|two| (two[0] ^ two[1]).count_ones());
        let mean = f64::from(differ.sum::<u32>()) / 9_999.0;
        assert!((26.0..27.0).contains(&mean), "{mean}");
        // One high, one low: the ids cover the whole range.
        let high = shown.iter().filter(|id| **id >> 52 == 1).count();
        assert!((4_700..5_300).contains(&high), "{high}");
    }

    #[test]
    fn ids_for_a_server_are_plain_numbers() {
        let ids = RequestIds::unencrypted();
        for number in [1, 2, 3, 1 << 40] {
            assert_eq!(ids.encode(number).to_string(), number.to_string());
            assert_eq!(ids.decode(number), Some(number));
        }
    }

    #[test]
    fn another_connection_has_other_ids() {
        let (one, other) = (RequestIds::new([1; 16]), RequestIds::new([2; 16]));
        let same = (0..1000).filter(|number| one.encode(*number) == other.encode(*number));
        assert_eq!(same.count(), 0);
        assert_eq!(one.decode(1 << 53), None);
        assert_eq!(one.decode(u64::MAX), None);
    }

    proptest! {
        #[test]
        fn ids_round_trip(key in any::<[u8; 16]>(), number in 0..1_u64 << 53) {
            let ids = RequestIds::new(key);
            prop_assert_eq!(ids.decode(ids.encode(number).0), Some(number));
            prop_assert_eq!(ids.encode(ids.decode(number).unwrap()).0, number);
        }
    }
}
