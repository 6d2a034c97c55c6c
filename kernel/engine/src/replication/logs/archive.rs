//! The entries of one log, as they came, in little memory.
//!
//! Most of an entry is what all of its log have in common: who signed it, which cluster, the names of its members. So
//! the certain part of a log lies compressed, in blocks that are read whole. All of it is there at any time: what a
//! node says to hold it can send, whatever became of its disk, to a node that comes in as to one that was away for a
//! year.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec;

use crate::policy::grants::{LogKey, OperationId, SignedOperation};

/// A block ends with the entry that makes it so many, or so long. More in one would save little, and be read for
/// each entry that is asked for.
const BLOCK_ENTRIES: usize = 64;
const BLOCK_BYTES: usize = 64 << 10;
/// How hard the compressor looks: what it finds beyond that is not worth its time.
const COMPRESSION_LEVEL: u8 = 6;

/// The entries of one log. Where its blocks end follows from its certain part alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EntryArchive {
    blocks: Vec<EntryBlock>,
    /// What lies behind the blocks.
    open_entries: BTreeMap<LogKey, Arc<[u8]>>,
    pub(super) bytes: u64,
}

/// Entries that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EntryBlock {
    /// The places of the first one, and behind the last one.
    first: u64,
    end: u64,
    compressed: Arc<[u8]>,
}

impl EntryArchive {
    /// Adds an entry that is new, with which so many are certain. That may be fewer than before: then the log is
    /// forked.
    pub(super) fn insert(&mut self, key: LogKey, entry: Arc<[u8]>, certain: u64) {
        self.bytes += entry.len() as u64;
        self.open_entries.insert(key, entry);
        while let Some(block) = self.blocks.pop_if(|block| block.end > certain) {
            let places = block.first..;
            let entries = places.zip(block.decompress());
            self.open_entries
                .extend(entries.map(|(at, entry)| ((at, operation_id(&entry)), entry)));
        }
        while self.seal_block(certain) {}
    }

    /// Makes a block of what comes next; false where it is not whole.
    fn seal_block(&mut self, certain: u64) -> bool {
        let first = self.sealed_count();
        let places = (first, OperationId::START)..(certain, OperationId::START);
        if self.open_entries.range(places.clone()).next().is_none() {
            return false;
        }
        let (mut count, mut bytes) = (0, 0);
        let next = self.open_entries.range(places);
        let part = next.map_while(|(key, entry)| {
            let goes_on = count < BLOCK_ENTRIES && bytes < BLOCK_BYTES;
            (count, bytes) = (count + 1, bytes + entry.len());
            goes_on.then_some(*key)
        });
        let keys: Vec<LogKey> = part.collect();
        if count < BLOCK_ENTRIES && bytes < BLOCK_BYTES {
            return false;
        }
        let entries = keys.iter().filter_map(|key| self.open_entries.remove(key));
        let entries: Vec<Arc<[u8]>> = entries.collect();
        self.blocks.push(EntryBlock::new(first, &entries));
        true
    }

    /// How many of the first are in blocks.
    fn sealed_count(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.end)
    }

    pub(super) fn count(&self) -> usize {
        self.blocks.iter().map(EntryBlock::count).sum::<usize>() + self.open_entries.len()
    }

    /// How many bytes the entries have, as they came.
    pub(super) fn entry_bytes(&self) -> u64 {
        self.bytes
    }

    /// How many bytes of memory it takes, nearly.
    pub(super) fn memory_bytes(&self) -> usize {
        let shared = 2 * size_of::<usize>();
        let blocks = self.blocks.iter().map(|block| block.compressed.len());
        let open = self.open_entries.values().map(|entry| entry.len());
        blocks
            .chain(open)
            .map(|bytes| bytes + shared)
            .sum::<usize>()
            + self.blocks.capacity() * size_of::<EntryBlock>()
            + self.open_entries.len() * 2 * size_of::<(LogKey, Arc<[u8]>)>()
    }

    /// Reads entries that are known.
    pub(super) fn reader(&self) -> BlockReader<'_> {
        let read = None;
        BlockReader {
            archive: self,
            current: read,
        }
    }
}

impl EntryBlock {
    fn new(first: u64, entries: &[Arc<[u8]>]) -> Self {
        let mut bytes = Vec::new();
        for entry in entries {
            let length = u32::try_from(entry.len()).expect("an entry has a bound far below");
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        entries
            .iter()
            .for_each(|entry| bytes.extend_from_slice(entry));
        Self {
            first,
            end: first + entries.len() as u64,
            compressed: compress_to_vec(&bytes, COMPRESSION_LEVEL).into(),
        }
    }

    fn count(&self) -> usize {
        usize::try_from(self.end - self.first).expect("a block has few entries")
    }

    fn decompress(&self) -> Vec<Arc<[u8]>> {
        let bytes = decompress_to_vec(&self.compressed).expect("it was compressed here");
        let (lengths, mut rest) = bytes.split_at(self.count() * size_of::<u32>());
        let (lengths, _) = lengths.as_chunks();
        let entries = lengths.iter().map(|length| {
            let length = u32::from_le_bytes(*length) as usize;
            let (entry, behind) = rest.split_at(length);
            rest = behind;
            entry.into()
        });
        entries.collect()
    }

    fn range(&self) -> RangeInclusive<u64> {
        self.first..=self.end - 1
    }
}

/// Reads one entry after the other; those of one block at once.
pub(super) struct BlockReader<'a> {
    archive: &'a EntryArchive,
    current: Option<(&'a EntryBlock, Vec<Arc<[u8]>>)>,
}

impl BlockReader<'_> {
    /// An entry that is known.
    pub(super) fn read(&mut self, key: LogKey) -> Option<Arc<[u8]>> {
        let place = key.0;
        if place >= self.archive.sealed_count() {
            return self.archive.open_entries.get(&key).cloned();
        }
        let is_read = self.current.take();
        let is_read = is_read.filter(|(block, _)| block.range().contains(&place));
        let (block, entries) = match is_read {
            Some(read) => read,
            None => {
                let blocks = &self.archive.blocks;
                let block = blocks.get(blocks.partition_point(|block| block.end <= place))?;
                (block, block.decompress())
            }
        };
        let at = usize::try_from(place - block.first).ok()?;
        let entry = entries.get(at).cloned();
        self.current = Some((block, entries));
        entry
    }
}

fn operation_id(entry: &[u8]) -> OperationId {
    let signed = SignedOperation::from_bytes(entry).expect("it was taken as one");
    signed.encoded().id()
}
