//! The streams for replication between nodes: their first message states the purpose.

use serde::{Deserialize, Serialize};

use super::message::{BadMessage, decode, encode};

/// The first message of a sync stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "copy", rename_all = "snake_case")]
pub enum SyncOpening {
    /// Pages of the index that the called node shares: each [`PullIndex`](super::tool_index::PullIndex) is
    /// answered with a page.
    Index,
    /// Log entries that the calling node sends: each message is [`LogEntries`](super::logs::LogEntries),
    /// and none is answered.
    Logs,
    /// A purpose of a later version: the stream is closed.
    #[serde(other)]
    Unknown,
}

impl SyncOpening {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_round_trips_and_later_ones_are_unknown() {
        for opening in [SyncOpening::Index, SyncOpening::Logs] {
            assert_eq!(SyncOpening::decode(&opening.encode()), Ok(opening));
        }
        let later = b"\x82\xa4copy\xa6vector\xa5since\x02";
        assert_eq!(SyncOpening::decode(later), Ok(SyncOpening::Unknown));
    }
}
