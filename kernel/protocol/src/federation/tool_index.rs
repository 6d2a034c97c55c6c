//! The index of the tools that a node shares: its digest, and the pulls by which another node updates its
//! copy.
//!
//! A pull begins where the last page ended. Pages are in the order of changes, each entry at its last
//! change, so that a concurrent change comes later and a pull never has to restart because of it.

use serde::{Deserialize, Serialize};

use super::byte_text::{any_bytes, fixed_bytes};
use super::message::{BadMessage, decode, encode};
use crate::mgp::discovery::Status;

fixed_bytes! {
    /// A hash over all entries of an index in their order.
    IndexRoot, 32
}

/// The longest reason in a report, in bytes.
const REASON_MAX: usize = 512;
/// The most entries named in one report; the others are counted.
pub const EXAMPLES_MAX: usize = 16;

/// The digest of an index as visible to one peer. Epochs are compared for equality, never ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDigest {
    /// Changes when the owner restarts and when the peer's permissions change.
    pub epoch: u64,
    /// The number of the last change.
    pub version: u64,
    /// The hash over all entries.
    pub root: IndexRoot,
}

/// Requests the next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullIndex {
    /// Returned with the page.
    pub number: u64,
    /// The epoch of the requester's copy.
    pub epoch: u64,
    /// The last change in the copy; 0 restarts.
    pub after: u64,
    /// The root of the copy, if it is complete.
    pub root: Option<IndexRoot>,
}

/// A page of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexPage {
    /// The number of the pull.
    pub number: u64,
    /// The epoch of the owner's index.
    pub epoch: u64,
    /// The start of the page: as requested, or 0 if only a complete copy is possible.
    pub after: u64,
    /// The last change in it.
    pub upto: u64,
    /// The current digest: with `upto` at its version, the copy is complete.
    pub digest: IndexDigest,
    /// Entries in the order of their last changes.
    pub changes: Vec<IndexChange>,
}

/// The current state of an entry, or its removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexChange {
    /// The server.
    pub server: String,
    /// The server's own name of the tool; `None` for the entry of the server.
    pub tool: Option<String>,
    /// A [`ServerRecord`] or [`ToolRecord`] as encoded by its owner; `None` if removed. Hashes are over
    /// these bytes.
    pub record: Option<RecordBytes>,
}

/// The bytes of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordBytes(#[serde(with = "any_bytes")] pub Vec<u8>);

/// Why a pull returned no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullFailure {
    /// The owner is busy: try again after so many milliseconds.
    Later(u64),
    /// The link or its stream was lost, or the answer was late.
    Lost,
}

/// A shared server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// Its state on its owner.
    pub state: Status,
    /// The hash of its specification; equal for replicas.
    #[serde(default)]
    pub specification: Option<IndexRoot>,
    /// Its owner marked it as one of several replicas.
    #[serde(default)]
    pub replica: bool,
    /// It stores state of its callers between calls.
    #[serde(default)]
    pub stateful: bool,
    /// Its owner is starting it: its tools are those of the last run until it lists them again. Omitted if
    /// false, like owners of earlier versions do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starting: bool,
}

/// A shared tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolRecord {
    /// The definition, as sent by the server.
    pub definition: String,
    /// The hash of its schemas.
    pub schemas: IndexRoot,
    /// The owner's operator confirmed that it is idempotent.
    #[serde(default)]
    pub idempotent: bool,
    /// Its embedding.
    #[serde(default)]
    pub vector: Option<ToolVector>,
}

/// An embedding, and its model: embeddings of different models cannot be compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolVector {
    /// The model's id.
    pub model: String,
    /// The scale of the numbers.
    pub unit: f32,
    /// Numbers from -127 to 127, a byte each.
    #[serde(with = "any_bytes")]
    pub numbers: Vec<u8>,
}

/// The entries of an index that a peer rejected, for people on both sides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexReport {
    /// The number of rejected entries.
    pub refused: u64,
    /// Examples.
    pub examples: Vec<RefusedEntry>,
}

/// A rejected entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedEntry {
    /// The server and the tool, with everything that is not visible ASCII escaped.
    pub entry: String,
    /// The reason.
    pub reason: String,
}

macro_rules! message {
    ($($name:ident),*) => {
        $(impl $name {
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
                decode(bytes)
            }
        })*
    };
}

message!(IndexDigest, PullIndex, IndexPage, ServerRecord, ToolRecord);

impl IndexReport {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes a message, sanitized because it is shown to people.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        decode(bytes).map(Self::sanitize)
    }

    /// Sanitizes the texts for people.
    #[must_use]
    pub(crate) fn sanitize(mut self) -> Self {
        self.examples.truncate(EXAMPLES_MAX);
        for example in &mut self.examples {
            for text in [&mut example.entry, &mut example.reason] {
                *text = to_printable(text);
            }
        }
        self
    }
}

/// Sanitizes a text for people.
#[must_use]
pub fn to_printable(text: &str) -> String {
    super::to_printable(text, REASON_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> IndexPage {
        let record = ToolRecord {
            definition: "{\"name\":\"a\"}".to_owned(),
            schemas: IndexRoot([1; 32]),
            idempotent: true,
            vector: Some(ToolVector {
                model: "m".to_owned(),
                unit: 0.5,
                numbers: vec![1, 255],
            }),
        };
        assert_eq!(ToolRecord::decode(&record.encode()).unwrap(), record);
        let digest = IndexDigest {
            epoch: u64::MAX,
            version: 7,
            root: IndexRoot([2; 32]),
        };
        let change = |tool: Option<&str>, record: Option<Vec<u8>>| IndexChange {
            server: "files".to_owned(),
            tool: tool.map(str::to_owned),
            record: record.map(RecordBytes),
        };
        IndexPage {
            number: 1,
            epoch: u64::MAX,
            after: 0,
            upto: 7,
            digest,
            changes: vec![change(Some("a"), Some(record.encode())), change(None, None)],
        }
    }

    #[test]
    fn page_round_trips_and_truncated_ones_are_rejected() {
        let bytes = page().encode();
        assert_eq!(IndexPage::decode(&bytes).unwrap(), page());
        for cut in 0..bytes.len() {
            assert!(IndexPage::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                let _read = IndexPage::decode(&bad);
            }
        }
    }

    /// FED-059: members of a later version are ignored.
    #[test]
    fn unknown_members_of_a_record_are_ignored() {
        #[derive(Serialize)]
        struct NextServerRecord {
            region: &'static str,
            state: Status,
        }
        let next = NextServerRecord {
            region: "here",
            state: Status::Connected,
        };
        let record = ServerRecord::decode(&encode(&next)).unwrap();
        assert_eq!(record.state, Status::Connected);
        assert!(!record.replica && record.specification.is_none());
    }

    /// The hash of an entry is over its bytes: a server that is not starting is encoded as before, so the
    /// hash is the same on nodes that do not know the member.
    #[test]
    fn only_starting_servers_are_encoded_with_the_member() {
        #[derive(Serialize, Deserialize)]
        struct ServerRecordBefore {
            state: Status,
            specification: Option<IndexRoot>,
            replica: bool,
            stateful: bool,
        }
        let before = ServerRecordBefore {
            state: Status::Connecting,
            specification: None,
            replica: true,
            stateful: false,
        };
        let record = ServerRecord::decode(&encode(&before)).unwrap();
        assert!(record.replica && !record.starting);
        assert_eq!(record.encode(), encode(&before));
        let starting = ServerRecord {
            starting: true,
            ..record
        };
        assert_eq!(ServerRecord::decode(&starting.encode()), Ok(starting));
        assert!(decode::<ServerRecordBefore>(&starting.encode()).is_ok());
    }

    #[test]
    fn report_of_a_peer_is_sanitized() {
        let example = RefusedEntry {
            entry: "a\n\u{202e}b".to_owned(),
            reason: "x".repeat(10_000),
        };
        let report = IndexReport {
            refused: 100,
            examples: vec![example; 100],
        };
        let read = IndexReport::decode(&report.encode()).unwrap();
        assert_eq!(read.examples.len(), EXAMPLES_MAX);
        assert_eq!(read.examples[0].entry, "a\\u{a}\\u{202e}b");
        assert!(read.examples[0].reason.len() < 600);
    }
}
