//! The nonces in the words of a pairing. Words have 48 bits: an attacker who could choose a name, a key or a secret
//! after everything else is known could find one that gives the words of another pairing. So each side commits to a
//! nonce before either reveals its own.

use mgp_protocol::federation::hello::NodeName;
use mgp_protocol::federation::node_id::pairing_words_with_nonces;
use mgp_protocol::federation::pairing::{WordCommitment, WordNonce, WordNonces};

use super::{PairingEnds, PairingSecret};

/// Most nonces drawn for one ticket at each side: each is one try at words in 2^48, and an honest node needs another
/// one only under another name or after a restart.
pub(crate) const NONCE_DRAWS_MAX: u32 = 64;

/// The side a nonce belongs to. One side's commitment is not valid for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairingSide {
    /// The issuer of the ticket.
    Inviter,
    /// The node that presents it.
    Joiner,
}

impl PairingEnds {
    /// The commitment of one side to its nonce. It is the same over every link, so that a node that reconnects gets
    /// the same words.
    #[must_use]
    pub fn commitment(
        &self,
        side: PairingSide,
        name: &NodeName,
        nonce: &WordNonce,
        secret: &PairingSecret,
    ) -> WordCommitment {
        let label: &[u8] = match side {
            PairingSide::Inviter => b"mgp pairing nonce inviter 1",
            PairingSide::Joiner => b"mgp pairing nonce joiner 1",
        };
        let mut hasher = blake3::Hasher::new_keyed(&secret.0);
        hasher.update(label).update(&nonce.0);
        hasher.update(&self.inviter.0).update(&self.joiner.0);
        hasher.update(name.as_str().as_bytes());
        WordCommitment(hasher.finalize().into())
    }

    /// The words that both sides display once both have revealed their nonces.
    #[must_use]
    pub fn words_with_nonces(
        &self,
        name: &NodeName,
        secret: &PairingSecret,
        nonces: &WordNonces,
    ) -> String {
        pairing_words_with_nonces(&self.inviter, &self.joiner, name, &secret.0, nonces)
    }
}

/// The nonce of a joining node. It is revealed for a single commitment of the inviter, even if the link is lost.
#[derive(Clone, Debug)]
pub struct JoinNonce {
    nonce: WordNonce,
    revealed_to: Option<WordCommitment>,
    draws: u32,
}

/// Why a nonce is not revealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevealError {
    /// The inviter committed to something else before: a new nonce was drawn and must be committed to.
    Redrawn,
    /// That happened too often.
    TooManyDraws,
}

impl JoinNonce {
    /// Starts with this nonce.
    #[must_use]
    pub fn new(nonce: WordNonce) -> Self {
        Self {
            nonce,
            revealed_to: None,
            draws: 1,
        }
    }

    /// The nonce to commit to.
    #[must_use]
    pub fn nonce(&self) -> &WordNonce {
        &self.nonce
    }

    /// Reveals the nonce to an inviter with this commitment.
    ///
    /// # Errors
    /// [`RevealError`]; then `fresh` becomes the nonce.
    pub fn reveal(
        &mut self,
        commitment: &WordCommitment,
        fresh: WordNonce,
    ) -> Result<WordNonce, RevealError> {
        if *self.revealed_to.get_or_insert(*commitment) == *commitment {
            return Ok(self.nonce);
        }
        if self.draws >= NONCE_DRAWS_MAX {
            return Err(RevealError::TooManyDraws);
        }
        *self = Self {
            nonce: fresh,
            revealed_to: None,
            draws: self.draws + 1,
        };
        Err(RevealError::Redrawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joiner_reveals_its_nonce_for_one_commitment_only() {
        let [one, other] = [1, 2].map(|n| WordCommitment([n; 32]));
        let mut own = JoinNonce::new(WordNonce([1; 32]));
        for _ in 0..3 {
            assert_eq!(own.reveal(&one, WordNonce([9; 32])), Ok(WordNonce([1; 32])));
        }
        let redrawn = own.reveal(&other, WordNonce([2; 32]));
        assert_eq!(redrawn, Err(RevealError::Redrawn));
        assert_eq!(
            own.reveal(&other, WordNonce([9; 32])),
            Ok(WordNonce([2; 32]))
        );
        let mut changes = 0;
        let last = loop {
            let commitment = WordCommitment([100 + u8::try_from(changes).unwrap(); 32]);
            match own.reveal(&commitment, WordNonce([3; 32])) {
                Ok(_) | Err(RevealError::Redrawn) => changes += 1,
                Err(last) => break last,
            }
        };
        assert_eq!(last, RevealError::TooManyDraws);
        assert!(changes < 2 * NONCE_DRAWS_MAX, "{changes}");
    }
}
