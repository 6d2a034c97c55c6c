//! Finds records through the view. Each record is read from the log and checked again, so that a wrong view omits
//! records but never returns false ones.

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

/// Maximum number of records read for one answer, so that the view can grow between answers.
const EXAMINED_MAX: usize = 10_000;
/// Maximum search time for one answer, for the same reason; a step in progress is finished.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum bytes of events in one answer, so that a peer can read it in one message. The first event is included
/// whatever its size.
const FOUND_BYTES: usize = 1 << 20;

/// A query to the view.
#[derive(Clone, Debug)]
pub(super) struct ViewQuery {
    pub(super) filter: RecordFilter,
    pub(super) after: Option<RecordPosition>,
    pub(super) limit: usize,
}

/// The result of a query.
#[derive(Debug, Default)]
pub(super) struct MatchedRecords {
    pub(super) events: Vec<Box<RawValue>>,
    bytes: usize,
    examined: usize,
    /// The position of the last examined record, if there may be more.
    pub(super) next: Option<RecordPosition>,
}

impl MatchedRecords {
    fn is_full(&self, limit: usize) -> bool {
        self.events.len() >= limit || self.bytes > FOUND_BYTES || self.examined >= EXAMINED_MAX
    }
}

/// The data that is searched.
pub(super) struct SearchSource<'a> {
    pub(super) database: &'a ViewDatabase,
    /// The block that is not in the database yet, and the number of its file.
    pub(super) open: (u64, &'a OpenBlock),
    pub(super) folder: &'a LogFolder,
}

/// Candidate records of one file.
struct CandidateRecords<'a> {
    source: &'a SearchSource<'a>,
    filter: HashedFilter,
    /// Only records before this position are candidates.
    before: Option<RecordPosition>,
    /// Blocks that were not searched yet, the one with the latest end last.
    blocks: Vec<(BlockNumber, BlockSummary)>,
    /// Matches in the searched blocks: at most one block's, unless the clock was set back.
    locations: BinaryHeap<RecordLocation>,
}

impl ViewQuery {
    /// Searches the files of the log, newest first.
    pub(super) fn find(&self, source: &SearchSource<'_>) -> Result<MatchedRecords, String> {
        let began = monotonic_now();
        let mut found = MatchedRecords::default();
        // A log that cannot be read has no answers; this is no fault of the view.
        let files = source.folder.numbers().unwrap_or_default();
        let mut reader = RecordReader::new(source.folder);
        let newest = self.after.map_or(u64::MAX, |after| after.number);
        for number in files.into_iter().rev().filter(|n| *n <= newest) {
            self.search_file(number, source, &mut reader, &mut found)?;
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
        source: &SearchSource<'_>,
        reader: &mut RecordReader<'_>,
        found: &mut MatchedRecords,
    ) -> Result<(), String> {
        let mut candidates = CandidateRecords::new(number, source, self)?;
        while let Some(place) = candidates.next()? {
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
    fn new(number: u64, source: &'a SearchSource<'a>, query: &ViewQuery) -> Result<Self, String> {
        let filter = query.filter.to_hashed();
        let before = query.after.filter(|after| after.number == number);
        let mut blocks = source.database.blocks(number).to_vec();
        blocks.retain(|(_, block)| {
            block.last_ms >= filter.since_ms
                && block.first_ms < filter.until_ms
                && before.is_none_or(|before| block.first_ms <= before.at_ms)
        });
        blocks.sort_by_key(|(_, block)| block.last_ms);
        let mut candidates = Self {
            source,
            filter,
            before,
            blocks,
            locations: BinaryHeap::new(),
        };
        if source.open.0 == number {
            let locations = source.open.1.find(&candidates.filter);
            candidates.add_locations(number, locations);
        }
        Ok(candidates)
    }

    fn add_locations(&mut self, number: u64, locations: Vec<RecordLocation>) {
        let before = self.before;
        let is_left = |place: &RecordLocation| {
            before.is_none_or(|before| record_position(number, place) < before)
        };
        self.locations.extend(locations.into_iter().filter(is_left));
    }

    /// The newest remaining candidate: blocks that were not searched yet have only older ones.
    fn next(&mut self) -> Result<Option<RecordLocation>, String> {
        while let Some((number, block)) = self.blocks.last().copied() {
            if self
                .locations
                .peek()
                .is_some_and(|place| place.at_ms > block.last_ms)
            {
                break;
            }
            self.blocks.pop();
            let list = |list| self.source.database.list(number, list).map_err(SearchError);
            let locations = block.find(&self.filter, list).map_err(|failed| failed.0)?;
            self.add_locations(block.file, locations);
        }
        Ok(self.locations.pop())
    }
}

fn is_out_of_time(began: MonotonicTime) -> bool {
    monotonic_now().duration_since(began) >= SEARCH_TIMEOUT
}

/// Describes why the view is unusable.
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
