//! The files of a log: old files can be removed without breaking the chain of the rest.
//!
//! Before files are removed, a record names the last removed record and its hash. The remaining log begins
//! there, and any other missing beginning is a fault.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Map, Value};

use super::chain::Head;

/// Most files. Beyond it the oldest are removed whatever their age, because each start reads them all.
pub(crate) const SEGMENTS_MAX: usize = 4_096;

/// The retention settings of `[audit]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Records older than this are removed; `None` for no limit.
    pub max_age: Option<Duration>,
    /// Most bytes of all files together, plus those of one open file.
    pub max_bytes: u64,
    /// A file of this size is closed.
    pub segment_bytes: u64,
}

impl Default for Retention {
    /// 90 days or 1 GiB, in files of 16 MiB.
    fn default() -> Self {
        Self {
            max_age: Some(Duration::from_secs(90 * 86_400)),
            max_bytes: 1 << 30,
            segment_bytes: 16 << 20,
        }
    }
}

/// One file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The number, from 1; part of the file name.
    pub number: u64,
    /// Its last record; that of the file before while it is empty.
    pub last: Head,
    /// The length.
    pub bytes: u64,
    /// The time of its newest record, in milliseconds since 1970.
    pub newest_ms: u64,
}

/// Files to be removed once a record of the trim is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trim {
    /// The last removed record.
    pub(crate) through: Head,
    /// Numbers of the files, to be removed in this order, oldest first.
    pub segments: Vec<u64>,
}

impl Trim {
    /// `details` of the record that must be on disk before the first file is removed; its type is
    /// `EventType::LOG_TRIMMED`. [`super::verify`] reads it.
    #[must_use]
    pub fn details(&self) -> Map<String, Value> {
        let through = ("through".to_owned(), self.through.sequence.into());
        let hash = ("hash".to_owned(), self.through.hash.to_string().into());
        [through, hash].into_iter().collect()
    }
}

/// The files of a log. The last one is open.
#[derive(Clone, Debug)]
pub struct Segments {
    retention: Retention,
    closed: VecDeque<Segment>,
    open: Segment,
}

impl Segments {
    /// Takes the existing files, oldest first; without any, the first one is created.
    #[must_use]
    pub fn new(retention: Retention, found: Vec<Segment>) -> Self {
        let mut closed = VecDeque::from(found);
        let open = closed.pop_back().unwrap_or(Segment {
            number: 1,
            last: Head::START,
            bytes: 0,
            newest_ms: 0,
        });
        Self {
            retention,
            closed,
            open,
        }
    }

    /// The number of the file for the next line of `len` bytes: a new one if the open one is full. A line longer than a
    /// file has a file of its own.
    #[must_use]
    pub fn segment_for(&mut self, len: u64) -> u64 {
        if self.open.bytes > 0 && self.open.bytes.saturating_add(len) > self.retention.segment_bytes
        {
            let next = Segment {
                number: self.open.number + 1,
                bytes: 0,
                ..self.open
            };
            self.closed
                .push_back(std::mem::replace(&mut self.open, next));
        }
        self.open.number
    }

    /// A line of `len` bytes was written to the open file at `now_ms`.
    pub fn record_written(&mut self, head: Head, len: u64, now_ms: u64) {
        self.open.last = head;
        self.open.bytes += len;
        // The clock may have been set back; a file is as old as its newest record.
        self.open.newest_ms = self.open.newest_ms.max(now_ms);
    }

    /// The file of this number, the last one written, ends with this record after `bytes` bytes; the log
    /// continues in the next file, whose number is returned.
    pub fn continue_after(&mut self, number: u64, last: Head, bytes: u64) -> u64 {
        // The next file was never written.
        if self.open.number != number
            && let Some(before) = self.closed.pop_back()
        {
            self.open = before;
        }
        let cut = Segment {
            last,
            bytes,
            ..self.open
        };
        self.closed.push_back(cut);
        self.open = Segment {
            number: cut.number + 1,
            bytes: 0,
            ..cut
        };
        self.open.number
    }

    /// The files to be removed at `now_ms`: never the open one, and none after one that stays.
    #[must_use]
    pub fn due_trim(&self, now_ms: u64) -> Option<Trim> {
        let too_old = |s: &Segment| {
            let age = Duration::from_millis(now_ms.saturating_sub(s.newest_ms));
            self.retention.max_age.is_some_and(|most| age > most)
        };
        let mut bytes: u64 = self.closed.iter().map(|s| s.bytes).sum();
        let mut files = self.closed.len();
        let removed = self.closed.iter().take_while(|segment| {
            let is_removed =
                bytes > self.retention.max_bytes || files >= SEGMENTS_MAX || too_old(segment);
            bytes -= segment.bytes;
            files -= 1;
            is_removed
        });
        let removed: Vec<&Segment> = removed.collect();
        let through = removed.last()?.last;
        Some(Trim {
            through,
            segments: removed.iter().map(|s| s.number).collect(),
        })
    }

    /// Forgets removed files.
    pub fn apply_trim(&mut self, trim: &Trim) {
        let last = trim.through.sequence;
        while self.closed.front().is_some_and(|s| s.last.sequence <= last) {
            self.closed.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::audit::chain::Chain;
    use crate::store::audit::chain::tests::event;
    use crate::store::audit::reader::LogReader;
    use crate::store::audit::verify::{LogFault, Report, Verifier};
    use mgp_protocol::mgp::audit::{Event, EventType};
    use proptest::prelude::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    /// A log in memory.
    struct MemoryLog {
        chain: Chain,
        segments: Segments,
        files: BTreeMap<u64, Vec<u8>>,
    }

    impl MemoryLog {
        fn new(retention: Retention) -> Self {
            Self {
                chain: Chain::new(Head::START),
                segments: Segments::new(retention, Vec::new()),
                files: BTreeMap::new(),
            }
        }

        fn write(&mut self, event: Event, now_ms: u64) {
            let line = self.chain.append(event);
            let len = line.text.len() as u64;
            let file = self.segments.segment_for(len);
            self.files.entry(file).or_default().extend(&line.text);
            self.segments.record_written(line.head, len, now_ms);
        }

        fn announce(&mut self, trim: &Trim, now_ms: u64) {
            let mut record = event(json!({}));
            record.event_type = EventType::LOG_TRIMMED;
            record.details = trim.details();
            self.write(record, now_ms);
        }

        fn remove(&mut self, trim: &Trim) {
            trim.segments
                .iter()
                .for_each(|n| drop(self.files.remove(n)));
            self.segments.apply_trim(trim);
        }

        fn verify(&self) -> Report {
            let mut verifier = Verifier::new(Some(self.chain.head()));
            for (number, text) in &self.files {
                LogReader::new(text).for_each(|i| verifier.add_item(*number, &i));
            }
            verifier.finish()
        }
    }

    fn small() -> Retention {
        Retention {
            max_age: Some(Duration::from_millis(1_000)),
            max_bytes: 4_000,
            segment_bytes: 1_200,
        }
    }

    /// Files removed without a record are a fault; after the record, the kernel may end at any point of the removal.
    #[test]
    fn only_a_recorded_trim_is_no_fault() {
        let mut log = MemoryLog::new(small());
        (0..20).for_each(|n| log.write(event(json!({"n": n})), n));
        let trim = log.segments.due_trim(20).expect("it is over its bytes");
        assert!(trim.segments.len() > 1);
        let first = log.files.remove(&1).unwrap();
        let faults = log.verify().faults;
        assert!(
            matches!(faults[..], [LogFault::Removed { from: 1, .. }]),
            "{faults:?}"
        );
        log.files.insert(1, first);
        log.announce(&trim, 21);
        assert_eq!(log.verify().faults, []);
        log.files.remove(&1);
        assert_eq!(log.verify().faults, []);
        log.remove(&trim);
        assert_eq!(log.verify().faults, []);
        let (next, _) = log.files.pop_first().unwrap();
        let faults = log.verify().faults;
        let from = trim.through.sequence + 1;
        assert!(
            matches!(faults[0], LogFault::Removed { from: f, .. } if f == from),
            "{next} {faults:?}"
        );
    }

    #[test]
    fn old_files_are_removed_but_not_the_open_one() {
        let mut log = MemoryLog::new(small());
        (0..6).for_each(|n| log.write(event(json!({"n": n})), n));
        assert_eq!(log.segments.due_trim(1_000), None);
        let trim = log.segments.due_trim(99_999).unwrap();
        assert!(!trim.segments.contains(&log.segments.open.number));
    }

    #[test]
    fn a_failed_file_is_followed_by_a_new_one() {
        let mut log = MemoryLog::new(small());
        (0..3).for_each(|n| log.write(event(json!({"n": n})), n));
        let (number, last) = (log.segments.open.number, log.segments.open.last);
        assert_eq!(log.segments.continue_after(number, last, 7), number + 1);
        let mut turned = log.segments.clone();
        turned.record_written(last, 1_100, 9);
        assert_eq!(turned.segment_for(1_100), number + 2);
        assert_eq!(turned.continue_after(number + 1, last, 8), number + 2);
        let closed = turned.closed.iter().map(|s| (s.number, s.bytes));
        assert!(
            closed
                .rev()
                .eq([(number + 1, 8), (number, 7)].into_iter().chain(
                    log.segments
                        .closed
                        .iter()
                        .rev()
                        .skip(1)
                        .map(|s| (s.number, s.bytes))
                ))
        );
    }

    proptest! {
        /// The log stays verifiable, and its size bounded.
        #[test]
        fn retention_preserves_the_chain_and_the_size_limit(gaps in proptest::collection::vec(0u64..400, 1..80)) {
            let mut log = MemoryLog::new(small());
            let mut now = 0;
            for (n, gap) in gaps.into_iter().enumerate() {
                now += gap;
                log.write(event(json!({"n": n})), now);
                if let Some(trim) = log.segments.due_trim(now) {
                    log.announce(&trim, now);
                    log.remove(&trim);
                }
                let bytes: usize = log.files.values().map(Vec::len).sum();
                prop_assert!(bytes as u64 <= small().max_bytes + 2 * small().segment_bytes);
            }
            prop_assert_eq!(log.verify().faults, []);
        }
    }
}
