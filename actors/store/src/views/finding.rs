//! Finds records through the view. Each is read from the log and judged again, so that a view that is wrong
//! gives fewer answers and no false ones.

use mgp_engine::store::audit::query::{FOUND_MAX, RecordFilter};
use mgp_engine::store::audit::record::AuditRecord;
use serde_json::value::RawValue;

use super::database::ViewDatabase;
use super::keys::RecordPlace;
use super::lines::RecordReader;
use crate::audit::{Folder, numbered};

/// Records read for one answer: more are left to the next one, so that the view goes on growing between.
const LOOKED_MAX: usize = 10_000;
/// Places asked for at once.
const PLACES: usize = 1_000;
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

impl ViewQuery {
    /// Looks through the files of the log, the newest first.
    pub(super) fn find(
        &self,
        database: &ViewDatabase,
        folder: &Folder,
    ) -> Result<FoundRecords, String> {
        let mut found = FoundRecords::default();
        // A log that cannot be read has no answers; the view is none the worse for it.
        let files = folder.numbers().unwrap_or_default();
        let mut reader = RecordReader::new(folder);
        let newest = self.after.map_or(u64::MAX, |after| after.number);
        for number in files.into_iter().rev().filter(|n| *n <= newest) {
            self.in_file(number, database, &mut reader, &mut found)?;
            if found.more.is_some() {
                break;
            }
        }
        Ok(found)
    }

    fn in_file(
        &self,
        number: u64,
        database: &ViewDatabase,
        reader: &mut RecordReader<'_>,
        found: &mut FoundRecords,
    ) -> Result<(), String> {
        let (index, value) = self.filter.index();
        let prefix = RecordPlace::prefix(number, index, value);
        let at = |at_ms| RecordPlace {
            number,
            at_ms,
            offset: 0,
        };
        let low = at(self.filter.since_ms).key(prefix.clone());
        let end = at(self.filter.until_ms);
        let mut before = self.after.map_or(end, |after| after.min(end));
        loop {
            let high = before.key(prefix.clone());
            let places = database.places(low.clone(), high, PLACES)?;
            let last = places.len() < PLACES;
            for (place, len) in places {
                self.look(place, len, reader, found);
                before = place;
                if found.is_full(self.limit.min(FOUND_MAX)) {
                    found.more = Some(place);
                    return Ok(());
                }
            }
            if last {
                return Ok(());
            }
        }
    }

    fn look(
        &self,
        place: RecordPlace,
        len: u32,
        reader: &mut RecordReader<'_>,
        found: &mut FoundRecords,
    ) {
        found.looked += 1;
        let Some(line) = reader.line(place.number, place.offset, len) else {
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
