//! Signed assertions, by which a node states which of its agents calls.
//!
//! An assertion is signed once for each agent and link; a call then refers to it by its id. It is valid on
//! one link only, because it contains a value that only both ends of that link know.

use serde::{Deserialize, Serialize};

use super::byte_text::{any_bytes, fixed_bytes};
use super::message::{BadMessage, decode, encode};
use crate::ids::NodeId;

fixed_bytes! {
    /// The id of an assertion on its link: its nonce.
    AssertionId, 16
}

fixed_bytes! {
    /// A value that only both ends of one link know: exported from its TLS session.
    LinkBinding, 32
}

/// The label for exporting a binding.
pub const BINDING_LABEL: &[u8] = b"EXPORTER-mgp-link-binding";

/// The prefix of every signed assertion, for domain separation of signatures.
const DOMAIN: &[u8] = b"mgp agent assertion 1\0";

/// The content of an assertion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assertion {
    /// Unique on the link.
    pub id: AssertionId,
    /// The agent, by its id on its own node.
    pub agent: String,
    /// The node of the agent, which signs.
    pub home: NodeId,
    /// The node that verifies the assertion.
    pub owner: NodeId,
    /// The binding of its link.
    pub binding: LinkBinding,
    /// The expiry, in milliseconds since 1970 by the clock of the signing node.
    pub until_ms: u64,
}

/// A signed assertion on the wire: the signed bytes are never encoded again.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedAssertion {
    /// The signed bytes.
    #[serde(with = "any_bytes")]
    pub bytes: Vec<u8>,
    /// The Ed25519 signature of the agent's node.
    #[serde(with = "any_bytes")]
    pub signature: Vec<u8>,
}

impl Assertion {
    /// The bytes to sign.
    #[must_use]
    pub fn to_signing_bytes(&self) -> Vec<u8> {
        [DOMAIN, &encode(self)].concat()
    }

    /// Decodes signed bytes; does not verify the signature.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let content = bytes.strip_prefix(DOMAIN);
        decode(content.ok_or_else(|| BadMessage("it is no assertion".to_owned()))?)
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
    fn assertion_round_trips_and_other_bytes_are_rejected() {
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
