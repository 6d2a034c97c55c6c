//! Keys of the view. All keys of one file of the log are in one piece, so that they go with it.

use mgp_engine::store::audit::chain::Head;
use mgp_engine::store::audit::query::RecordIndex;
use mgp_engine::store::audit::record::RecordDigest;

/// Not the beginning of a file's keys: no log has so many files.
pub(super) const BUILT_TO: &[u8] = b"built to";
/// Changes with the form of the keys; a view of another form is built again.
const FORM: &str = "1";

/// A record's place within all that is found, newest first: the file, the time, the place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecordPlace {
    pub(super) number: u64,
    pub(super) at_ms: u64,
    pub(super) offset: u64,
}

impl RecordPlace {
    /// Behind these bytes all keys of one value of an index stand in the order of their places.
    pub(super) fn prefix(number: u64, index: RecordIndex, value: &str) -> Vec<u8> {
        let mut key = number.to_be_bytes().to_vec();
        key.push(index.letter());
        key.extend_from_slice(&blake3::hash(value.as_bytes()).as_bytes()[..8]);
        key
    }

    /// The key in that index.
    pub(super) fn key(self, mut prefix: Vec<u8>) -> Vec<u8> {
        prefix.extend_from_slice(&self.at_ms.to_be_bytes());
        prefix.extend_from_slice(&self.offset.to_be_bytes());
        prefix
    }

    /// Reads a key.
    pub(super) fn of_key(key: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_be_bytes(key.get(at..at + 8)?.try_into().ok()?));
        let place = Self {
            number: number(0)?,
            at_ms: number(17)?,
            offset: number(25)?,
        };
        (key.len() == 33).then_some(place)
    }

    /// As a cursor.
    pub(super) fn cursor(self) -> String {
        format!("{}-{}-{}", self.number, self.at_ms, self.offset)
    }

    /// Reads a cursor.
    pub(super) fn of_cursor(text: &str) -> Option<Self> {
        let mut words = text.split('-').map(|word| word.parse().ok());
        let mut next = || words.next().flatten();
        let place = Self {
            number: next()?,
            at_ms: next()?,
            offset: next()?,
        };
        (place.cursor() == text).then_some(place)
    }
}

/// How far the view was built: its last record, and where that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BuiltTo {
    pub(super) head: Head,
    pub(super) number: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl BuiltTo {
    /// Nothing was built yet.
    pub(super) const START: Self = Self {
        head: Head::START,
        number: 0,
        offset: 0,
        len: 0,
    };

    pub(super) fn text(&self) -> String {
        let Head { sequence, hash } = self.head;
        let (number, offset, len) = (self.number, self.offset, self.len);
        format!("{FORM} {number} {offset} {len} {sequence} {hash}")
    }

    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut words = text.strip_prefix(FORM)?.strip_prefix(' ')?.split(' ');
        let built = Self {
            number: words.next()?.parse().ok()?,
            offset: words.next()?.parse().ok()?,
            len: words.next()?.parse().ok()?,
            head: Head {
                sequence: words.next()?.parse().ok()?,
                hash: RecordDigest::parse(words.next()?)?,
            },
        };
        words.next().is_none().then_some(built)
    }
}
