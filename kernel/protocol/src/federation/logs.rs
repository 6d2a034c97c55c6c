//! What nodes say to each other of the logs of their cluster: who has how much of which log, and the entries
//! themselves, which are signed and travel as they were written.

use serde::{Deserialize, Serialize};

use super::byte_text::fixed_bytes;
use super::hello::LifeId;
use super::message::{BadMessage, decode, encode};
use super::tool_index::RecordBytes;
use crate::ids::NodeId;

fixed_bytes! {
    /// Sent with a question and back with its answer.
    LogNonce, 16
}

fixed_bytes! {
    /// The id of an operation, or a hash over several.
    LogHash, 32
}

/// What a node says of the logs it holds, on the control stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogsDigest {
    /// What it is said for.
    pub reason: LogsDigestReason,
    /// The life of the sender.
    pub life: LifeId,
    /// Of a question and its answer.
    #[serde(default)]
    pub nonce: Option<LogNonce>,
    /// Of a question: for how many milliseconds the sender is going to believe the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// All logs of which the sender has something, each once.
    pub heads: Vec<LogDigest>,
}

/// Why a node says what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogsDigestReason {
    /// It asks for the same of the receiver, to be answered at once.
    Ask,
    /// It was asked.
    Answer,
    /// It has something new.
    Tell,
}

/// How much of a log a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogDigest {
    /// Whose log it is.
    pub issuer: NodeId,
    /// How many operations of it are certain.
    pub next: u64,
    /// The id of the last of those.
    pub last: LogHash,
    /// Over what lies behind them.
    #[serde(default)]
    pub behind: Option<LogHash>,
}

/// Entries of any logs, as they were signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntries {
    /// In the order in which they can be taken.
    pub entries: Vec<RecordBytes>,
}

impl LogEntries {
    /// As on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads them.
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
    fn entries_are_read_as_they_were_written_and_no_part_of_them_is() {
        let entries = vec![RecordBytes(vec![1, 2]), RecordBytes(Vec::new())];
        let entries = LogEntries { entries };
        let bytes = entries.encode();
        assert_eq!(LogEntries::decode(&bytes), Ok(entries));
        for cut in 0..bytes.len() {
            assert!(LogEntries::decode(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}
