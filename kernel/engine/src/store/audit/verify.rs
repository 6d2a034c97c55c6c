//! Names what is wrong with a log: what was changed, removed, moved, duplicated, put in or cut off.
//!
//! Records that follow each other rightly make up a run, so that a log of any length is held in as many
//! words as it has wounds.

mod diagnosis;
mod own;
mod words;

use self::own::OwnRecords;
use super::chain::Head;
use super::reader::{LogItem, Stretch};
use super::record::{AuditRecord, RecordDigest};

pub use self::own::{ACCEPTED_MAX, acceptance};

/// More wounds than this are not told apart: the log as a whole is not to be trusted, and finding the
/// fewest moves takes the square of their number.
pub const MAX_SPANS: usize = 2_048;

/// Where in the log's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentOffset {
    /// Number of the segment.
    pub segment: u64,
    /// Byte within its file.
    pub offset: u64,
}

/// Something wrong. Numbers are those of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFault {
    /// A record is not as it was written: its bytes differ, or its successor remembers another hash.
    Changed {
        /// Which; by its place when its number cannot be read any more.
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
    /// Records stand where others should be.
    Moved {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
        /// Their place.
        place: SegmentOffset,
    },
    /// Records stand there once more.
    Duplicated {
        /// The first.
        from: u64,
        /// The last.
        to: u64,
        /// The place of the repetition.
        place: SegmentOffset,
    },
    /// What stands there is no record and takes no record's place.
    Foreign {
        /// Its place.
        place: SegmentOffset,
    },
    /// The log does not begin with what it was trimmed to.
    Unanchored {
        /// The first record there is.
        first: u64,
    },
    /// A newline between records is another byte.
    Separator {
        /// The record before it.
        sequence: u64,
        /// The place of the byte.
        place: SegmentOffset,
    },
    /// The end of the last file is a piece of a record. It was never acknowledged.
    Torn {
        /// Where the piece begins: what to cut the file to.
        place: SegmentOffset,
        /// How many bytes it has.
        len: u64,
    },
    /// The last record lacks its newline.
    Unterminated {
        /// The place it belongs to.
        place: SegmentOffset,
    },
    /// More wounds than are told apart; nothing was looked at from here on.
    TooMany {
        /// The place where the verification ended.
        place: SegmentOffset,
    },
}

/// What is to be done with the log before it may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing.
    Nothing,
    /// Cut the last file to this length, and write down that it was done.
    Cut(SegmentOffset),
    /// Write a newline there.
    Terminate(SegmentOffset),
    /// Nothing by itself: the log stops, with this named to the operator.
    Stop(LogFault),
}

/// The result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How many records are as they were written.
    pub records: u64,
    /// The last of them in order, to go on from.
    pub head: Head,
    /// What is wrong, and was not acknowledged.
    pub faults: Vec<LogFault>,
    /// What is wrong and was acknowledged by the operator.
    pub accepted: Vec<LogFault>,
    /// Records that tell of damage nobody has acknowledged: what they tell of may not be seen in the log any
    /// more.
    pub damage: Vec<u64>,
}

impl Report {
    /// What to do at the kernel's start. A torn tail was never acknowledged and is cut; any other damage
    /// stops the log.
    #[must_use]
    pub fn repair(&self) -> Repair {
        let mut repair = Repair::Nothing;
        for fault in &self.faults {
            repair = if let LogFault::Torn { place, .. } = fault {
                Repair::Cut(*place)
            } else if let LogFault::Unterminated { place } = fault {
                Repair::Terminate(*place)
            } else {
                return Repair::Stop(*fault);
            };
        }
        repair
    }
}

/// A run of records that follow each other, or something that is no record.
#[derive(Clone, Copy, Debug)]
enum Span {
    Run(Run),
    Damaged(SegmentOffset, Option<u64>),
}

#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    last: u64,
    /// Before the first; unknown for a run that was divided.
    previous: Option<RecordDigest>,
    /// Of the last; unknown for a run that was divided.
    hash: Option<RecordDigest>,
    place: SegmentOffset,
}

/// Takes a log item by item, segment by segment, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    spans: Vec<Span>,
    known: Option<Head>,
    /// How far the log was trimmed before what is looked at.
    anchor: Option<Head>,
    /// What the log says of itself.
    own: OwnRecords,
    /// The end of a file that is torn, until something follows it.
    tail: Option<(SegmentOffset, u64)>,
    /// What is known at once.
    faults: Vec<LogFault>,
    full: bool,
}

impl Verifier {
    /// Nothing looked at yet. `known` is a record that is known from elsewhere to have been there,
    /// best the last: without it, whole records cut off the end leave no trace.
    #[must_use]
    pub fn new(known: Option<Head>) -> Self {
        Self {
            known,
            ..Self::default()
        }
    }

    /// Nothing looked at yet of the part of a log that goes on after `anchor`.
    #[must_use]
    pub fn after(anchor: Head, known: Option<Head>) -> Self {
        Self {
            anchor: Some(anchor),
            ..Self::new(known)
        }
    }

    /// Takes the next item of the segment with this number.
    pub fn take(&mut self, segment: u64, item: &LogItem<'_>) {
        let at = |s: &Stretch| SegmentOffset {
            segment,
            offset: s.offset,
        };
        if self.full {
            return;
        }
        if let Some((place, _)) = self.tail.take() {
            self.push(Span::Damaged(place, None));
        }
        match item {
            LogItem::Record(s, record) => self.record(at(s), record),
            LogItem::Damaged(s, stated) => self.push(Span::Damaged(at(s), *stated)),
            LogItem::Separator(s) => {
                let sequence = self.last_sequence();
                self.fault(LogFault::Separator {
                    sequence,
                    place: at(s),
                });
            }
            LogItem::Torn(s) => self.tail = Some((at(s), s.len)),
            LogItem::Unterminated(s) => self.fault(LogFault::Unterminated { place: at(s) }),
        }
    }

    fn record(&mut self, place: SegmentOffset, record: &AuditRecord<'_>) {
        self.own.note(record);
        let other = |k: Head| k.sequence == record.sequence && k.hash != record.hash;
        if self.known.is_some_and(other) {
            let sequence = record.sequence;
            self.fault(LogFault::Changed { sequence, place });
        }
        if let Some(Span::Run(run)) = self.spans.last_mut() {
            let follows = run.last.checked_add(1) == Some(record.sequence);
            if follows && run.hash == Some(record.previous) {
                run.last = record.sequence;
                run.hash = Some(record.hash);
                return;
            }
        }
        self.push(Span::Run(Run {
            first: record.sequence,
            last: record.sequence,
            previous: Some(record.previous),
            hash: Some(record.hash),
            place,
        }));
    }

    fn last_sequence(&self) -> u64 {
        match self.spans.last() {
            Some(Span::Run(run)) => run.last,
            Some(Span::Damaged(..)) | None => 0,
        }
    }

    fn push(&mut self, span: Span) {
        if self.spans.len() < MAX_SPANS {
            self.spans.push(span);
            return;
        }
        let (Span::Run(Run { place, .. }) | Span::Damaged(place, _)) = span;
        self.full = true;
        self.faults.push(LogFault::TooMany { place });
    }

    /// Faults that are no spans are bounded as spans are.
    fn fault(&mut self, fault: LogFault) {
        if self.faults.len() < MAX_SPANS {
            self.faults.push(fault);
        } else {
            self.full = true;
        }
    }

    /// Judges the whole.
    #[must_use]
    pub fn finish(mut self) -> Report {
        let known = self.known.filter(|_| !self.full);
        let trimmed = self.anchor.max_by_sequence(self.own.trimmed);
        let mut report = diagnosis::judge(&self.spans, trimmed, known);
        report.faults.append(&mut self.faults);
        if let Some((place, len)) = self.tail {
            report.faults.push(LogFault::Torn { place, len });
        }
        self.own.settle(&mut report);
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
            (one, None) => one,
            (_, other) => other,
        }
    }
}

#[cfg(test)]
mod tests;
