//! The id of a node: the hash of its public key.

use super::hello::NodeName;
use super::pairing::WordNonces;
use crate::ids::NodeId;

/// The bytes of an id that are shown to people: enough to distinguish one's own nodes, too few for
/// decisions.
const SHORT_ID_BYTES: usize = 6;

/// The letters of the words: consonants that are hard to confuse when spoken; no word list is needed.
const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
const VOWELS: &[u8; 4] = b"aiou";

impl NodeId {
    /// The node with this key.
    #[must_use]
    pub fn from_key(key: &[u8; 32]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 node id");
        hasher.update(key);
        Self(hasher.finalize().into())
    }

    /// Twelve digits, for lists and logs. Another key with the same digits can be found by brute force:
    /// nothing is decided by them.
    #[must_use]
    pub fn short_id(&self) -> String {
        let digits = self.0[..SHORT_ID_BYTES]
            .iter()
            .map(|byte| format!("{byte:02x}"));
        digits.collect()
    }

    /// The same bytes as three words that can be read aloud.
    #[must_use]
    pub fn words(&self) -> String {
        let [a, b, c, d, e, f, ..] = self.0;
        three_words([a, b, c, d, e, f])
    }
}

/// The words that two people compare at pairing: equal if and only if both sides have the same two keys,
/// the same secret, and the same name of the joining node.
#[must_use]
pub fn pairing_words(
    inviter: &NodeId,
    joiner: &NodeId,
    name: &NodeName,
    secret: &[u8; 32],
) -> String {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    hasher.update(b"mgp pairing words 2");
    hasher.update(&inviter.0).update(&joiner.0);
    hasher.update(name.as_str().as_bytes());
    let mut bytes = [0; SHORT_ID_BYTES];
    hasher.finalize_xof().fill(&mut bytes);
    three_words(bytes)
}

/// The pairing words with a nonce of each side, which the other side did not know when it committed to its
/// own.
#[must_use]
pub fn pairing_words_with_nonces(
    inviter: &NodeId,
    joiner: &NodeId,
    name: &NodeName,
    secret: &[u8; 32],
    nonces: &WordNonces,
) -> String {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    hasher.update(b"mgp pairing words 3");
    hasher.update(&inviter.0).update(&joiner.0);
    hasher.update(&nonces.inviter.0).update(&nonces.joiner.0);
    hasher.update(name.as_str().as_bytes());
    let mut bytes = [0; SHORT_ID_BYTES];
    hasher.finalize_xof().fill(&mut bytes);
    three_words(bytes)
}

fn three_words(bytes: [u8; SHORT_ID_BYTES]) -> String {
    let words = bytes.chunks_exact(2).map(|two| {
        let number = u16::from_be_bytes([two[0], two[1]]);
        let consonant = |shift: u16| CONSONANTS[usize::from(number >> shift & 15)];
        let vowel = |shift: u16| VOWELS[usize::from(number >> shift & 3)];
        let letters = [
            consonant(12),
            vowel(10),
            consonant(6),
            vowel(4),
            consonant(0),
        ];
        letters.map(char::from).iter().collect::<String>()
    });
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::super::pairing::WordNonce;
    use super::*;

    /// FED-005.
    #[test]
    fn id_is_parsed_in_its_canonical_form_only() {
        let id = NodeId::from_key(&[7; 32]);
        let shown = id.to_string();
        assert_eq!(NodeId::parse(&shown), Some(id));
        assert!(shown.starts_with(&id.short_id()));
        for bad in [
            shown.to_uppercase(),
            shown[1..].to_owned(),
            format!("{shown}0"),
            String::new(),
            id.short_id(),
        ] {
            assert_eq!(NodeId::parse(&bad), None, "{bad}");
        }
    }

    /// FED-005.
    #[test]
    fn every_number_maps_to_its_own_word() {
        let word = |n: u16| {
            let [a, b] = n.to_be_bytes();
            three_words([a, b, 0, 0, 0, 0])
        };
        let words: std::collections::HashSet<String> = (0..=u16::MAX).map(word).collect();
        assert_eq!(words.len(), 1 << 16);
        assert_eq!(word(0), "babab-babab-babab");
        assert_eq!(three_words([0xff; 6]), "zuzuz-zuzuz-zuzuz");
        assert_eq!(NodeId([0x12; 32]).words().len(), 17);
    }

    /// FED-017: a node between the two has another key or no secret, and is detected.
    #[test]
    fn pairing_words_depend_on_keys_name_and_secret() {
        let of = |n: u8| NodeId::from_key(&[n; 32]);
        let name = |name: &str| NodeName::parse(name).unwrap();
        let nas = name("nas");
        let words = pairing_words(&of(1), &of(2), &nas, &[9; 32]);
        assert_eq!(words, pairing_words(&of(1), &of(2), &nas, &[9; 32]));
        let others = [
            pairing_words(&of(3), &of(2), &nas, &[9; 32]),
            pairing_words(&of(1), &of(3), &nas, &[9; 32]),
            pairing_words(&of(2), &of(1), &nas, &[9; 32]),
            pairing_words(&of(1), &of(2), &name("nas-2"), &[9; 32]),
            pairing_words(&of(1), &of(2), &nas, &[8; 32]),
        ];
        assert!(others.iter().all(|other| *other != words));
        let nonces = |inviter: u8, joiner: u8| WordNonces {
            inviter: WordNonce([inviter; 32]),
            joiner: WordNonce([joiner; 32]),
        };
        let pairing_words_with =
            |nonces, name| pairing_words_with_nonces(&of(1), &of(2), name, &[9; 32], &nonces);
        let all = [
            words,
            pairing_words_with(nonces(1, 2), &nas),
            pairing_words_with(nonces(2, 1), &nas),
            pairing_words_with(nonces(1, 1), &nas),
            pairing_words_with(nonces(1, 2), &name("nas-2")),
        ];
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }
}
