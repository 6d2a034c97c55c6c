//! Finds the records in the bytes of a log file, and classifies all bytes outside of records.

use super::record::{self, AuditRecord};

/// A range of a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte.
    pub(crate) offset: u64,
    /// The length.
    pub len: u64,
}

/// A part of a file. Together the parts are the whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogItem<'a> {
    /// A record with a correct hash, newline included.
    Record(ByteRange, AuditRecord<'a>),
    /// Bytes that are no record, where one should be, with the number that can still be read.
    Damaged(ByteRange, Option<u64>),
    /// Damaged with zero bytes, which no record has: perhaps a part that never reached the disk.
    Hole(ByteRange, Option<u64>),
    /// A byte after a record that should be a newline.
    Separator(ByteRange),
    /// The file ends within a record: a write was interrupted.
    Torn(ByteRange),
    /// A complete last record without its newline. Its range is empty, at the place of the newline.
    Unterminated(ByteRange),
}

impl LogItem<'_> {
    /// The end of its range.
    #[must_use]
    pub fn end(&self) -> u64 {
        let (Self::Record(range, _)
        | Self::Damaged(range, _)
        | Self::Hole(range, _)
        | Self::Separator(range)
        | Self::Torn(range)
        | Self::Unterminated(range)) = self;
        range.offset + range.len
    }
}

/// Reads a file from its beginning.
#[derive(Clone, Debug)]
pub struct LogReader<'a> {
    bytes: &'a [u8],
    position: usize,
    /// Reported after the record that was just read.
    pending: Option<LogItem<'a>>,
}

impl<'a> LogReader<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            position: 0,
            pending: None,
        }
    }

    /// Takes the next `len` bytes.
    fn advance(&mut self, len: usize) -> ByteRange {
        let offset = self.position as u64;
        self.position += len;
        ByteRange {
            offset,
            len: len as u64,
        }
    }

    /// The length of the current line, and whether it has a newline.
    fn current_line(&self) -> (usize, bool) {
        let rest = &self.bytes[self.position..];
        match rest.iter().position(|b| *b == b'\n') {
            Some(len) => (len, true),
            None => (rest.len(), false),
        }
    }

    /// Finds a complete record whose newline was changed.
    fn record_prefix(line: &'a [u8]) -> Option<(usize, AuditRecord<'a>)> {
        let ends = (2..line.len()).filter(|end| line[..*end].ends_with(b"\"}"));
        // Zeros after it are no changed newline, but a missing part of the file.
        let ends = ends.filter(|end| line[*end] > 0 || line.get(end + 1).is_some_and(|b| *b > 0));
        ends.into_iter()
            .find_map(|end| AuditRecord::parse(&line[..end]).map(|record| (end, record)))
    }

    /// Damage inside a record may look like a newline: the next line belongs to the same record if this one has no
    /// suffix and that one no prefix.
    fn read_damaged(&mut self, len: usize) -> LogItem<'a> {
        let start = self.position;
        let mut range = self.advance(len + 1);
        while !record::has_record_suffix(&self.bytes[start..self.position - 1]) {
            let (len, has_newline) = self.current_line();
            let line = &self.bytes[self.position..self.position + len];
            if !has_newline || line.is_empty() || record::has_record_prefix(line) {
                break;
            }
            range.len += self.advance(len + 1).len;
        }
        let bytes = &self.bytes[start..self.position];
        if bytes.contains(&0) {
            LogItem::Hole(range, record::parse_sequence(bytes))
        } else {
            LogItem::Damaged(range, record::parse_sequence(bytes))
        }
    }
}

impl<'a> Iterator for LogReader<'a> {
    type Item = LogItem<'a>;

    fn next(&mut self) -> Option<LogItem<'a>> {
        if let Some(item) = self.pending.take() {
            return Some(item);
        }
        if self.position == self.bytes.len() {
            return None;
        }
        let (len, has_newline) = self.current_line();
        let line = &self.bytes[self.position..self.position + len];
        if let Some(record) = AuditRecord::parse(line) {
            let range = self.advance(len + usize::from(has_newline));
            self.pending = (!has_newline).then(|| LogItem::Unterminated(self.advance(0)));
            return Some(LogItem::Record(range, record));
        }
        if let Some((end, record)) = Self::record_prefix(line) {
            let range = self.advance(end);
            self.pending = Some(LogItem::Separator(self.advance(1)));
            return Some(LogItem::Record(range, record));
        }
        Some(if has_newline {
            self.read_damaged(len)
        } else {
            LogItem::Torn(self.advance(len))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::audit::chain::tests::event;
    use crate::store::audit::chain::{Chain, Head};
    use proptest::prelude::*;
    use serde_json::json;

    fn log(records: usize) -> Vec<u8> {
        let mut chain = Chain::new(Head::START);
        let lines = (0..records).flat_map(|n| chain.append(event(json!({"n": n}))).text);
        lines.collect()
    }

    fn kinds(bytes: &[u8]) -> String {
        LogReader::new(bytes)
            .map(|item| match item {
                LogItem::Record(..) => 'r',
                LogItem::Damaged(..) => 'd',
                LogItem::Hole(..) => 'h',
                LogItem::Separator(_) => 's',
                LogItem::Torn(_) => 't',
                LogItem::Unterminated(_) => 'u',
            })
            .collect()
    }

    #[test]
    fn each_kind_of_damage_is_classified() {
        let whole = log(3);
        let line = whole.len() / 3;
        assert_eq!(kinds(&whole), "rrr");
        assert_eq!(kinds(&whole[..whole.len() - 1]), "rrru");
        assert_eq!(kinds(&whole[..whole.len() - 2]), "rrt");
        let with = |at: usize, byte| {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            kinds(&bytes)
        };
        assert_eq!(with(line - 1, b' '), "rsrr");
        assert_eq!(with(whole.len() - 1, b' '), "rrrs");
        assert_eq!(with(whole.len() - 1, 0), "rrt");
        assert_eq!(with(line - 1, 0), "rsrr");
        assert_eq!(with(line + 90, 0), "rhr");
        assert_eq!(with(line + 90, b'\n'), "rdr");
        assert_eq!(with(0, b'\n'), "drr");
        assert_eq!(kinds(b""), "");
        assert_eq!(kinds(b"\n\n"), "dd");
    }

    proptest! {
        /// Each byte is in exactly one range, in order.
        #[test]
        fn no_byte_is_skipped(
            cut in 0usize..2000, at in 0usize..2000, junk in proptest::collection::vec(any::<u8>(), 0..40)
        ) {
            let mut bytes = log(4);
            let at = at % bytes.len();
            let to = (at + cut).min(bytes.len());
            bytes.splice(at..to, junk);
            let mut next = 0;
            for item in LogReader::new(&bytes) {
                let (LogItem::Record(s, _) | LogItem::Damaged(s, _) | LogItem::Hole(s, _) | LogItem::Separator(s) | LogItem::Torn(s)
                    | LogItem::Unterminated(s)) = item;
                prop_assert_eq!(s.offset, next);
                next += s.len;
            }
            prop_assert_eq!(next, bytes.len() as u64);
        }
    }
}
