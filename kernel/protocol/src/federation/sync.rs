//! The streams on which nodes copy from each other: what the first message of one says it is for.

use serde::{Deserialize, Serialize};

use super::message::{BadMessage, decode, encode};

/// The first message of a copying stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "copy", rename_all = "snake_case")]
pub enum SyncOpening {
    /// Pages of the index of what the called node shares: each [`PullIndex`](super::tool_index::PullIndex) is
    /// answered with a page.
    Index,
    /// Entries of logs that the calling node brings: each message is
    /// [`LogEntries`](super::logs::LogEntries), and none is answered.
    Logs,
    /// One of a later version: the stream is ended.
    #[serde(other)]
    Unknown,
}

impl SyncOpening {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_is_read_as_it_was_written_and_a_later_one_is_unknown() {
        for opening in [SyncOpening::Index, SyncOpening::Logs] {
            assert_eq!(SyncOpening::decode(&opening.encode()), Ok(opening));
        }
        let later = b"\x82\xa4copy\xa6vector\xa5since\x02";
        assert_eq!(SyncOpening::decode(later), Ok(SyncOpening::Unknown));
    }
}
