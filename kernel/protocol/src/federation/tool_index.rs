//! The index of what a node shares: its digest, and the pulls by which another node brings its copy up to
//! date.
//!
//! A pull begins where the last page ended. Pages come in the order of changes, each entry where it changed
//! last, so that a change meanwhile comes later and a pull never has to begin again because of it.

use serde::{Deserialize, Serialize};

use super::byte_text::{any_bytes, fixed_bytes};
use super::message::{BadMessage, decode, encode};
use crate::mgp::discovery::Status;

fixed_bytes! {
    /// A hash over all entries of an index in their order.
    IndexRoot, 32
}

/// Longest reason in a report, in bytes.
const REASON_MAX: usize = 512;
/// Most entries that one report names; the others are counted.
pub const EXAMPLES_MAX: usize = 16;

/// What an owner says of its index as one peer may see it. Epochs are compared, never ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDigest {
    /// Another one since the owner started and since the peer may see other things.
    pub epoch: u64,
    /// The number of the last change.
    pub version: u64,
    /// Over all entries.
    pub root: IndexRoot,
}

/// Asks for the next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullIndex {
    /// Comes back with the page.
    pub number: u64,
    /// The epoch the asker's copy is of.
    pub epoch: u64,
    /// The last change it has; 0 begins anew.
    pub after: u64,
    /// The root of the asker's copy, where it is whole.
    pub root: Option<IndexRoot>,
}

/// A page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexPage {
    /// Of the pull.
    pub number: u64,
    /// The epoch of the owner's index.
    pub epoch: u64,
    /// Where the page begins: as it was asked, or 0 where only a whole copy will do.
    pub after: u64,
    /// The last change in it.
    pub upto: u64,
    /// The digest of the moment: with `upto` at its version, the copy is whole.
    pub digest: IndexDigest,
    /// Entries in the order of their last changes.
    pub changes: Vec<IndexChange>,
}

/// An entry as it is now, or that it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexChange {
    /// The server.
    pub server: String,
    /// Its own name for the tool; without, the entry is that of the server.
    pub tool: Option<String>,
    /// A [`ServerRecord`] or [`ToolRecord`] as its owner wrote it; `None` when it is gone. Hashes are over
    /// these bytes.
    pub record: Option<RecordBytes>,
}

/// A record as bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordBytes(#[serde(with = "any_bytes")] pub Vec<u8>);

/// Why a pull brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullFailure {
    /// The owner has other things to do: ask again after so many milliseconds.
    Later(u64),
    /// The link or its stream broke, or the answer did not come in time.
    Lost,
}

/// A server that is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// Its state at its owner.
    pub state: Status,
    /// What it is started as, hashed; a replica has the same.
    #[serde(default)]
    pub specification: Option<IndexRoot>,
    /// Its owner marked it as one of several that are alike; else it stands alone.
    #[serde(default)]
    pub replica: bool,
    /// It remembers its callers between calls.
    #[serde(default)]
    pub stateful: bool,
    /// Its owner starts it: its tools are those of the last time until it lists them again. Left out when it is not
    /// so, as owners that do not know it write it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starting: bool,
}

/// A tool that is shared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolRecord {
    /// The definition, as the server sent it.
    pub definition: String,
    /// The hash of its schemas.
    pub schemas: IndexRoot,
    /// The owner's operator confirmed that calling it twice is calling it once.
    #[serde(default)]
    pub idempotent: bool,
    /// Its meaning.
    #[serde(default)]
    pub vector: Option<ToolVector>,
}

/// A direction, and the model that gave it: of another model's it says nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolVector {
    /// The model's id.
    pub model: String,
    /// What one of the numbers is worth.
    pub unit: f32,
    /// Numbers from -127 to 127, a byte each.
    #[serde(with = "any_bytes")]
    pub numbers: Vec<u8>,
}

/// What an asker did not take of an index, so that people on both sides can read why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexReport {
    /// How many entries.
    pub refused: u64,
    /// Some of them.
    pub examples: Vec<RefusedEntry>,
}

/// An entry that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedEntry {
    /// The server and the tool, with everything that is no visible ASCII escaped.
    pub entry: String,
    /// Why.
    pub reason: String,
}

macro_rules! message {
    ($($name:ident),*) => {
        $(impl $name {
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
                decode(bytes)
            }
        })*
    };
}

message!(IndexDigest, PullIndex, IndexPage, ServerRecord, ToolRecord);

impl IndexReport {
    /// As on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads one. What a peer wrote is shown to people: nothing in it may look like anything else.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        decode(bytes).map(Self::sanitize)
    }

    /// The same, as it may be shown to people.
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

/// A text as it may be shown to people.
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
    fn a_page_is_read_as_it_was_written_and_no_part_of_it_is() {
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

    /// FED-059: members of a later version are passed over.
    #[test]
    fn a_record_of_a_changed_wire_is_read_for_what_is_known() {
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

    /// The hash of an entry is over its bytes: those of a server that is not starting are the same to nodes that do not
    /// know the word.
    #[test]
    fn a_starting_server_is_marked_and_any_other_is_written_as_before() {
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
    fn what_a_peer_reports_cannot_dress_up_as_something_else() {
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
