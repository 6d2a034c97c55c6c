//! Finds the faults of a log: changed, removed, moved, duplicated, inserted and truncated records.
//!
//! Consecutive records form a run, so that memory grows with the number of faults, not with the length of
//! the log.

mod control_records;
mod diagnosis;
mod display;

use self::control_records::ControlRecords;
use super::chain::Head;
use super::reader::{ByteRange, LogItem};
use super::record::{AuditRecord, RecordDigest};

pub use self::control_records::{ACKNOWLEDGED_MAX, acknowledgment};

/// Beyond this number, faults are not distinguished: the log as a whole cannot be trusted, and finding the fewest moves
/// takes quadratic time.
pub(crate) const MAX_SPANS: usize = 2_048;

/// A position in the log's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentOffset {
    /// Number of the segment.
    pub(crate) segment: u64,
    /// Byte within its file.
    pub offset: u64,
}

/// A fault. Numbers are those of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFault {
    /// A record was changed: its bytes differ, or its successor has another hash for it.
    Changed {
        /// Its number; if that cannot be read, the number implied by its position.
        sequence: u64,
        /// Its place.
        place: SegmentOffset,
    },
    /// Records are missing from the middle, or from the beginning without having been trimmed.
    Removed {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// Records are missing from the end.
    Truncated {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
    },
    /// Records are out of order.
    Moved {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
        /// Their place.
        place: SegmentOffset,
    },
    /// Records are repeated.
    Duplicated {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
        /// The place of the repetition.
        place: SegmentOffset,
    },
    /// Bytes that are no record and replace none.
    Foreign {
        /// Its place.
        place: SegmentOffset,
    },
    /// The log does not begin where it was trimmed to.
    Unanchored {
        /// The first record.
        first: u64,
    },
    /// A newline between records was changed.
    Separator {
        /// The record before it.
        sequence: u64,
        /// The place of the byte.
        place: SegmentOffset,
    },
    /// The file ends with unfinished records, which were never acknowledged.
    Torn {
        /// Its beginning: the length to cut the file to.
        place: SegmentOffset,
        /// Its length in bytes.
        len: u64,
    },
    /// The last record lacks its newline.
    Unterminated {
        /// The place it belongs to.
        place: SegmentOffset,
    },
    /// Too many faults; nothing after this was verified.
    TooMany {
        /// The place where the verification ended.
        place: SegmentOffset,
    },
}

/// What must be done before the log may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing.
    Nothing,
    /// Truncate the last file to this length, and record that.
    Truncate(SegmentOffset),
    /// Write a newline there.
    Terminate(SegmentOffset),
    /// Stop the log, and report the fault to the operator.
    Stop(LogFault),
}

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The number of intact records.
    pub records: u64,
    /// The last of them in order, to continue from.
    pub head: Head,
    /// The faults that were not acknowledged.
    pub faults: Vec<LogFault>,
    /// The faults that the operator acknowledged.
    pub acknowledged: Vec<LogFault>,
    /// Records of damage that was not acknowledged; the damage itself may no longer be visible.
    pub damage: Vec<u64>,
}

impl Report {
    /// The repair at the kernel's start. An unfinished last record is truncated; any other damage stops the log.
    #[must_use]
    pub fn required_repair(&self) -> Repair {
        let mut repair = Repair::Nothing;
        for fault in &self.faults {
            repair = if let LogFault::Torn { place, .. } = fault {
                Repair::Truncate(*place)
            } else if let LogFault::Unterminated { place } = fault {
                Repair::Terminate(*place)
            } else {
                return Repair::Stop(*fault);
            };
        }
        repair
    }
}

/// A run of consecutive records, or something that is no record.
#[derive(Clone, Copy, Debug)]
enum Span {
    Run(Run),
    Damaged(SegmentOffset, Option<u64>),
}

#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    last: u64,
    /// The hash before the first; unknown for a part of a run.
    previous: Option<RecordDigest>,
    /// The hash of the last; unknown for a part of a run.
    hash: Option<RecordDigest>,
    place: SegmentOffset,
}

/// The state before a hole.
#[derive(Clone, Debug)]
struct BeforeHole {
    place: SegmentOffset,
    spans: usize,
    faults: usize,
    control_records: ControlRecords,
}

/// Reads a log item by item, segment by segment, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    spans: Vec<Span>,
    known_head: Option<Head>,
    /// How far the log was trimmed before.
    anchor: Option<Head>,
    control_records: ControlRecords,
    /// The unfinished end of a file, until something follows.
    tail: Option<(SegmentOffset, u64)>,
    /// A hole in the last file, after the known head.
    hole: Option<BeforeHole>,
    /// The end of the last item.
    end: u64,
    /// Faults found before the diagnosis.
    faults: Vec<LogFault>,
    is_span_limit_reached: bool,
}

impl Verifier {
    /// `known_head` is a record known from elsewhere, ideally the last: without it, records truncated from the end leave
    /// no trace.
    #[must_use]
    pub fn new(known_head: Option<Head>) -> Self {
        Self {
            known_head,
            ..Self::default()
        }
    }

    /// For the part of a log after `anchor`.
    #[must_use]
    pub fn from_anchor(anchor: Head, known: Option<Head>) -> Self {
        Self {
            anchor: Some(anchor),
            ..Self::new(known)
        }
    }

    /// Takes the next item of the segment with this number.
    pub fn add_item(&mut self, segment: u64, item: &LogItem<'_>) {
        let at = |s: &ByteRange| SegmentOffset {
            segment,
            offset: s.offset,
        };
        if self.is_span_limit_reached {
            return;
        }
        if let Some((place, _)) = self.tail.take() {
            self.push_span(Span::Damaged(place, None));
        }
        // Earlier files were on disk completely.
        self.hole.take_if(|hole| hole.place.segment != segment);
        self.end = item.end();
        match item {
            LogItem::Record(s, record) => self.add_record(at(s), record),
            LogItem::Damaged(s, stated) => self.push_span(Span::Damaged(at(s), *stated)),
            LogItem::Hole(s, stated) => {
                self.note_hole(at(s));
                self.push_span(Span::Damaged(at(s), *stated));
            }
            LogItem::Separator(s) => {
                let sequence = self.last_sequence();
                self.add_fault(LogFault::Separator {
                    sequence,
                    place: at(s),
                });
            }
            LogItem::Torn(s) => self.tail = Some((at(s), s.len)),
            LogItem::Unterminated(s) => self.add_fault(LogFault::Unterminated { place: at(s) }),
        }
    }

    fn add_record(&mut self, place: SegmentOffset, record: &AuditRecord<'_>) {
        self.control_records.record(record);
        let is_different = |k: Head| k.sequence == record.sequence && k.hash != record.hash;
        if self.known_head.is_some_and(is_different) {
            let sequence = record.sequence;
            self.add_fault(LogFault::Changed { sequence, place });
        }
        if let Some(Span::Run(run)) = self.spans.last_mut() {
            let follows = run.last.checked_add(1) == Some(record.sequence);
            if follows && run.hash == Some(record.previous) {
                run.last = record.sequence;
                run.hash = Some(record.hash);
                return;
            }
        }
        self.push_span(Span::Run(Run {
            first: record.sequence,
            last: record.sequence,
            previous: Some(record.previous),
            hash: Some(record.hash),
            place,
        }));
    }

    /// A hole after the last record known to be on disk belongs to writes that were never acknowledged, like everything
    /// after it.
    fn note_hole(&mut self, place: SegmentOffset) {
        let last_read = match self.spans.last() {
            Some(Span::Run(run)) => Some(run.last),
            Some(Span::Damaged(..)) => None,
            None => Some(self.anchor.map_or(0, |anchor| anchor.sequence)),
        };
        let is_after = |known: Head| last_read.is_some_and(|last| last >= known.sequence);
        if self.hole.is_none() && self.known_head.is_some_and(is_after) {
            self.hole = Some(BeforeHole {
                place,
                spans: self.spans.len(),
                faults: self.faults.len(),
                control_records: self.control_records.clone(),
            });
        }
    }

    fn last_sequence(&self) -> u64 {
        match self.spans.last() {
            Some(Span::Run(run)) => run.last,
            Some(Span::Damaged(..)) | None => 0,
        }
    }

    fn push_span(&mut self, span: Span) {
        if self.spans.len() < MAX_SPANS {
            self.spans.push(span);
            return;
        }
        let (Span::Run(Run { place, .. }) | Span::Damaged(place, _)) = span;
        self.is_span_limit_reached = true;
        self.faults.push(LogFault::TooMany { place });
    }

    /// Faults without a range are bounded as well.
    fn add_fault(&mut self, fault: LogFault) {
        if self.faults.len() < MAX_SPANS {
            self.faults.push(fault);
        } else {
            self.is_span_limit_reached = true;
        }
    }

    /// The result for the whole log.
    #[must_use]
    pub fn finish(mut self) -> Report {
        if let Some(hole) = self.hole.take().filter(|_| !self.is_span_limit_reached) {
            self.spans.truncate(hole.spans);
            self.faults.truncate(hole.faults);
            self.control_records = hole.control_records;
            self.tail = Some((hole.place, self.end - hole.place.offset));
        }
        let known = self.known_head.filter(|_| !self.is_span_limit_reached);
        let trimmed = self.anchor.max_by_sequence(self.control_records.trimmed);
        let mut report = diagnosis::diagnose(&self.spans, trimmed, known);
        report.faults.append(&mut self.faults);
        if let Some((place, len)) = self.tail {
            report.faults.push(LogFault::Torn { place, len });
        }
        self.control_records.apply_to(&mut report);
        report
    }
}

trait BySequence {
    fn max_by_sequence(self, other: Self) -> Self;
}

impl BySequence for Option<Head> {
    fn max_by_sequence(self, other: Self) -> Self {
        match (self, other) {
            (Some(a), Some(b)) if a.sequence >= b.sequence => Some(a),
            (first, None) => first,
            (_, other) => other,
        }
    }
}

#[cfg(test)]
mod tests;
