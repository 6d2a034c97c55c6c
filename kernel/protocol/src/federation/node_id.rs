//! Who a node is: the hash of its public key.

use super::hello::NodeName;
use super::pairing::WordNonces;
use crate::ids::NodeId;

/// Bytes of an id that people are shown: enough to tell one's own nodes apart, too few to decide by.
const SHORT_ID_BYTES: usize = 6;

/// The sounds that words are made of: two consonants can hardly be misheard for each other, no word
/// needs a list to be read, and none has a licence.
const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
const VOWELS: &[u8; 4] = b"aiou";

impl NodeId {
    /// The node whose key this is.
    #[must_use]
    pub fn from_key(key: &[u8; 32]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 node id");
        hasher.update(key);
        Self(hasher.finalize().into())
    }

    /// Twelve digits, for lists and logs. Somebody who tries long enough finds a key with the same
    /// ones: nothing is decided by them.
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

/// What two people compare when two nodes are paired: both see the same words if and only if both have
/// the same two keys, the same secret, and the same name for the one that joins.
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

/// The same with a nonce of each side, which nobody knew when the other one was committed to.
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
    fn an_id_is_read_as_it_is_shown_and_in_no_other_way() {
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
    fn every_number_is_a_word_of_its_own() {
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

    /// FED-017: whoever sits between two nodes has a key or no secret, and is seen.
    #[test]
    fn the_words_of_a_pairing_depend_on_both_keys_the_name_and_the_secret() {
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
        let with =
            |nonces, name| pairing_words_with_nonces(&of(1), &of(2), name, &[9; 32], &nonces);
        let all = [
            words,
            with(nonces(1, 2), &nas),
            with(nonces(2, 1), &nas),
            with(nonces(1, 1), &nas),
            with(nonces(1, 2), &name("nas-2")),
        ];
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }
}
