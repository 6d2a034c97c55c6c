//! Finds records through the view. Each is read from the log and judged again, so that a view that is wrong
//! gives fewer answers and no false ones.

use std::collections::BinaryHeap;
use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::store::audit::index::IndexedPlace;
use mgp_engine::store::audit::index::open::OpenBlock;
use mgp_engine::store::audit::index::sealed::{BlockSummary, ListDamaged};
use mgp_engine::store::audit::query::{FOUND_MAX, RecordFilter, SoughtRecords};
use mgp_engine::store::audit::record::AuditRecord;
use mgp_runtime::time::moment;
use serde_json::value::RawValue;

use super::database::ViewDatabase;
use super::keys::{BlockNumber, RecordPlace};
use super::lines::RecordReader;
use crate::audit::{Folder, numbered};

/// Records read for one answer: more are left to the next one, so that the view goes on growing between.
const LOOKED_MAX: usize = 10_000;
/// How long is looked for one answer, for the same reason; what was begun is ended.
const LOOKING: Duration = Duration::from_secs(2);
/// Bytes of events in one answer: what a peer can read in one message. The first event is included whatever
/// its size.
const FOUND_BYTES: usize = 1 << 20;

/// What is asked of the view.
#[derive(Clone, Debug)]
pub(super) struct ViewQuery {
    pub(super) filter: RecordFilter,
    pub(super) after: Option<RecordPlace>,
    pub(super) limit: usize,
}

/// What it found.
#[derive(Debug, Default)]
pub(super) struct FoundRecords {
    pub(super) events: Vec<Box<RawValue>>,
    bytes: usize,
    looked: usize,
    /// The place of the last record that was looked at, where there may be more.
    pub(super) more: Option<RecordPlace>,
}

impl FoundRecords {
    fn is_full(&self, limit: usize) -> bool {
        self.events.len() >= limit || self.bytes > FOUND_BYTES || self.looked >= LOOKED_MAX
    }
}

/// Where it is looked.
pub(super) struct ViewLook<'a> {
    pub(super) database: &'a ViewDatabase,
    /// What is in no block of the database yet, and the file it is of.
    pub(super) open: (u64, &'a OpenBlock),
    pub(super) folder: &'a Folder,
}

/// Records that may be found, of one file.
struct SoughtPlaces<'a> {
    look: &'a ViewLook<'a>,
    sought: SoughtRecords,
    /// Only those before it are left.
    before: Option<RecordPlace>,
    /// Blocks that were not looked through yet, the one that ends last at the end.
    blocks: Vec<(BlockNumber, BlockSummary)>,
    /// Those found in the blocks that were. At most those of one block, unless the clock was set back.
    places: BinaryHeap<IndexedPlace>,
}

impl ViewQuery {
    /// Looks through the files of the log, the newest first.
    pub(super) fn find(&self, look: &ViewLook<'_>) -> Result<FoundRecords, String> {
        let began = moment();
        let mut found = FoundRecords::default();
        // A log that cannot be read has no answers; the view is none the worse for it.
        let files = look.folder.numbers().unwrap_or_default();
        let mut reader = RecordReader::new(look.folder);
        let newest = self.after.map_or(u64::MAX, |after| after.number);
        for number in files.into_iter().rev().filter(|n| *n <= newest) {
            self.in_file(number, look, &mut reader, &mut found)?;
            if found.more.is_none() && is_late(began) {
                found.more = Some(RecordPlace {
                    number,
                    at_ms: 0,
                    offset: 0,
                });
            }
            if found.more.is_some() {
                break;
            }
        }
        Ok(found)
    }

    fn in_file(
        &self,
        number: u64,
        look: &ViewLook<'_>,
        reader: &mut RecordReader<'_>,
        found: &mut FoundRecords,
    ) -> Result<(), String> {
        let mut left = SoughtPlaces::of(number, look, self)?;
        while let Some(place) = left.next()? {
            self.look(number, place, reader, found);
            if found.is_full(self.limit.min(FOUND_MAX)) {
                found.more = Some(in_file(number, &place));
                return Ok(());
            }
        }
        Ok(())
    }

    fn look(
        &self,
        number: u64,
        place: IndexedPlace,
        reader: &mut RecordReader<'_>,
        found: &mut FoundRecords,
    ) {
        found.looked += 1;
        let Some(line) = reader.line(number, place.offset, place.len) else {
            return;
        };
        let record = AuditRecord::parse(&line).filter(|record| self.filter.judge(record.event));
        let event = record.and_then(|record| numbered(record.sequence, record.event));
        if let Some(event) = event.and_then(|event| RawValue::from_string(event).ok()) {
            found.bytes += event.get().len();
            found.events.push(event);
        }
    }
}

impl<'a> SoughtPlaces<'a> {
    fn of(number: u64, look: &'a ViewLook<'a>, query: &ViewQuery) -> Result<Self, String> {
        let sought = query.filter.sought();
        let before = query.after.filter(|after| after.number == number);
        let mut blocks = look.database.blocks(number).to_vec();
        blocks.retain(|(_, block)| {
            block.last_ms >= sought.since_ms
                && block.first_ms < sought.until_ms
                && before.is_none_or(|before| block.first_ms <= before.at_ms)
        });
        blocks.sort_by_key(|(_, block)| block.last_ms);
        let mut left = Self {
            look,
            sought,
            before,
            blocks,
            places: BinaryHeap::new(),
        };
        if look.open.0 == number {
            let places = look.open.1.find(&left.sought);
            left.take(number, places);
        }
        Ok(left)
    }

    fn take(&mut self, number: u64, places: Vec<IndexedPlace>) {
        let before = self.before;
        let is_left =
            |place: &IndexedPlace| before.is_none_or(|before| in_file(number, place) < before);
        self.places.extend(places.into_iter().filter(is_left));
    }

    /// The newest one that is left: what a block has that was not looked through yet is older.
    fn next(&mut self) -> Result<Option<IndexedPlace>, String> {
        while let Some((number, block)) = self.blocks.last().copied() {
            if self
                .places
                .peek()
                .is_some_and(|place| place.at_ms > block.last_ms)
            {
                break;
            }
            self.blocks.pop();
            let list = |list| self.look.database.list(number, list).map_err(LookFailed);
            let places = block.find(&self.sought, list).map_err(|failed| failed.0)?;
            self.take(block.file, places);
        }
        Ok(self.places.pop())
    }
}

fn is_late(began: MonotonicTime) -> bool {
    moment().since(began) >= LOOKING
}

/// The view is of no use, in words.
struct LookFailed(String);

impl From<ListDamaged> for LookFailed {
    fn from(damaged: ListDamaged) -> Self {
        Self(damaged.to_string())
    }
}

fn in_file(number: u64, place: &IndexedPlace) -> RecordPlace {
    RecordPlace {
        number,
        at_ms: place.at_ms,
        offset: place.offset,
    }
}
