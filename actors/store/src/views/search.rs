//! Finds records through the view. Each is read from the log and checked again, so that a wrong view gives fewer
//! answers and no false ones.

use std::collections::BinaryHeap;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::store::audit::index::RecordLocation;
use mgp_engine::store::audit::index::open::OpenBlock;
use mgp_engine::store::audit::index::sealed::{BlockSummary, ListDamagedError};
use mgp_engine::store::audit::query::{HashedFilter, RESULTS_MAX, RecordFilter};
use mgp_engine::store::audit::record::AuditRecord;
use mgp_runtime::time::monotonic_now;
use serde_json::value::RawValue;

use super::database::ViewDatabase;
use super::keys::{BlockNumber, RecordPosition};
use super::lines::RecordReader;
use crate::audit::{LogFolder, with_sequence};

/// Records read for one answer: more are left to the next one, so that the view goes on growing between.
const EXAMINED_MAX: usize = 10_000;
/// How long is looked for one answer, for the same reason; what was begun is ended.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of events in one answer: what a peer can read in one message. The first event is included whatever
/// its size.
const FOUND_BYTES: usize = 1 << 20;

/// What is asked of the view.
#[derive(Clone, Debug)]
pub(super) struct ViewQuery {
    pub(super) filter: RecordFilter,
    pub(super) after: Option<RecordPosition>,
    pub(super) limit: usize,
}

/// What it found.
#[derive(Debug, Default)]
pub(super) struct MatchedRecords {
    pub(super) events: Vec<Box<RawValue>>,
    bytes: usize,
    examined: usize,
    /// The place of the last record that was looked at, where there may be more.
    pub(super) next: Option<RecordPosition>,
}

impl MatchedRecords {
    fn is_full(&self, limit: usize) -> bool {
        self.events.len() >= limit || self.bytes > FOUND_BYTES || self.examined >= EXAMINED_MAX
    }
}

/// Where it is looked.
pub(super) struct SearchSource<'a> {
    pub(super) database: &'a ViewDatabase,
    /// What is in no block of the database yet, and the file it is of.
    pub(super) open: (u64, &'a OpenBlock),
    pub(super) folder: &'a LogFolder,
}

/// Records that may be found, of one file.
struct CandidateRecords<'a> {
    source: &'a SearchSource<'a>,
    filter: HashedFilter,
    /// Only those before it are left.
    before: Option<RecordPosition>,
    /// Blocks that were not looked through yet, the one that ends last at the end.
    blocks: Vec<(BlockNumber, BlockSummary)>,
    /// Those found in the blocks that were. At most those of one block, unless the clock was set back.
    places: BinaryHeap<RecordLocation>,
}

impl ViewQuery {
    /// Looks through the files of the log, the newest first.
    pub(super) fn find(&self, look: &SearchSource<'_>) -> Result<MatchedRecords, String> {
        let began = monotonic_now();
        let mut found = MatchedRecords::default();
        // A log that cannot be read has no answers; the view is none the worse for it.
        let files = look.folder.numbers().unwrap_or_default();
        let mut reader = RecordReader::new(look.folder);
        let newest = self.after.map_or(u64::MAX, |after| after.number);
        for number in files.into_iter().rev().filter(|n| *n <= newest) {
            self.search_file(number, look, &mut reader, &mut found)?;
            if found.next.is_none() && is_out_of_time(began) {
                found.next = Some(RecordPosition {
                    number,
                    at_ms: 0,
                    offset: 0,
                });
            }
            if found.next.is_some() {
                break;
            }
        }
        Ok(found)
    }

    fn search_file(
        &self,
        number: u64,
        look: &SearchSource<'_>,
        reader: &mut RecordReader<'_>,
        found: &mut MatchedRecords,
    ) -> Result<(), String> {
        let mut left = CandidateRecords::new(number, look, self)?;
        while let Some(place) = left.next()? {
            self.check_record(number, place, reader, found);
            if found.is_full(self.limit.min(RESULTS_MAX)) {
                found.next = Some(record_position(number, &place));
                return Ok(());
            }
        }
        Ok(())
    }

    fn check_record(
        &self,
        number: u64,
        place: RecordLocation,
        reader: &mut RecordReader<'_>,
        found: &mut MatchedRecords,
    ) {
        found.examined += 1;
        let Some(line) = reader.read_line(number, place.offset, place.len) else {
            return;
        };
        let record = AuditRecord::parse(&line).filter(|record| self.filter.matches(record.event));
        let event = record.and_then(|record| with_sequence(record.sequence, record.event));
        if let Some(event) = event.and_then(|event| RawValue::from_string(event).ok()) {
            found.bytes += event.get().len();
            found.events.push(event);
        }
    }
}

impl<'a> CandidateRecords<'a> {
    fn new(number: u64, look: &'a SearchSource<'a>, query: &ViewQuery) -> Result<Self, String> {
        let sought = query.filter.to_hashed();
        let before = query.after.filter(|after| after.number == number);
        let mut blocks = look.database.blocks(number).to_vec();
        blocks.retain(|(_, block)| {
            block.last_ms >= sought.since_ms
                && block.first_ms < sought.until_ms
                && before.is_none_or(|before| block.first_ms <= before.at_ms)
        });
        blocks.sort_by_key(|(_, block)| block.last_ms);
        let mut left = Self {
            source: look,
            filter: sought,
            before,
            blocks,
            places: BinaryHeap::new(),
        };
        if look.open.0 == number {
            let places = look.open.1.find(&left.filter);
            left.add_places(number, places);
        }
        Ok(left)
    }

    fn add_places(&mut self, number: u64, places: Vec<RecordLocation>) {
        let before = self.before;
        let is_left = |place: &RecordLocation| {
            before.is_none_or(|before| record_position(number, place) < before)
        };
        self.places.extend(places.into_iter().filter(is_left));
    }

    /// The newest one that is left: what a block has that was not looked through yet is older.
    fn next(&mut self) -> Result<Option<RecordLocation>, String> {
        while let Some((number, block)) = self.blocks.last().copied() {
            if self
                .places
                .peek()
                .is_some_and(|place| place.at_ms > block.last_ms)
            {
                break;
            }
            self.blocks.pop();
            let list = |list| self.source.database.list(number, list).map_err(SearchError);
            let places = block.find(&self.filter, list).map_err(|failed| failed.0)?;
            self.add_places(block.file, places);
        }
        Ok(self.places.pop())
    }
}

fn is_out_of_time(began: MonotonicTime) -> bool {
    monotonic_now().duration_since(began) >= SEARCH_TIMEOUT
}

/// The view is of no use, in words.
struct SearchError(String);

impl From<ListDamagedError> for SearchError {
    fn from(damaged: ListDamagedError) -> Self {
        Self(damaged.to_string())
    }
}

fn record_position(number: u64, place: &RecordLocation) -> RecordPosition {
    RecordPosition {
        number,
        at_ms: place.at_ms,
        offset: place.offset,
    }
}
