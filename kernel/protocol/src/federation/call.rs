//! The header of a call, and what the called node may answer by itself.
//!
//! A call is a stream: its header and parameters, relayed messages both ways, and one last frame. The
//! stream is the call's name between the two nodes; to cancel is to reset it.

pub mod owner_refusal;
pub mod timings;

use serde::{Deserialize, Serialize};

use super::assertion::{AssertionId, SignedAssertion};
use super::byte_text::fixed_bytes;
use super::message::{BadMessage, decode, encode, to_printable};
use crate::ids::ServerId;
use crate::refusal::CallOutcome;

fixed_bytes! {
    /// Names a call for as long as anybody may ask what became of it.
    CallTag, 16
}

/// Links a call may pass: what a node imports it never exports, so there are no loops.
pub const MAX_HOPS: u8 = 1;

/// Longest a call may take: a day, as long as a task may be asked about.
pub const MAX_CALL_MS: u64 = 24 * 60 * 60 * 1000;

/// Longest method, and longest trace, in bytes.
const TEXT_MAX: usize = 128;

/// Longest reason of a refusal that is read, in bytes.
const REASON_MAX: usize = 512;

/// The first frame of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallHeader {
    /// The method, as the agent called it.
    pub method: String,
    /// The server of the called node that it is for, where the method is for one.
    #[serde(default)]
    pub server: Option<String>,
    /// By which it can be asked about later.
    pub tag: CallTag,
    /// The caller's own number of the request: what messages that belong to the call name it by.
    #[serde(default)]
    pub request: u64,
    /// The trace it belongs to: by it the records of the call are found in the audit logs of both nodes.
    pub trace: String,
    /// The agent that calls; without, it is the node itself.
    #[serde(default)]
    pub assertion: Option<AssertionId>,
    /// The assertion itself, until the called node has shown that it has it.
    #[serde(default)]
    pub signed: Option<SignedAssertion>,
    /// The agent speaks a version with sessions: a question that it cannot be asked is answered to the server with an
    /// error, as at the agent's own node. Older nodes do not read it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_session: bool,
    /// Links it has passed, this one included.
    pub hops: u8,
    /// What is left of its time when it is sent, in milliseconds: no clock has to be the same.
    pub left_ms: u64,
}

impl CallHeader {
    /// As on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads a header and judges all of it that needs no state.
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
        if let Some(Err(bad)) = header.server.as_deref().map(ServerId::parse) {
            return malformed(&bad.to_string());
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

/// What the called node answers by itself, in the place of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum CallRejection {
    /// The server answered, and the answer is too large for a frame.
    #[error("the answer of {size} bytes is too large for a link, which carries {limit}")]
    AnswerTooLarge {
        /// Bytes of the answer.
        size: u64,
        /// Bytes a frame may have.
        limit: u64,
    },
    /// The parameters are too large for a frame.
    #[error("a call of {size} bytes is too large for a link, which carries {limit}")]
    CallTooLarge {
        /// Bytes of the call.
        size: u64,
        /// Bytes a frame may have.
        limit: u64,
    },
    /// The assertion is not known, or no longer: send the call again with the assertion itself.
    #[error("the node does not know which agent calls")]
    UnknownAssertion,
    /// The assertion is not believed.
    #[error("the node does not believe which agent calls: {why}")]
    BadAssertion {
        /// Why not.
        why: String,
    },
    /// It has passed other nodes already.
    #[error("a call that came from another node is not passed on")]
    TooManyHops,
    /// As many calls as there is room for are under way.
    #[error("the node has no room for another call")]
    Busy,
    /// Its time was over before it began.
    #[error("its time was over before it began")]
    Late,
    /// It cannot be read.
    #[error("the node cannot read the call: {why}")]
    Malformed {
        /// Why not.
        why: String,
    },
    /// The node shuts down, and began nothing of it. Sent to nodes with
    /// [`SHUTDOWN`](super::hello::WireFeatures::SHUTDOWN).
    #[error("the node is shutting down")]
    ShuttingDown,
    /// A reason of a later version.
    #[error("the node refused it for a reason this version does not know")]
    #[serde(other)]
    Unknown,
}

impl CallRejection {
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
        let mut refused = decode(bytes)?;
        if let Self::BadAssertion { why } | Self::Malformed { why } = &mut refused {
            // A peer wrote it, and people read it.
            *why = to_printable(why, REASON_MAX);
        }
        Ok(refused)
    }

    /// Whether the call took effect all the same.
    #[must_use]
    pub(crate) fn outcome(&self) -> CallOutcome {
        match self {
            Self::AnswerTooLarge { .. } => CallOutcome::Done,
            Self::Unknown => CallOutcome::Unknown,
            Self::CallTooLarge { .. }
            | Self::UnknownAssertion
            | Self::BadAssertion { .. }
            | Self::TooManyHops
            | Self::Busy
            | Self::Late
            | Self::ShuttingDown
            | Self::Malformed { .. } => CallOutcome::NotExecuted,
        }
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
    fn a_header_is_read_as_it_was_written() {
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

    /// FED-065.
    #[test]
    fn a_header_is_judged_before_anything_is_done() {
        let judged = |change: fn(&mut CallHeader)| {
            let mut header = header();
            change(&mut header);
            CallHeader::decode(&header.encode())
                .map(|_| ())
                .unwrap_err()
        };
        assert_eq!(judged(|h| h.hops = 2), CallRejection::TooManyHops);
        assert_eq!(judged(|h| h.hops = 0), CallRejection::TooManyHops);
        assert_eq!(judged(|h| h.left_ms = 0), CallRejection::Late);
        let malformed: [fn(&mut CallHeader); 5] = [
            |h| h.left_ms = u64::MAX,
            |h| h.method.clear(),
            |h| h.method = "a\nb".to_owned(),
            |h| h.trace = "x".repeat(129),
            |h| h.server = Some("../x".to_owned()),
        ];
        for change in malformed {
            let refused = judged(change);
            assert!(
                matches!(refused, CallRejection::Malformed { .. }),
                "{refused}"
            );
            assert_eq!(refused.outcome(), CallOutcome::NotExecuted);
        }
    }

    /// What was done is never told as undone, and a reason of a later version as nothing that is known.
    #[test]
    fn a_refusal_says_whether_the_call_took_effect() {
        let (size, limit) = (17, 16);
        let large = CallRejection::AnswerTooLarge { size, limit };
        assert_eq!(CallRejection::decode(&large.encode()), Ok(large.clone()));
        assert_eq!(large.outcome(), CallOutcome::Done);
        let why = format!("no\u{1b}[2J\n{}", "x".repeat(100_000));
        let shown = CallRejection::decode(&CallRejection::BadAssertion { why }.encode());
        let shown = shown.unwrap().to_string();
        assert!(shown.len() < 1000 && shown.contains("no\\u{1b}[2J\\u{a}xx"));
        let later = b"\x82\xa4code\xa6paused\xa5until\x05";
        assert_eq!(CallRejection::decode(later), Ok(CallRejection::Unknown));
        assert_eq!(CallRejection::Unknown.outcome(), CallOutcome::Unknown);
    }
}
