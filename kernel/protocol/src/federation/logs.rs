//! Messages about the replicated logs: the digest of the logs that a node holds, and the entries, which are
//! signed and relayed unchanged.

use serde::{Deserialize, Serialize};

use super::byte_text::fixed_bytes;
use super::hello::LifeId;
use super::message::{BadMessage, decode, encode};
use super::tool_index::RecordBytes;
use crate::ids::NodeId;

fixed_bytes! {
    /// Sent with a request and returned with its answer.
    LogNonce, 16
}

fixed_bytes! {
    /// The id of an operation, or a hash over several.
    LogHash, 32
}

/// The digest of the logs that a node holds, on the control stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogsDigest {
    /// The reason of the message.
    pub reason: LogsDigestReason,
    /// The run of the sender.
    pub life: LifeId,
    /// The nonce of a request and its answer.
    #[serde(default)]
    pub nonce: Option<LogNonce>,
    /// For a request: how many milliseconds the sender will trust the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// All logs of which the sender has entries, each once.
    pub heads: Vec<LogDigest>,
}

/// Why a node sends its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogsDigestReason {
    /// A request for the receiver's digest.
    Ask,
    /// The answer to a request.
    Answer,
    /// A notification of new entries.
    Tell,
}

/// The state of one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogDigest {
    /// The issuer of the log.
    pub issuer: NodeId,
    /// The number of certain operations.
    pub next: u64,
    /// The id of the last certain operation.
    pub last: LogHash,
    /// A hash over the operations after them.
    #[serde(default)]
    pub behind: Option<LogHash>,
}

/// Signed entries of any logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntries {
    /// In the order in which they can be applied.
    pub entries: Vec<RecordBytes>,
}

impl LogEntries {
    /// Encodes the entries.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes entries.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip_and_truncated_ones_are_rejected() {
        let entries = vec![RecordBytes(vec![1, 2]), RecordBytes(Vec::new())];
        let entries = LogEntries { entries };
        let bytes = entries.encode();
        assert_eq!(LogEntries::decode(&bytes), Ok(entries));
        for cut in 0..bytes.len() {
            assert!(LogEntries::decode(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}
