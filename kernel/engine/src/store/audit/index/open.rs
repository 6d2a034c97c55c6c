//! The last block of an index: it is in memory and accepts more records.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::positions::{PIECE_RECORDS, RecordLocation};
use super::postings;
use super::sealed::{BlockList, BlockSummary, SealedBlock};
use super::traces::{self, TraceKey};
use crate::store::audit::query::{HashedFilter, IndexedEvent, RecordIndex, ValueHash};

/// Records of one file, in the order they were read. At some 50 bytes each, a full block takes 800 kB, or 5 MB if no two
/// records share a name.
#[derive(Clone, Debug, Default)]
pub struct OpenBlock {
    positions: Vec<RecordLocation>,
    /// The records of each name, in order.
    by_value: BTreeMap<(RecordIndex, ValueHash), Vec<u16>>,
    /// The hashes of traces, and the record of each. Not sorted until the block is sealed: a trace has few records.
    traces: (Vec<ValueHash>, Vec<u16>),
}

impl OpenBlock {
    /// Adds a record, at most [`super::BLOCK_RECORDS_MAX`].
    pub fn add(&mut self, event: &IndexedEvent<'_>, offset: u64, len: u32) {
        let record = u16::try_from(self.positions.len()).expect("a block has fewer records");
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

    /// The number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether it has no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The records that may match, in any order.
    #[must_use]
    pub fn find(&self, filter: &HashedFilter) -> Vec<RecordLocation> {
        let mut matching: Option<Vec<u16>> = None;
        for value in &filter.values {
            let records = self.records_with(*value);
            match &mut matching {
                Some(matching) => postings::intersect(matching, &records),
                None => matching = Some(records.into_owned()),
            }
        }
        let locations: Vec<RecordLocation> = match matching {
            Some(matching) => matching
                .into_iter()
                .map(|record| self.positions[usize::from(record)])
                .collect(),
            None => self.positions.clone(),
        };
        locations
            .into_iter()
            .filter(|location| filter.is_in_range(location.at_ms))
            .collect()
    }

    /// The records with this value, in order.
    fn records_with(&self, value: (RecordIndex, ValueHash)) -> Cow<'_, [u16]> {
        if value.0 != RecordIndex::Trace {
            return Cow::Borrowed(self.by_value.get(&value).map_or(&[], Vec::as_slice));
        }
        let (hashes, records) = &self.traces;
        let has = hashes.iter().zip(records);
        has.filter(|(hash, _)| **hash == value.1)
            .map(|(_, record)| *record)
            .collect()
    }

    /// Seals the block as the one with this index in the file.
    #[must_use]
    pub fn seal(&self, file: u64, index_in_file: u32) -> Option<SealedBlock> {
        let mut order: Vec<u16> = (0..).take(self.positions.len()).collect();
        order.sort_unstable_by_key(|record| self.positions[usize::from(*record)]);
        let locations: Vec<RecordLocation> = order
            .iter()
            .map(|record| self.positions[usize::from(*record)])
            .collect();
        let mut ordinals = vec![0; order.len()];
        for (ordinal, record) in (0..).zip(&order) {
            ordinals[usize::from(*record)] = ordinal;
        }
        let summary = BlockSummary {
            file,
            index_in_file,
            records: u32::try_from(locations.len()).ok()?,
            first_ms: locations.first()?.at_ms,
            last_ms: locations.last()?.at_ms,
        };
        let mut lists = Vec::new();
        for (n, piece) in (0..).zip(locations.chunks(PIECE_RECORDS)) {
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
        for list in traced.chunk_by(|a, b| a.0.bucket == b.0.bucket) {
            lists.push((BlockList::Traces(list[0].0.bucket), traces::encode(list)));
        }
        for ((index, hash), records) in &self.by_value {
            let mut ordinals: Vec<u16> = records.iter().map(ordered).collect();
            ordinals.sort_unstable();
            lists.push((BlockList::Value(*index, *hash), postings::encode(&ordinals)));
        }
    }
}
