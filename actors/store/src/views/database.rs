//! The database of the view. sled may panic on unexpected data, so each operation is guarded, and none is assumed to be
//! durable.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use mgp_engine::store::audit::index::open::OpenBlock;
use mgp_engine::store::audit::index::sealed::{
    BlockList, BlockSummary, ListDamagedError, SealedBlock,
};
use mgp_engine::store::audit::record::AuditRecord;
use mgp_runtime::time::unix_ms;
use sled::{Batch, IVec};

use super::keys::{BUILT_TO, BlockNumber, BuildProgress, RecordLine, SUMMARY};
use super::lines::{RecordReader, record_head};
use crate::audit::LogFolder;
use crate::removal;

/// Size of the read cache in bytes: the lists of the last twenty thousand records. The system caches the files.
const CACHE: u64 = 256 << 10;
/// The number of attempts, and the delay between them, to open a database that an earlier kernel of this process is
/// still closing.
const TRIES: usize = 50;
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// sled's error text for a locked database.
const IN_USE: &str = "could not acquire lock";
/// Maximum number of keys removed at once.
const REMOVED: usize = 4_096;

/// A function that opens a database at a path.
pub(super) type OpenSled = fn(&Path) -> sled::Result<sled::Db>;

pub(super) fn open_sled(path: &Path) -> sled::Result<sled::Db> {
    let config = sled::Config::new().path(path).cache_capacity(CACHE);
    config.flush_every_ms(None).open()
}

/// The open database.
pub(super) struct ViewDatabase {
    db: Option<sled::Db>,
    progress: BuildProgress,
    is_void: bool,
    /// The blocks, oldest first: 40 bytes each, one per 16,384 records or file.
    blocks: Vec<(BlockNumber, BlockSummary)>,
}

impl Drop for ViewDatabase {
    fn drop(&mut self) {
        let db = self.db.take();
        let _ = catch_panic(|| {
            drop(db);
            Ok(())
        });
    }
}

impl ViewDatabase {
    /// Opens the database; the error says why it is unusable.
    pub(super) fn open(path: &Path, folder: &LogFolder, open: OpenSled) -> Result<Self, String> {
        // An existing database records its progress; sled treats most damage as an empty database.
        let was_there = path.exists();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|e| e.to_string())?;
        let mut tries = 0;
        let db = loop {
            tries += 1;
            match catch_panic(|| open(path)) {
                Err(why) if tries < TRIES && why.contains(IN_USE) => {
                    std::thread::sleep(RETRY_DELAY)
                }
                opened => break opened?,
            }
        };
        let mut database = Self {
            db: Some(db),
            progress: BuildProgress::START,
            is_void: true,
            blocks: Vec::new(),
        };
        if !was_there {
            let text = database.progress.render().into_bytes();
            database.with_db(|db| db.insert(BUILT_TO, text))?;
            database.flush()?;
        }
        database.load(folder)?;
        Ok(database)
    }

    /// Reads the build progress, and checks that it still matches the log and that all blocks are present.
    fn load(&mut self, folder: &LogFolder) -> Result<(), String> {
        let progress = self.with_db(|db| db.get(BUILT_TO))?;
        let progress = progress.ok_or("it does not say how far it was built")?;
        self.progress = BuildProgress::parse(&progress)
            .ok_or("it is of another form, or none of a kernel's")?;
        let read = |entry: sled::Result<(IVec, IVec)>| {
            entry.map(|(key, block)| {
                BlockNumber::from_summary_key(&key).zip(BlockSummary::decode(&block))
            })
        };
        let blocks: Vec<_> = self.with_db(|db| db.scan_prefix(SUMMARY).map(read).collect())?;
        let blocks: Option<Vec<_>> = blocks.into_iter().collect();
        self.blocks = blocks.ok_or(ListDamagedError.to_string())?;
        let oldest = folder.numbers().unwrap_or_default().first().copied();
        let last = self.progress.last;
        // The log has removed all of its files.
        self.is_void = self.progress.blocks == 0 || oldest.is_some_and(|file| last.number < file);
        if !(are_contiguous(&self.blocks, oldest) && self.has_last_record()) {
            return Err("not all of its blocks are there".into());
        }
        if self.is_void {
            return Ok(());
        }
        let mut reader = RecordReader::new(folder);
        let line = reader.read_line(last.number, last.offset, last.len);
        let found =
            line.and_then(|line| AuditRecord::parse(&line).map(|record| record_head(&record)));
        if found == Some(last.head) {
            Ok(())
        } else {
            Err(format!(
                "record {} is not where the log had it",
                last.head.sequence
            ))
        }
    }

    fn has_last_record(&self) -> bool {
        let last = self.blocks.last().map(|(last, _)| *last);
        match last {
            Some(BlockNumber(last)) => last.checked_add(1) == Some(self.progress.blocks),
            None => self.is_void,
        }
    }

    fn with_db<T>(&self, what: impl FnOnce(&sled::Db) -> sled::Result<T>) -> Result<T, String> {
        let db = self.db.as_ref().ok_or("it is closed")?;
        catch_panic(|| what(db))
    }

    /// The last indexed line, after which reading continues; `None` for an empty view.
    pub(super) fn last(&self) -> Option<RecordLine> {
        (!self.is_void).then_some(self.progress.last)
    }

    /// The blocks of a file, oldest first.
    pub(super) fn blocks(&self, file: u64) -> &[(BlockNumber, BlockSummary)] {
        let start = self.blocks.partition_point(|(_, block)| block.file < file);
        let end = self.blocks.partition_point(|(_, block)| block.file <= file);
        &self.blocks[start..end]
    }

    /// One list of a block.
    pub(super) fn list(&self, block: BlockNumber, list: BlockList) -> Result<Option<IVec>, String> {
        self.with_db(|db| db.get(block.list(list)))
    }

    /// Adds a block whose last record is this line.
    pub(super) fn add(&mut self, block: &OpenBlock, last: RecordLine) -> Result<(), String> {
        let number = BlockNumber(self.progress.blocks);
        let of_file = self
            .blocks
            .last()
            .filter(|(_, block)| block.file == last.number);
        let index = of_file.map_or(0, |(_, block)| block.index_in_file + 1);
        let Some(SealedBlock { summary, lists }) = block.seal(last.number, index) else {
            return Ok(());
        };
        let progress = BuildProgress {
            blocks: self.progress.blocks + 1,
            last,
        };
        let mut batch = Batch::default();
        for (key, list) in lists {
            batch.insert(number.list(key), list);
        }
        batch.insert(number.summary(), summary.encode());
        batch.insert(BUILT_TO, progress.render().into_bytes());
        self.with_db(|db| db.apply_batch(batch))?;
        (self.progress, self.is_void) = (progress, false);
        self.blocks.push((number, summary));
        Ok(())
    }

    /// Removes blocks of files before this one: the summaries first, then some of the lists. Returns whether
    /// there were any.
    pub(super) fn remove_before(&mut self, file: u64) -> Result<bool, String> {
        let gone = self.blocks.partition_point(|(_, block)| block.file < file);
        let gone = gone.min(REMOVED);
        if gone > 0 {
            let mut batch = Batch::default();
            for (number, _) in &self.blocks[..gone] {
                batch.remove(number.summary());
            }
            self.with_db(|db| db.apply_batch(batch))?;
            self.blocks.drain(..gone);
        }
        let first = self.blocks.first().map(|(number, _)| *number);
        let first = first.unwrap_or(BlockNumber(self.progress.blocks));
        self.with_db(|db| {
            let mut batch = Batch::default();
            let mut some = gone > 0;
            for key in db.range(..first.first_key()).keys().take(REMOVED) {
                batch.remove(key?);
                some = true;
            }
            db.apply_batch(batch)?;
            Ok(some)
        })
    }

    /// Flushes buffered writes. Anything lost nevertheless is read from the log again.
    pub(super) fn flush(&self) -> Result<(), String> {
        self.with_db(|db| db.flush().map(drop))
    }
}

/// Whether the blocks are consecutive and, if the first ones are missing, so are their files.
fn are_contiguous(blocks: &[(BlockNumber, BlockSummary)], oldest: Option<u64>) -> bool {
    let begins = blocks.first().is_none_or(|(number, block)| {
        let gone = oldest.is_none_or(|file| block.file <= file);
        block.index_in_file == 0 && (number.0 == 0 || gone)
    });
    begins
        && blocks.is_sorted_by(|(before, one), (number, next)| {
            let index = if one.file == next.file {
                one.index_in_file + 1
            } else {
                0
            };
            number.0 == before.0 + 1 && one.file <= next.file && next.index_in_file == index
        })
}

/// Runs a sled operation and converts a panic to an error.
fn catch_panic<T>(what: impl FnOnce() -> sled::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(what)) {
        Ok(done) => done.map_err(|e| e.to_string()),
        Err(panic) => {
            // Not dropped: its payload may panic again.
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            std::mem::forget(panic);
            Err(format!("sled panicked: {}", words.unwrap_or_default()))
        }
    }
}

/// Moves an unusable view aside, replacing the previous one.
pub(super) fn move_aside(path: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = format!("{name}.damaged-");
    for entry in fs::read_dir(path.parent().unwrap_or(path))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&aside) {
            removal::remove(&entry.path())?;
        }
    }
    match fs::rename(path, path.with_file_name(format!("{aside}{}", unix_ms()))) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        Ok(()) | Err(_) => Ok(()),
    }
}
