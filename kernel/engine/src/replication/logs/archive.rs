//! The unchanged entries of one log, compressed in memory.
//!
//! Entries of a log share most of their bytes: issuer, cluster and names. So the certain part of a log is compressed in
//! blocks. All entries stay in memory: a node can send everything it announced, whatever happened to its disk, to a new
//! node as to one that was away for a year.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec;

use crate::policy::grants::{LogKey, OperationId, SignedOperation};

/// A block ends with the entry that reaches one of these limits. Larger blocks would save little, and make single reads
/// slower.
const BLOCK_ENTRIES: usize = 64;
const BLOCK_BYTES: usize = 64 << 10;
/// Higher levels save little for their time.
const COMPRESSION_LEVEL: u8 = 6;

/// The entries of one log. Block boundaries depend on its certain part alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EntryArchive {
    blocks: Vec<EntryBlock>,
    /// The entries after the blocks.
    open_entries: BTreeMap<LogKey, Arc<[u8]>>,
    pub(super) bytes: u64,
}

/// Consecutive entries.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EntryBlock {
    /// The sequence number of the first entry, and the one after the last.
    first: u64,
    end: u64,
    compressed: Arc<[u8]>,
}

impl EntryArchive {
    /// Adds a new entry, with which `certain` entries are certain. That may be fewer than before, if the log forked.
    pub(super) fn insert(&mut self, key: LogKey, entry: Arc<[u8]>, certain: u64) {
        self.bytes += entry.len() as u64;
        self.open_entries.insert(key, entry);
        while let Some(block) = self.blocks.pop_if(|block| block.end > certain) {
            let entries = (block.first..).zip(block.decompress());
            self.open_entries
                .extend(entries.map(|(sequence, entry)| ((sequence, operation_id(&entry)), entry)));
        }
        while self.seal_block(certain) {}
    }

    /// Seals the next block; returns false if it is not full.
    fn seal_block(&mut self, certain: u64) -> bool {
        let first = self.sealed_count();
        let range = (first, OperationId::START)..(certain, OperationId::START);
        if self.open_entries.range(range.clone()).next().is_none() {
            return false;
        }
        let (mut count, mut bytes) = (0, 0);
        let next = self.open_entries.range(range);
        let part = next.map_while(|(key, entry)| {
            let has_capacity = count < BLOCK_ENTRIES && bytes < BLOCK_BYTES;
            (count, bytes) = (count + 1, bytes + entry.len());
            has_capacity.then_some(*key)
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

    /// The number of entries in blocks.
    fn sealed_count(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.end)
    }

    pub(super) fn count(&self) -> usize {
        self.blocks.iter().map(EntryBlock::count).sum::<usize>() + self.open_entries.len()
    }

    /// The bytes of the entries, uncompressed.
    pub(super) fn entry_bytes(&self) -> u64 {
        self.bytes
    }

    /// The approximate bytes of memory used.
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

    pub(super) fn reader(&self) -> BlockReader<'_> {
        BlockReader {
            archive: self,
            current: None,
        }
    }
}

impl EntryBlock {
    fn new(first: u64, entries: &[Arc<[u8]>]) -> Self {
        let mut bytes = Vec::new();
        for entry in entries {
            let length = u32::try_from(entry.len()).expect("entries are far smaller than 4 GiB");
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
        let bytes = decompress_to_vec(&self.compressed).expect("compressed by this module");
        let (lengths, mut rest) = bytes.split_at(self.count() * size_of::<u32>());
        let (lengths, _) = lengths.as_chunks();
        let entries = lengths.iter().map(|length| {
            let length = u32::from_le_bytes(*length) as usize;
            let (entry, tail) = rest.split_at(length);
            rest = tail;
            entry.into()
        });
        entries.collect()
    }

    fn range(&self) -> RangeInclusive<u64> {
        self.first..=self.end - 1
    }
}

/// Reads entries in order, and decompresses each block once.
pub(super) struct BlockReader<'a> {
    archive: &'a EntryArchive,
    current: Option<(&'a EntryBlock, Vec<Arc<[u8]>>)>,
}

impl BlockReader<'_> {
    pub(super) fn read(&mut self, key: LogKey) -> Option<Arc<[u8]>> {
        let sequence = key.0;
        if sequence >= self.archive.sealed_count() {
            return self.archive.open_entries.get(&key).cloned();
        }
        let current = self.current.take();
        let current = current.filter(|(block, _)| block.range().contains(&sequence));
        let (block, entries) = match current {
            Some(current) => current,
            None => {
                let blocks = &self.archive.blocks;
                let block = blocks.get(blocks.partition_point(|block| block.end <= sequence))?;
                (block, block.decompress())
            }
        };
        let index = usize::try_from(sequence - block.first).ok()?;
        let entry = entries.get(index).cloned();
        self.current = Some((block, entries));
        entry
    }
}

fn operation_id(entry: &[u8]) -> OperationId {
    let signed = SignedOperation::from_bytes(entry).expect("verified when it was merged");
    signed.encoded().id()
}
