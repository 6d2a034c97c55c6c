//! The messages of pairing, by which a node joins.
//!
//! The joining node proves that it has the ticket's secret, bound to a value that only both ends of this
//! link know; the inviter proves the same. Both commit to a nonce before they reveal it, if both support
//! that: the words that people compare are derived from the nonces. Then a person decides, and the
//! admission is sent in parts.

use serde::{Deserialize, Serialize};

use super::byte_text::{any_bytes, fixed_bytes};
use super::hello::{NodeName, ReportedRole};
use super::message::{BadMessage, decode, encode};
use super::tool_index::RecordBytes;

fixed_bytes! {
    /// The id of a ticket: derived from its secret, without revealing it.
    TicketId, 8
}

fixed_bytes! {
    /// Proves that its sender has the secret.
    PairingProof, 32
}

fixed_bytes! {
    /// The contribution of one side to the words, so that the other one cannot choose them.
    WordNonce, 32
}

fixed_bytes! {
    /// Proves later that its sender had its [`WordNonce`] before it knew the other one.
    WordCommitment, 32
}

/// The nonces of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordNonces {
    /// The nonce of the ticket's creator.
    pub inviter: WordNonce,
    /// The nonce of the joining node.
    pub joiner: WordNonce,
}

/// The bytes of one part: it fits a message with its envelope.
pub(crate) const PART: usize = 3 << 10;

/// The most bytes of all parts.
pub const PARTS_MAX: usize = 1 << 20;

/// The longest accepted reason of a refusal.
const REASON_MAX: usize = 512;

/// A message of a pairing: a map of `kind` and `body`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
pub enum PairingMessage {
    /// Requests admission.
    Ask(PairingAsk),
    /// The request was accepted; a person decides.
    Heard(PairingProof),
    /// The ticket is valid, and this side has committed, too: in place of `Heard`, for a sender of a
    /// commitment.
    Committed(PairingCommitted),
    /// The nonce of a commitment. The joining node reveals first.
    Reveal(WordNonce),
    /// The request was denied, with the reason.
    Refused(String),
    /// The request was approved: the next part of [`WelcomeBundle`].
    Part(WelcomePart),
    /// The new node has received all parts.
    Taken,
}

/// A request for admission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairingAsk {
    /// The ticket.
    pub ticket: TicketId,
    /// The requested name of the node.
    pub name: NodeName,
    /// The proof of the secret.
    pub proof: PairingProof,
    /// The commitment to its nonce. An older node sends none, and derives words without nonces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commitment: Option<WordCommitment>,
}

/// The answer to a commitment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairingCommitted {
    /// The proof of the secret.
    pub proof: PairingProof,
    /// The commitment to its nonce.
    pub commitment: WordCommitment,
}

/// A part of a [`WelcomeBundle`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WelcomePart {
    /// The bytes.
    #[serde(with = "any_bytes")]
    pub bytes: Vec<u8>,
    /// True if more parts follow.
    pub more: bool,
}

/// The data that a new node gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WelcomeBundle {
    /// The hash of the founding entry.
    #[serde(with = "any_bytes")]
    pub cluster: Vec<u8>,
    /// The name of the node.
    pub name: NodeName,
    /// Its role.
    pub role: ReportedRole,
    /// Entries of the logs, the founding one first.
    pub entries: Vec<RecordBytes>,
}

impl PairingMessage {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let mut message = decode(bytes)?;
        if let Self::Refused(reason) = &mut message {
            let printable = reason.chars().filter(|c| !c.is_control());
            *reason = printable.take(REASON_MAX).collect();
        }
        Ok(message)
    }
}

impl WelcomeBundle {
    /// Splits the bundle into parts.
    #[must_use]
    pub fn to_parts(&self) -> Vec<PairingMessage> {
        let bytes = encode(self);
        let count = bytes.len().div_ceil(PART);
        let parts = (1..).zip(bytes.chunks(PART)).map(|(at, bytes)| {
            let (bytes, more) = (bytes.to_vec(), at < count);
            PairingMessage::Part(WelcomePart { bytes, more })
        });
        parts.collect()
    }

    /// Decodes the joined parts.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::PAIRING_BODY;
    use super::*;

    #[test]
    fn welcome_round_trips_in_parts() {
        let book = WelcomeBundle {
            cluster: vec![1; 32],
            name: NodeName::parse("nas").unwrap(),
            role: ReportedRole::Leaf,
            entries: vec![RecordBytes(vec![7; 5000]), RecordBytes(vec![8; 100])],
        };
        let mut read = Vec::new();
        for part in book.to_parts() {
            let bytes = part.encode();
            assert!(bytes.len() <= PAIRING_BODY);
            assert_eq!(PairingMessage::decode(&bytes), Ok(part.clone()));
            let PairingMessage::Part(part) = part else {
                panic!("{part:?}");
            };
            assert_eq!(part.more, read.len() < PART);
            read.extend(part.bytes);
        }
        assert_eq!(WelcomeBundle::decode(&read), Ok(book));
    }

    /// The messages of a version without nonces.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "kind", content = "body", rename_all = "snake_case")]
    enum OlderMessage {
        Ask {
            ticket: TicketId,
            name: NodeName,
            proof: PairingProof,
        },
    }

    #[test]
    fn older_node_ignores_a_commitment() {
        let (ticket, proof) = (TicketId([1; 8]), PairingProof([2; 32]));
        let name = NodeName::parse("nas").unwrap();
        let older = OlderMessage::Ask {
            ticket,
            name: name.clone(),
            proof,
        };
        let ask = |commitment| {
            PairingMessage::Ask(PairingAsk {
                ticket,
                name: name.clone(),
                proof,
                commitment,
            })
        };
        let newer = ask(Some(WordCommitment([3; 32])));
        assert_eq!(PairingMessage::decode(&newer.encode()), Ok(newer.clone()));
        assert_eq!(decode(&newer.encode()), Ok(older));
        let older = encode(&OlderMessage::Ask {
            ticket,
            name: name.clone(),
            proof,
        });
        assert_eq!(older, ask(None).encode());
        assert_eq!(PairingMessage::decode(&older), Ok(ask(None)));
    }

    /// A refusal of an unknown node contains no control characters.
    #[test]
    fn reason_is_sanitized_and_truncated() {
        let long = format!("no\u{1b}[2J{}", "a".repeat(2000));
        let read = PairingMessage::decode(&PairingMessage::Refused(long).encode());
        let Ok(PairingMessage::Refused(reason)) = read else {
            panic!("{read:?}");
        };
        assert!(reason.starts_with("no[2J") && reason.len() == REASON_MAX);
    }
}
