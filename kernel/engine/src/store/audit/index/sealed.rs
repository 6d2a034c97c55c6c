//! Sealed blocks, and the search in them.

use super::BLOCK_RECORDS_MAX;
use super::positions::{self, PIECE_RECORDS, RecordLocation};
use super::postings;
use super::traces::{self, TraceKey};
use super::varint::{VarintReader, put};
use crate::store::audit::query::{HashedFilter, RecordIndex, ValueHash};

/// The summary of a block, which is held in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSummary {
    /// The file of the log.
    pub file: u64,
    /// The number of blocks of that file before it.
    pub index_in_file: u32,
    /// The number of records.
    pub records: u32,
    /// The time of the oldest record, in milliseconds since 1970.
    pub first_ms: u64,
    /// The time of the newest record.
    pub last_ms: u64,
}

/// A list of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockList {
    /// A piece of the table.
    Positions(u8),
    /// The traces in this bucket.
    Traces(u8),
    /// The records of a value.
    Value(RecordIndex, ValueHash),
}

/// A block to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedBlock {
    /// The summary.
    pub summary: BlockSummary,
    /// All lists.
    pub lists: Vec<(BlockList, Vec<u8>)>,
}

/// A list is missing or invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a list of a block of records is damaged")]
pub struct ListDamagedError;

impl BlockList {
    /// The suffix after the key of its block.
    #[must_use]
    pub fn key_suffix(self) -> Vec<u8> {
        match self {
            Self::Positions(n) => vec![b'p', n],
            Self::Traces(bucket) => vec![RecordIndex::Trace.key_byte(), bucket],
            Self::Value(index, hash) => {
                let mut key = vec![index.key_byte()];
                key.extend_from_slice(&hash.0.to_be_bytes());
                key
            }
        }
    }
}

impl BlockSummary {
    /// Encodes it for storage.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.file);
        put(&mut out, self.index_in_file.into());
        put(&mut out, self.records.into());
        put(&mut out, self.first_ms);
        put(&mut out, self.last_ms - self.first_ms);
        out
    }

    /// Decodes a summary; `None` if it is invalid.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut read = VarintReader(bytes);
        let (file, index_in_file, records) = (read.read()?, read.read()?, read.read()?);
        let first_ms = read.read()?;
        let summary = Self {
            file,
            index_in_file: index_in_file.try_into().ok()?,
            records: u32::try_from(records).ok()?,
            first_ms,
            last_ms: first_ms.checked_add(read.read()?)?,
        };
        let records = 1..=BLOCK_RECORDS_MAX as u64;
        (read.is_empty() && records.contains(&summary.records.into())).then_some(summary)
    }

    /// The records that may match, in any order. `read` returns lists.
    ///
    /// # Errors
    /// Those of `read`, and [`ListDamagedError`].
    pub fn find<L: AsRef<[u8]>, E: From<ListDamagedError>>(
        &self,
        sought: &HashedFilter,
        mut read: impl FnMut(BlockList) -> Result<Option<L>, E>,
    ) -> Result<Vec<RecordLocation>, E> {
        let records = self.records as usize;
        let mut matching: Option<Vec<u16>> = None;
        for (index, hash) in &sought.values {
            let trace = TraceKey::from_hash(*hash);
            let (key, is_trace) = match index {
                RecordIndex::Trace => (BlockList::Traces(trace.bucket), true),
                RecordIndex::Tool
                | RecordIndex::Agent
                | RecordIndex::Server
                | RecordIndex::Result => (BlockList::Value(*index, *hash), false),
            };
            let Some(list) = read(key)? else {
                return Ok(Vec::new());
            };
            let ordinals = if is_trace {
                traces::find(list.as_ref(), trace, records)
            } else {
                postings::decode(list.as_ref(), records)
            };
            let ordinals = ordinals.ok_or(ListDamagedError)?;
            match &mut matching {
                Some(matching) => postings::intersect(matching, &ordinals),
                None => matching = Some(ordinals),
            }
            if matching.as_ref().is_some_and(Vec::is_empty) {
                return Ok(Vec::new());
            }
        }
        let matching = matching.unwrap_or_else(|| (0..).take(records).collect());
        let mut out = Vec::with_capacity(matching.len());
        for ordinals in matching.chunk_by(|a, b| piece_of(*a) == piece_of(*b)) {
            let n = piece_of(ordinals[0]);
            let table = read(BlockList::Positions(n))?.ok_or(ListDamagedError)?;
            let table = positions::decode(table.as_ref()).ok_or(ListDamagedError)?;
            for ordinal in ordinals {
                let location = table
                    .get(usize::from(*ordinal) % PIECE_RECORDS)
                    .ok_or(ListDamagedError)?;
                out.extend(sought.is_in_range(location.at_ms).then_some(*location));
            }
        }
        Ok(out)
    }
}

/// The piece of the table that has this record.
fn piece_of(ordinal: u16) -> u8 {
    const { assert!(BLOCK_RECORDS_MAX.div_ceil(PIECE_RECORDS) <= 256) };
    u8::try_from(usize::from(ordinal) / PIECE_RECORDS).expect("a block has fewer pieces")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::audit::index::open::OpenBlock;
    use crate::store::audit::query::{IndexedEvent, RecordFilter};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Lists = BTreeMap<Vec<u8>, Vec<u8>>;

    fn sealed(block: &OpenBlock) -> (BlockSummary, Lists) {
        let SealedBlock { summary, lists } = block.seal(3, 1).unwrap();
        let count = lists.len();
        let lists: Lists = lists
            .into_iter()
            .map(|(key, list)| (key.key_suffix(), list))
            .collect();
        assert_eq!(lists.len(), count, "no key is used twice");
        assert_eq!(BlockSummary::decode(&summary.encode()), Some(summary));
        (summary, lists)
    }

    fn found(
        summary: &BlockSummary,
        lists: &Lists,
        sought: &HashedFilter,
    ) -> Result<Vec<u64>, ListDamagedError> {
        let found = summary.find(sought, |key| {
            Ok::<_, ListDamagedError>(lists.get(&key.key_suffix()))
        });
        found.map(|places| in_order(&places))
    }

    fn in_order(places: &[RecordLocation]) -> Vec<u64> {
        let mut offsets: Vec<u64> = places.iter().map(|location| location.offset).collect();
        offsets.sort_unstable();
        offsets
    }

    /// A record: when, and by which agent, tool and trace it is found.
    type Made = (u64, Option<u8>, u16, u16);

    fn block(records: &[Made]) -> OpenBlock {
        let mut block = OpenBlock::default();
        for (n, (at_ms, agent, tool, trace)) in (0..).zip(records) {
            let mut values = vec![(RecordIndex::Trace, format!("{trace}").into())];
            values.extend(agent.map(|agent| (RecordIndex::Agent, format!("{agent}").into())));
            values.push((RecordIndex::Tool, format!("{tool}").into()));
            block.add(
                &IndexedEvent {
                    at_ms: *at_ms,
                    values,
                },
                n * 100,
                99,
            );
        }
        block
    }

    fn sought(
        agent: Option<u8>,
        tool: Option<u16>,
        trace: Option<u16>,
        since_ms: u64,
    ) -> HashedFilter {
        let filter = RecordFilter {
            agent: agent.map(|agent| agent.to_string()),
            tool: tool.map(|tool| tool.to_string()),
            trace: trace.map(|trace| trace.to_string()),
            since_ms,
            until_ms: since_ms + 60,
            ..RecordFilter::default()
        };
        filter.to_hashed()
    }

    fn scanned(records: &[Made], asked: (Option<u8>, Option<u16>, Option<u16>, u64)) -> Vec<u64> {
        let (agent, tool, trace, since) = asked;
        let is = |(_, (at, of, by, under)): &(u64, &Made)| {
            (since..since + 60).contains(at)
                && agent.is_none_or(|agent| *of == Some(agent))
                && tool.is_none_or(|tool| *by == tool)
                && trace.is_none_or(|trace| *under == trace)
        };
        (0..)
            .zip(records)
            .filter(is)
            .map(|(n, _)| n * 100)
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Open and sealed blocks find the same records as a scan, in any order of times.
        #[test]
        fn a_block_finds_the_same_as_a_scan(
            records in vec((0u64..100, proptest::option::of(0u8..4), 0u16..9, 0u16..300), 1..700)
        ) {
            let block = block(&records);
            let (summary, lists) = sealed(&block);
            let (_, last_agent, last_tool, last_trace) = *records.last().unwrap();
            let (_, first_agent, first_tool, first_trace) = records[0];
            for asked in [
                (None, None, None, 0), (None, None, None, 50), (Some(2), None, None, 0), (Some(9), None, None, 0),
                (Some(1), Some(3), None, 20), (None, Some(3), None, 40), (None, None, Some(8), 0),
                (Some(1), Some(3), Some(8), 0), (first_agent, Some(first_tool), Some(first_trace), 40),
                (last_agent, Some(last_tool), Some(last_trace), 40), (None, None, Some(last_trace), 0),
            ] {
                let want = scanned(&records, asked);
                let sought = sought(asked.0, asked.1, asked.2, asked.3);
                prop_assert_eq!(&in_order(&block.find(&sought)), &want, "open, {:?}", asked);
                prop_assert_eq!(&found(&summary, &lists, &sought).unwrap(), &want, "sealed, {:?}", asked);
            }
        }
    }

    #[test]
    fn every_record_of_a_full_block_is_found() {
        let records: Vec<Made> = (0..u16::try_from(BLOCK_RECORDS_MAX).unwrap())
            .map(|n| (u64::from(n / 300), Some(1), n % 500, n))
            .collect();
        let (summary, lists) = sealed(&block(&records));
        let all = found(&summary, &lists, &sought(Some(1), None, None, 0)).unwrap();
        assert_eq!(all.len(), BLOCK_RECORDS_MAX);
        for trace in [0, 1, 255, 256, 8_191, 16_127, 16_128, 16_383] {
            let one = found(&summary, &lists, &sought(None, None, Some(trace), 0)).unwrap();
            assert!(one.contains(&(u64::from(trace) * 100)), "{trace}: {one:?}");
            assert!(one.len() < 4, "{trace}: {one:?}");
        }
    }

    /// Also one that is missing, short or of another block.
    #[test]
    fn a_damaged_list_is_an_error() {
        let records: Vec<Made> = (0..300).map(|n| (n, Some(1), 2, 3)).collect();
        let (summary, lists) = sealed(&block(&records));
        let asked = sought(Some(1), None, None, 230);
        assert_eq!(found(&summary, &lists, &asked).unwrap().len(), 60);
        let keys = [
            BlockList::Positions(0),
            BlockList::Positions(1),
            BlockList::Value(asked.values[0].0, asked.values[0].1),
        ];
        for key in keys {
            let mut short = lists.clone();
            short.get_mut(&key.key_suffix()).unwrap().pop();
            assert_eq!(
                found(&summary, &short, &asked),
                Err(ListDamagedError),
                "{key:?}"
            );
        }
        let mut gone = lists.clone();
        gone.remove(&BlockList::Positions(1).key_suffix());
        assert_eq!(found(&summary, &gone, &asked), Err(ListDamagedError));
        let fewer = BlockSummary {
            records: 200,
            ..summary
        };
        assert_eq!(found(&fewer, &lists, &asked), Err(ListDamagedError));
        for bytes in [
            &[][..],
            &[1, 0, 0, 5, 1],
            &[1, 0, 5, 5],
            &[1, 0, 5, 5, 1, 1],
            &[0xff; 20],
        ] {
            assert_eq!(BlockSummary::decode(bytes), None, "{bytes:?}");
        }
    }
}
