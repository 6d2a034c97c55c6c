//! The header of a call, and the rejections by the called node itself.
//!
//! A call is a stream: its header and parameters, relayed messages both ways, and one last frame. The
//! stream identifies the call between the two nodes; a reset cancels it.

pub mod owner_refusal;
pub mod timings;

use serde::{Deserialize, Serialize};

use super::assertion::{AssertionId, SignedAssertion};
use super::byte_text::fixed_bytes;
use super::message::{BadMessage, decode, encode, to_printable};
use crate::ids::ServerId;

fixed_bytes! {
    /// Identifies a call as long as its outcome may be queried.
    CallTag, 16
}

/// The most links a call may pass: imported servers are never exported, so there are no loops.
pub const MAX_HOPS: u8 = 1;

/// The longest time of a call: a day, as long as a task may be queried.
pub const MAX_CALL_MS: u64 = 24 * 60 * 60 * 1000;

/// The longest method and trace, in bytes.
const TEXT_MAX: usize = 128;

/// The longest accepted reason of a rejection, in bytes.
const REASON_MAX: usize = 512;

/// The first frame of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallHeader {
    /// The method.
    pub method: String,
    /// The server of the called node, if the method is for one.
    #[serde(default)]
    pub server: Option<String>,
    /// The tag by which its outcome can be queried later.
    pub tag: CallTag,
    /// The caller's own number of the request, to which messages of the call refer.
    #[serde(default)]
    pub request: u64,
    /// The trace, by which the records of the call are found in the audit logs of both nodes.
    pub trace: String,
    /// The calling agent; `None` for the node itself.
    #[serde(default)]
    pub assertion: Option<AssertionId>,
    /// The signed assertion, until the called node has confirmed it.
    #[serde(default)]
    pub signed: Option<SignedAssertion>,
    /// The agent uses a version with sessions: a callback that it does not support is answered to the
    /// server with an error, as on the agent's own node. Older nodes ignore it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_session: bool,
    /// The links it has passed, this one included.
    pub hops: u8,
    /// Its remaining time when it is sent, in milliseconds: independent of clocks.
    pub left_ms: u64,
}

impl CallHeader {
    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes a header and validates all of it that needs no state.
    ///
    /// # Errors
    /// [`CallRejection`], to be sent back.
    pub fn decode(bytes: &[u8]) -> Result<Self, CallRejection> {
        let header: Self =
            decode(bytes).map_err(|BadMessage(why)| CallRejection::Malformed { why })?;
        let malformed = |why: &str| {
            let why = why.to_owned();
            Err(CallRejection::Malformed { why })
        };
        let visible = |text: &str| {
            let len = text.len();
            (1..=TEXT_MAX).contains(&len) && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !visible(&header.method) {
            return malformed("its method is none");
        }
        if !visible(&header.trace) {
            return malformed("its trace is none");
        }
        if let Some(Err(error)) = header.server.as_deref().map(ServerId::parse) {
            return malformed(&error.to_string());
        }
        if header.hops != MAX_HOPS {
            return Err(CallRejection::TooManyHops);
        }
        if header.left_ms == 0 {
            return Err(CallRejection::Late);
        }
        if header.left_ms > MAX_CALL_MS {
            return malformed("it may take longer than a day");
        }
        Ok(header)
    }
}

/// A rejection by the called node itself, in place of its server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum CallRejection {
    /// The server answered, and the answer is too large for a frame.
    #[error("the answer of {size} bytes is too large for a link, which carries {limit}")]
    AnswerTooLarge {
        /// The bytes of the answer.
        size: u64,
        /// The most bytes of a frame.
        limit: u64,
    },
    /// The parameters are too large for a frame.
    #[error("a call of {size} bytes is too large for a link, which carries {limit}")]
    CallTooLarge {
        /// The bytes of the call.
        size: u64,
        /// The most bytes of a frame.
        limit: u64,
    },
    /// The assertion is not known: send the call again with the signed assertion.
    #[error("the node does not know which agent calls")]
    UnknownAssertion,
    /// The assertion is invalid.
    #[error("the node does not believe which agent calls: {why}")]
    BadAssertion {
        /// The reason.
        why: String,
    },
    /// It has passed too many nodes.
    #[error("a call that came from another node is not passed on")]
    TooManyHops,
    /// The limit of in-flight calls is reached.
    #[error("the node has no room for another call")]
    Busy,
    /// Its time had passed before it started.
    #[error("its time was over before it began")]
    Late,
    /// It is malformed.
    #[error("the node cannot read the call: {why}")]
    Malformed {
        /// The reason.
        why: String,
    },
    /// The node shuts down, and did not start the call. Sent to nodes with
    /// [`SHUTDOWN`](super::hello::WireFeatures::SHUTDOWN).
    #[error("the node is shutting down")]
    ShuttingDown,
    /// A reason of a later version.
    #[error("the node refused it for a reason this version does not know")]
    #[serde(other)]
    Unknown,
}

impl CallRejection {
    /// Encodes the rejection.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes a rejection.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let mut refused = decode(bytes)?;
        if let Self::BadAssertion { why } | Self::Malformed { why } = &mut refused {
            // A peer wrote it, and it is shown to people.
            *why = to_printable(why, REASON_MAX);
        }
        Ok(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> CallHeader {
        CallHeader {
            method: "tools/call".to_owned(),
            server: Some("files".to_owned()),
            tag: CallTag([1; 16]),
            request: 9,
            trace: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
            assertion: Some(AssertionId([2; 16])),
            signed: None,
            has_session: false,
            hops: 1,
            left_ms: 30_000,
        }
    }

    #[test]
    fn header_round_trips() {
        let mut full = header();
        full.signed = Some(SignedAssertion {
            bytes: vec![1, 2, 3],
            signature: vec![4; 64],
        });
        full.has_session = true;
        for header in [header(), full] {
            assert_eq!(CallHeader::decode(&header.encode()), Ok(header));
        }
    }

    /// FED-065: an invalid header is rejected before anything is executed.
    #[test]
    fn header_is_validated_when_decoded() {
        let rejection_of = |change: fn(&mut CallHeader)| {
            let mut header = header();
            change(&mut header);
            CallHeader::decode(&header.encode())
                .map(|_| ())
                .unwrap_err()
        };
        assert_eq!(rejection_of(|h| h.hops = 2), CallRejection::TooManyHops);
        assert_eq!(rejection_of(|h| h.hops = 0), CallRejection::TooManyHops);
        assert_eq!(rejection_of(|h| h.left_ms = 0), CallRejection::Late);
        let malformed: [fn(&mut CallHeader); 5] = [
            |h| h.left_ms = u64::MAX,
            |h| h.method.clear(),
            |h| h.method = "a\nb".to_owned(),
            |h| h.trace = "x".repeat(129),
            |h| h.server = Some("../x".to_owned()),
        ];
        for change in malformed {
            let refused = rejection_of(change);
            assert!(
                matches!(refused, CallRejection::Malformed { .. }),
                "{refused}"
            );
        }
    }

    /// A rejection reads as it was written, its text sanitized; an unknown one decides nothing.
    #[test]
    fn rejection_survives_the_wire_sanitized() {
        let (size, limit) = (17, 16);
        let large = CallRejection::AnswerTooLarge { size, limit };
        assert_eq!(CallRejection::decode(&large.encode()), Ok(large.clone()));
        let why = format!("no\u{1b}[2J\n{}", "x".repeat(100_000));
        let shown = CallRejection::decode(&CallRejection::BadAssertion { why }.encode());
        let shown = shown.unwrap().to_string();
        assert!(shown.len() < 1000 && shown.contains("no\\u{1b}[2J\\u{a}xx"));
        let later = b"\x82\xa4code\xa6paused\xa5until\x05";
        assert_eq!(CallRejection::decode(later), Ok(CallRejection::Unknown));
    }
}
