//! The key of a node. Others verify its signatures; its id is the hash of the public key.

use std::fmt;

use ed25519_dalek::{Signature as Signed, Signer, SigningKey, VerifyingKey, verify_batch};
use mgp_protocol::ids::NodeId;
use mgp_protocol::ids::hex::digit;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Signatures verified in one batch: twice as fast as one by one. If one is invalid, its batch is verified again one
/// by one.
const BATCH: usize = 256;

/// The private key. Zeroized on drop.
#[derive(Clone)]
pub struct NodeKey(SigningKey);

/// The public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// A signature.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

impl NodeKey {
    /// Takes 32 bytes of good randomness.
    #[must_use]
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(bytes))
    }

    /// Its public key.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// The id of the node whose key this is.
    #[must_use]
    pub fn node_id(&self) -> NodeId {
        self.public_key().node_id()
    }

    /// Signs these bytes.
    #[must_use]
    pub fn sign(&self, bytes: &[u8]) -> Signature {
        Signature(self.0.sign(bytes).to_bytes())
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeKey(of {})", self.node_id())
    }
}

impl PublicKey {
    /// Parses the hexadecimal form it is displayed in.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// The id of the node whose key this is.
    #[must_use]
    pub fn node_id(&self) -> NodeId {
        NodeId::from_key(&self.0)
    }

    /// True when this key signed exactly these bytes.
    #[must_use]
    pub(crate) fn verify(&self, bytes: &[u8], signature: &Signature) -> bool {
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| {
            key.verify_strict(bytes, &Signed::from_bytes(&signature.0))
                .is_ok()
        })
    }
}

/// A signature to be verified.
#[derive(Debug)]
pub struct SignatureClaim {
    /// The claimed signer.
    pub key: PublicKey,
    /// The signed bytes.
    pub bytes: Vec<u8>,
    /// The signature.
    pub signature: Signature,
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The index of the first signature in the list that is not valid.
#[must_use]
pub fn find_invalid_signature(claims: &[SignatureClaim]) -> Option<usize> {
    let chunks = claims.chunks(BATCH).enumerate();
    let mut bad = chunks.filter(|(_, chunk)| !verify_batch_of(chunk));
    bad.find_map(|(chunk, claims)| {
        let holds = |claim: &SignatureClaim| claim.key.verify(&claim.bytes, &claim.signature);
        let at = claims.iter().position(|claim| !holds(claim))?;
        Some(chunk * BATCH + at)
    })
}

fn verify_batch_of(claims: &[SignatureClaim]) -> bool {
    let keys: Result<Vec<_>, _> = claims
        .iter()
        .map(|claim| VerifyingKey::from_bytes(&claim.key.0))
        .collect();
    let bytes: Vec<&[u8]> = claims.iter().map(|claim| claim.bytes.as_slice()).collect();
    let signatures: Vec<_> = claims
        .iter()
        .map(|claim| Signed::from_bytes(&claim.signature.0))
        .collect();
    keys.is_ok_and(|keys| verify_batch(&bytes, &signatures, &keys).is_ok())
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature(…)")
    }
}

macro_rules! as_bytes {
    ($name:ident, $bytes:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_bytes(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Bytes;
                impl Visitor<'_> for Bytes {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "{} bytes", $bytes)
                    }

                    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<$name, E> {
                        let bytes = bytes.try_into();
                        bytes
                            .map($name)
                            .map_err(|_| E::custom("the wrong number of bytes"))
                    }
                }
                from.deserialize_bytes(Bytes)
            }
        }
    };
}

as_bytes!(PublicKey, 32);
as_bytes!(Signature, 64);

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(key: &NodeKey, n: usize) -> SignatureClaim {
        let bytes = format!("operation {n}").into_bytes();
        SignatureClaim {
            key: key.public_key(),
            signature: key.sign(&bytes),
            bytes,
        }
    }

    #[test]
    fn what_a_key_signed_is_known_by_its_public_half() {
        let (key, other) = (NodeKey::new(&[1; 32]), NodeKey::new(&[2; 32]));
        let signature = key.sign(b"grant");
        assert!(key.public_key().verify(b"grant", &signature));
        assert!(!key.public_key().verify(b"grans", &signature));
        assert!(!other.public_key().verify(b"grant", &signature));
        assert_ne!(key.node_id(), other.node_id());
        assert!(!format!("{key:?}").contains("0101"));
    }

    #[test]
    fn of_many_signatures_the_first_bad_one_is_named() {
        let key = NodeKey::new(&[1; 32]);
        let mut claims: Vec<SignatureClaim> = (0..600).map(|n| claim(&key, n)).collect();
        assert_eq!(find_invalid_signature(&claims), None);
        claims[520].bytes[0] ^= 1;
        claims[300].signature.0[3] ^= 1;
        assert_eq!(find_invalid_signature(&claims), Some(300));
        claims[300] = claim(&key, 300);
        assert_eq!(find_invalid_signature(&claims), Some(520));
        assert_eq!(find_invalid_signature(&[]), None);
    }
}
