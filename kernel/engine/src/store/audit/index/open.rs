//! The last block of a view: it is in memory and takes further records.

use super::places::{IndexedPlace, PIECE};
use super::postings;
use super::sealed::{BlockList, BlockSummary, SealedBlock};
use super::traces::{self, TraceKey};
use crate::store::audit::query::{IndexedEvent, RecordIndex, SoughtRecords, ValueHash};

/// Records of one file, in the order they were read. At some 100 bytes each, a full one takes 2 MB.
#[derive(Clone, Debug, Default)]
pub struct OpenBlock {
    places: Vec<IndexedPlace>,
    /// What each can be found by, record by record.
    values: Vec<(RecordIndex, ValueHash, u16)>,
}

impl OpenBlock {
    /// Adds a record. There is room for [`super::BLOCK_RECORDS`].
    pub fn add(&mut self, event: &IndexedEvent<'_>, offset: u64, len: u32) {
        let record = u16::try_from(self.places.len()).expect("a block has room for fewer");
        self.places.push(IndexedPlace {
            at_ms: event.at_ms,
            offset,
            len,
        });
        let values = event.values.iter();
        let values = values.map(|(index, value)| (*index, ValueHash::of(value), record));
        self.values.extend(values);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Those that may be sought, in any order.
    #[must_use]
    pub fn find(&self, sought: &SoughtRecords) -> Vec<IndexedPlace> {
        let mut kept: Option<Vec<u16>> = None;
        for asked in &sought.values {
            let has = self
                .values
                .iter()
                .filter(|(index, hash, _)| (*index, *hash) == *asked);
            let has: Vec<u16> = has.map(|(_, _, record)| *record).collect();
            match &mut kept {
                Some(kept) => postings::intersect(kept, &has),
                None => kept = Some(has),
            }
        }
        let places: Vec<IndexedPlace> = match kept {
            Some(kept) => kept
                .into_iter()
                .map(|record| self.places[usize::from(record)])
                .collect(),
            None => self.places.clone(),
        };
        places
            .into_iter()
            .filter(|place| sought.is_in_time(place.at_ms))
            .collect()
    }

    /// Ends it: as it is written, a block of this file.
    #[must_use]
    pub fn seal(&self, file: u64, nth: u32) -> Option<SealedBlock> {
        let mut order: Vec<u16> = (0..).take(self.places.len()).collect();
        order.sort_unstable_by_key(|record| self.places[usize::from(*record)]);
        let places: Vec<IndexedPlace> = order
            .iter()
            .map(|record| self.places[usize::from(*record)])
            .collect();
        let mut ordinals = vec![0; order.len()];
        for (ordinal, record) in (0..).zip(&order) {
            ordinals[usize::from(*record)] = ordinal;
        }
        let summary = BlockSummary {
            file,
            nth,
            records: u32::try_from(places.len()).ok()?,
            first_ms: places.first()?.at_ms,
            last_ms: places.last()?.at_ms,
        };
        let mut lists = Vec::new();
        for (n, piece) in (0..).zip(places.chunks(PIECE)) {
            lists.push((BlockList::Places(n), super::places::encode(piece)));
        }
        self.seal_values(&ordinals, &mut lists);
        Some(SealedBlock { summary, lists })
    }

    fn seal_values(&self, ordinals: &[u16], lists: &mut Vec<(BlockList, Vec<u8>)>) {
        let ordered = |record: &u16| ordinals[usize::from(*record)];
        let is_trace = |index: &RecordIndex| *index == RecordIndex::Trace;
        let traced = self.values.iter().filter(|(index, ..)| is_trace(index));
        let mut traced: Vec<_> = traced
            .map(|(_, hash, record)| (TraceKey::of(*hash), ordered(record)))
            .collect();
        traced.sort_unstable();
        for list in traced.chunk_by(|one, other| one.0.bucket == other.0.bucket) {
            lists.push((BlockList::Traces(list[0].0.bucket), traces::encode(list)));
        }
        let named = self.values.iter().filter(|(index, ..)| !is_trace(index));
        let mut named: Vec<_> = named
            .map(|(index, hash, record)| (*index, *hash, ordered(record)))
            .collect();
        named.sort_unstable();
        // Two names of one record with the same hash.
        named.dedup();
        for list in named.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            let ordinals: Vec<u16> = list.iter().map(|(_, _, ordinal)| *ordinal).collect();
            lists.push((
                BlockList::Value(list[0].0, list[0].1),
                postings::encode(&ordinals),
            ));
        }
    }
}
