//! What two nodes say to each other while one of them is let in.
//!
//! Who asks shows that it has the ticket's secret, over what both ends of this one link know; the answer shows
//! the same of who made the ticket. Both commit to a nonce before they reveal it, where both know how: the words
//! that people compare are made of them. Then a person decides, and what the new node needs comes in parts.

use serde::{Deserialize, Serialize};

use super::byte_text::{any_bytes, fixed_bytes};
use super::hello::{NodeName, ReportedRole};
use super::message::{BadMessage, decode, encode};
use super::tool_index::RecordBytes;

fixed_bytes! {
    /// Which ticket: made of its secret, which it does not tell.
    TicketId, 8
}

fixed_bytes! {
    /// Shows that its sender has the secret.
    PairingProof, 32
}

fixed_bytes! {
    /// What one side adds to the words, so that the other one cannot choose them.
    WordNonce, 32
}

fixed_bytes! {
    /// Shows later that its sender had its [`WordNonce`] before it knew the other one.
    WordCommitment, 32
}

/// The nonces of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordNonces {
    /// Of who made the ticket.
    pub inviter: WordNonce,
    /// Of who shows it.
    pub joiner: WordNonce,
}

/// Bytes of one part: it fits a message with all around it.
pub(crate) const PART: usize = 3 << 10;

/// Most bytes of all parts.
pub const PARTS_MAX: usize = 1 << 20;

/// Longest reason in a refusal that is read.
const REASON_MAX: usize = 512;

/// A message of a pairing: a map of `kind` and `body`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
pub enum PairingMessage {
    /// Asks to be let in.
    Ask(PairingAsk),
    /// It was heard; a person decides.
    Heard(PairingProof),
    /// The ticket is good, and this side has committed, too: to who has sent a commitment, in place of `Heard`.
    Committed(PairingCommitted),
    /// The nonce of a commitment. The joiner reveals first.
    Reveal(WordNonce),
    /// No.
    Refused(String),
    /// Yes: the next part of [`WelcomeBundle`].
    Part(WelcomePart),
    /// The new node has all of it.
    Taken,
}

/// Asks to be let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairingAsk {
    /// With this ticket.
    pub ticket: TicketId,
    /// What the node wants to be called.
    pub name: NodeName,
    /// That it has the secret.
    pub proof: PairingProof,
    /// To its nonce. An older node sends none, and knows no other words than those without nonces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commitment: Option<WordCommitment>,
}

/// Answers a commitment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairingCommitted {
    /// That it has the secret.
    pub proof: PairingProof,
    /// To its nonce.
    pub commitment: WordCommitment,
}

/// Some bytes of a [`WelcomeBundle`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WelcomePart {
    /// The bytes.
    #[serde(with = "any_bytes")]
    pub bytes: Vec<u8>,
    /// Others follow.
    pub more: bool,
}

/// What a new node gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WelcomeBundle {
    /// The hash of the founding entry.
    #[serde(with = "any_bytes")]
    pub cluster: Vec<u8>,
    /// What the node is called from now on.
    pub name: NodeName,
    /// What it may do.
    pub role: ReportedRole,
    /// Entries of the logs, the founding one first.
    pub entries: Vec<RecordBytes>,
}

impl PairingMessage {
    /// As on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let mut message = decode(bytes)?;
        if let Self::Refused(reason) = &mut message {
            let shown = reason.chars().filter(|c| !c.is_control());
            *reason = shown.take(REASON_MAX).collect();
        }
        Ok(message)
    }
}

impl WelcomeBundle {
    /// In parts.
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

    /// Reads all parts together.
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
    fn a_welcome_comes_in_parts_that_fit_and_is_read_as_it_was() {
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

    /// What a node that knows no nonces sends and reads.
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
    fn an_older_node_reads_a_commitment_as_if_there_were_none() {
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

    /// What a stranger writes for people does not move their cursor.
    #[test]
    fn a_reason_is_plain_text_of_a_bounded_length() {
        let long = format!("no\u{1b}[2J{}", "a".repeat(2000));
        let read = PairingMessage::decode(&PairingMessage::Refused(long).encode());
        let Ok(PairingMessage::Refused(reason)) = read else {
            panic!("{read:?}");
        };
        assert!(reason.starts_with("no[2J") && reason.len() == REASON_MAX);
    }
}
