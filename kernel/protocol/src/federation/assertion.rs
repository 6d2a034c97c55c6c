//! What a node signs to say which of its agents calls.
//!
//! Signed once for each agent and link; a call then names it by its id. It is worth something on one link
//! only: it holds a value that both ends of that link have, and nobody else.

use serde::{Deserialize, Serialize};

use super::byte_text::{any_bytes, fixed_bytes};
use super::message::{BadMessage, decode, encode};
use crate::ids::NodeId;

fixed_bytes! {
    /// Names an assertion on its link: the nonce in it.
    AssertionId, 16
}

fixed_bytes! {
    /// What both ends of one link know, and nobody else: exported from its TLS session.
    LinkBinding, 32
}

/// The label under which a binding is exported.
pub const BINDING_LABEL: &[u8] = b"EXPORTER-mgp-link-binding";

/// What every signed assertion begins with, so that a signature of something else is none of it.
const DOMAIN: &[u8] = b"mgp agent assertion 1\0";

/// The words of an assertion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assertion {
    /// Unique on the link.
    pub id: AssertionId,
    /// The agent, by its id at home.
    pub agent: String,
    /// The node that answers for it, and signs.
    pub home: NodeId,
    /// The node that is to believe it.
    pub owner: NodeId,
    /// The link it is for.
    pub binding: LinkBinding,
    /// When it ends, in milliseconds since 1970 by the clock of its home.
    pub until_ms: u64,
}

/// An assertion as it travels: the signed bytes are never written anew.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedAssertion {
    /// What was signed.
    #[serde(with = "any_bytes")]
    pub bytes: Vec<u8>,
    /// The Ed25519 signature of its home.
    #[serde(with = "any_bytes")]
    pub signature: Vec<u8>,
}

impl Assertion {
    /// The bytes to sign.
    #[must_use]
    pub fn to_signing_bytes(&self) -> Vec<u8> {
        [DOMAIN, &encode(self)].concat()
    }

    /// Reads signed bytes; who signed them is not judged here.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let words = bytes.strip_prefix(DOMAIN);
        decode(words.ok_or_else(|| BadMessage("it is no assertion".to_owned()))?)
    }
}

impl std::fmt::Debug for SignedAssertion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SignedAssertion({} bytes)", self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assertion_is_read_as_it_was_signed_and_nothing_else_is_one() {
        let assertion = Assertion {
            id: AssertionId([1; 16]),
            agent: "agent.alice".to_owned(),
            home: NodeId([2; 32]),
            owner: NodeId([3; 32]),
            binding: LinkBinding([4; 32]),
            until_ms: 5,
        };
        let signed = assertion.to_signing_bytes();
        assert_eq!(Assertion::decode(&signed), Ok(assertion));
        assert!(Assertion::decode(&signed[DOMAIN.len()..]).is_err());
        assert!(Assertion::decode(&[&signed[..], &[0]].concat()).is_err());
    }
}
