//! Keys of the view. The keys of a block are contiguous, the oldest block first, so that they can be removed together.

use mgp_engine::store::audit::chain::Head;
use mgp_engine::store::audit::index::sealed::BlockList;
use mgp_engine::store::audit::record::RecordDigest;

/// Cannot be the beginning of a block's keys: no log has that many blocks.
pub(super) const BUILT_TO: &[u8] = b"built to";
/// The key prefix of block summaries.
pub(super) const SUMMARY: &[u8] = b"block ";
/// Version of the key format; a view with another version is rebuilt.
const FORMAT: &str = "3";

/// The number of a block: how many were written before it since the view was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockNumber(pub(super) u32);

impl BlockNumber {
    /// Exceeds all keys of the lists of earlier blocks.
    pub(super) fn first_key(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// The key of a list.
    pub(super) fn list(self, list: BlockList) -> Vec<u8> {
        [&self.0.to_be_bytes()[..], &list.key_suffix()].concat()
    }

    /// The key of the block's summary.
    pub(super) fn summary(self) -> Vec<u8> {
        [SUMMARY, &self.0.to_be_bytes()].concat()
    }

    /// Parses the key of a summary.
    pub(super) fn from_summary_key(key: &[u8]) -> Option<Self> {
        let number = key.strip_prefix(SUMMARY)?.try_into().ok()?;
        Some(Self(u32::from_be_bytes(number)))
    }
}

/// The sort position of a record, newest first: file, time, offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecordPosition {
    pub(super) number: u64,
    pub(super) at_ms: u64,
    pub(super) offset: u64,
}

impl RecordPosition {
    /// Formats the position as a cursor.
    pub(super) fn to_cursor(self) -> String {
        format!("{}-{}-{}", self.number, self.at_ms, self.offset)
    }

    /// Parses a cursor.
    pub(super) fn parse_cursor(text: &str) -> Option<Self> {
        let mut words = text.split('-').map(|word| word.parse().ok());
        let mut next = || words.next().flatten();
        let place = Self {
            number: next()?,
            at_ms: next()?,
            offset: next()?,
        };
        (place.to_cursor() == text).then_some(place)
    }
}

/// A record's line in the log and its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordLine {
    pub(super) head: Head,
    pub(super) number: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// The build progress of the view: its number of blocks, and the last line in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BuildProgress {
    pub(super) blocks: u32,
    pub(super) last: RecordLine,
}

impl BuildProgress {
    /// The state of an empty view.
    pub(super) const START: Self = Self {
        blocks: 0,
        last: RecordLine {
            head: Head::START,
            number: 0,
            offset: 0,
            len: 0,
        },
    };

    pub(super) fn render(&self) -> String {
        let RecordLine {
            head,
            number,
            offset,
            len,
        } = self.last;
        let Head { sequence, hash } = head;
        let blocks = self.blocks;
        format!("{FORMAT} {blocks} {number} {offset} {len} {sequence} {hash}")
    }

    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut words = text.strip_prefix(FORMAT)?.strip_prefix(' ')?.split(' ');
        let built = Self {
            blocks: words.next()?.parse().ok()?,
            last: RecordLine {
                number: words.next()?.parse().ok()?,
                offset: words.next()?.parse().ok()?,
                len: words.next()?.parse().ok()?,
                head: Head {
                    sequence: words.next()?.parse().ok()?,
                    hash: RecordDigest::parse(words.next()?)?,
                },
            },
        };
        words.next().is_none().then_some(built)
    }
}
