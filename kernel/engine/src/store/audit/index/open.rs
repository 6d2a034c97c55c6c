//! The last block of a view: it is in memory and takes further records.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::positions::{PIECE_RECORDS, RecordLocation};
use super::postings;
use super::sealed::{BlockList, BlockSummary, SealedBlock};
use super::traces::{self, TraceKey};
use crate::store::audit::query::{HashedFilter, IndexedEvent, RecordIndex, ValueHash};

/// Records of one file, in the order they were read. At some 50 bytes each, a full one takes 800 kB; 5 MB where no two
/// records have a name in common.
#[derive(Clone, Debug, Default)]
pub struct OpenBlock {
    positions: Vec<RecordLocation>,
    /// The records of each name, in order.
    by_value: BTreeMap<(RecordIndex, ValueHash), Vec<u16>>,
    /// Traces are of a handful of records each, so they are not sorted until the block is sealed: the hashes, and the
    /// record of each.
    traces: (Vec<ValueHash>, Vec<u16>),
}

impl OpenBlock {
    /// Adds a record. There is room for [`super::BLOCK_RECORDS_MAX`].
    pub fn add(&mut self, event: &IndexedEvent<'_>, offset: u64, len: u32) {
        let record = u16::try_from(self.positions.len()).expect("a block has room for fewer");
        self.positions.push(RecordLocation {
            at_ms: event.at_ms,
            offset,
            len,
        });
        for (index, value) in &event.values {
            let hash = ValueHash::from_value(value);
            if *index == RecordIndex::Trace {
                self.traces.0.push(hash);
                self.traces.1.push(record);
                continue;
            }
            let records = self.by_value.entry((*index, hash)).or_default();
            // Two names of one record with the same hash.
            if records.last() != Some(&record) {
                records.push(record);
            }
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Those that may be sought, in any order.
    #[must_use]
    pub fn find(&self, sought: &HashedFilter) -> Vec<RecordLocation> {
        let mut kept: Option<Vec<u16>> = None;
        for asked in &sought.values {
            let has = self.records_with(*asked);
            match &mut kept {
                Some(kept) => postings::intersect(kept, &has),
                None => kept = Some(has.into_owned()),
            }
        }
        let places: Vec<RecordLocation> = match kept {
            Some(kept) => kept
                .into_iter()
                .map(|record| self.positions[usize::from(record)])
                .collect(),
            None => self.positions.clone(),
        };
        places
            .into_iter()
            .filter(|place| sought.is_in_range(place.at_ms))
            .collect()
    }

    /// The records that can be found by this, in order.
    fn records_with(&self, asked: (RecordIndex, ValueHash)) -> Cow<'_, [u16]> {
        if asked.0 != RecordIndex::Trace {
            return Cow::Borrowed(self.by_value.get(&asked).map_or(&[], Vec::as_slice));
        }
        let (hashes, records) = &self.traces;
        let has = hashes.iter().zip(records);
        has.filter(|(hash, _)| **hash == asked.1)
            .map(|(_, record)| *record)
            .collect()
    }

    /// Ends it: as it is written, a block of this file.
    #[must_use]
    pub fn seal(&self, file: u64, nth: u32) -> Option<SealedBlock> {
        let mut order: Vec<u16> = (0..).take(self.positions.len()).collect();
        order.sort_unstable_by_key(|record| self.positions[usize::from(*record)]);
        let places: Vec<RecordLocation> = order
            .iter()
            .map(|record| self.positions[usize::from(*record)])
            .collect();
        let mut ordinals = vec![0; order.len()];
        for (ordinal, record) in (0..).zip(&order) {
            ordinals[usize::from(*record)] = ordinal;
        }
        let summary = BlockSummary {
            file,
            index_in_file: nth,
            records: u32::try_from(places.len()).ok()?,
            first_ms: places.first()?.at_ms,
            last_ms: places.last()?.at_ms,
        };
        let mut lists = Vec::new();
        for (n, piece) in (0..).zip(places.chunks(PIECE_RECORDS)) {
            lists.push((BlockList::Positions(n), super::positions::encode(piece)));
        }
        self.seal_values(&ordinals, &mut lists);
        Some(SealedBlock { summary, lists })
    }

    fn seal_values(&self, ordinals: &[u16], lists: &mut Vec<(BlockList, Vec<u8>)>) {
        let ordered = |record: &u16| ordinals[usize::from(*record)];
        let (hashes, records) = &self.traces;
        let traced = hashes.iter().zip(records);
        let mut traced: Vec<_> = traced
            .map(|(hash, record)| (TraceKey::from_hash(*hash), ordered(record)))
            .collect();
        traced.sort_unstable();
        for list in traced.chunk_by(|one, other| one.0.bucket == other.0.bucket) {
            lists.push((BlockList::Traces(list[0].0.bucket), traces::encode(list)));
        }
        for ((index, hash), records) in &self.by_value {
            let mut ordinals: Vec<u16> = records.iter().map(ordered).collect();
            ordinals.sort_unstable();
            lists.push((BlockList::Value(*index, *hash), postings::encode(&ordinals)));
        }
    }
}
