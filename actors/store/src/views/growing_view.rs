//! The view while it grows: its database, and the records of the block that is not full yet.

use std::time::Duration;

use mgp_engine::clock::MonotonicTime;
use mgp_engine::store::audit::index::open::OpenBlock;
use mgp_engine::store::audit::query::IndexedEvent;
use mgp_runtime::time::monotonic_now;

use super::database::ViewDatabase;
use super::keys::RecordLine;
use super::lines::IndexedLines;
use super::search::{MatchedRecords, SearchSource, ViewQuery};
use crate::audit::LogFolder;

/// How often progress is logged while the view is built.
const PROGRESS: Duration = Duration::from_secs(10);

pub(super) struct GrowingView {
    blocks: GrowingBlocks,
    lines: IndexedLines,
    reported_at: MonotonicTime,
    /// Whether it was logged that the view is being built.
    is_reported: bool,
}

/// The state of the records read so far.
struct GrowingBlocks {
    database: ViewDatabase,
    open: OpenBlock,
    /// The last record read; the records of `open` belong to its file.
    last: Option<RecordLine>,
    /// A block with this many records is written.
    block_records: usize,
    /// Files before this one have no blocks.
    cleared: u64,
    /// Whether blocks were added since the last flush.
    is_grown: bool,
}

impl GrowingView {
    pub(super) fn new(database: ViewDatabase, folder: &LogFolder, block_records: usize) -> Self {
        let last = database.last();
        let blocks = GrowingBlocks {
            database,
            open: OpenBlock::default(),
            last,
            block_records,
            cleared: 0,
            is_grown: false,
        };
        Self {
            blocks,
            lines: IndexedLines::start_after(folder.clone(), last.as_ref()),
            reported_at: monotonic_now(),
            is_reported: false,
        }
    }

    /// The sequence of the last record in the view.
    pub(super) fn last_sequence(&self) -> u64 {
        self.blocks.last.map_or(0, |last| last.head.sequence)
    }

    /// Answers a query from the records indexed so far.
    pub(super) fn find(&self, query: &ViewQuery) -> Result<MatchedRecords, String> {
        let source = SearchSource {
            database: &self.blocks.database,
            open: (
                self.blocks.last.map_or(0, |last| last.number),
                &self.blocks.open,
            ),
            folder: &self.lines.folder,
        };
        query.find(&source)
    }

    /// Indexes a chunk of the log, and removes some blocks of trimmed files; false when there is nothing to
    /// do.
    pub(super) fn step(&mut self) -> Result<bool, String> {
        let mut growth = Ok(());
        let blocks = &mut self.blocks;
        let read = self.lines.folder.numbers().and_then(|files| {
            let read = self.lines.read_chunk(&files, |line, record| {
                if growth.is_ok() {
                    growth = blocks.add(line, IndexedEvent::parse(record.event).as_ref());
                }
            });
            Ok((read?, files))
        });
        growth?;
        let (read, files) = match read {
            Ok(read) => read,
            Err(error) => {
                // This is no fault of the view: the next record triggers another attempt.
                tracing::warn!(%error, "the audit log cannot be read for its view");
                return Ok(false);
            }
        };
        let oldest = files.first().copied().unwrap_or(0);
        if oldest > blocks.cleared && !blocks.database.remove_before(oldest)? {
            blocks.cleared = oldest;
        }
        Ok(read || oldest > blocks.cleared)
    }

    pub(super) fn report_progress(&mut self, newest: u64) {
        let now = monotonic_now();
        if now.duration_since(self.reported_at) >= PROGRESS {
            (self.reported_at, self.is_reported) = (now, true);
            let through = self.last_sequence();
            tracing::info!(
                "the view of the audit log is being built: {through} of {newest} records"
            );
        }
    }

    /// Handles that the view has all records.
    pub(super) fn finish_pass(&mut self) -> Result<(), String> {
        if std::mem::take(&mut self.is_reported) {
            let through = self.last_sequence();
            tracing::info!("the view of the audit log has all {through} records");
        }
        self.reported_at = monotonic_now();
        if std::mem::take(&mut self.blocks.is_grown) {
            self.blocks.database.flush()
        } else {
            Ok(())
        }
    }

    /// Flushes the written blocks; other records are read again later.
    pub(super) fn close(self) -> Result<(), String> {
        self.blocks.database.flush()
    }
}

impl GrowingBlocks {
    /// Indexes the next record; skips records without any indexed field.
    fn add(&mut self, line: RecordLine, event: Option<&IndexedEvent<'_>>) -> Result<(), String> {
        // A block belongs to one file.
        if self.last.is_some_and(|last| last.number != line.number) {
            self.write()?;
        }
        if let Some(event) = event {
            self.open.add(event, line.offset, line.len);
        }
        self.last = Some(line);
        if self.open.len() >= self.block_records {
            self.write()
        } else {
            Ok(())
        }
    }

    fn write(&mut self) -> Result<(), String> {
        let block = std::mem::take(&mut self.open);
        // Records that were trimmed meanwhile are not written.
        let last = self.last.filter(|last| last.number >= self.cleared);
        if let Some(last) = last.filter(|_| !block.is_empty()) {
            self.is_grown = true;
            self.database.add(&block, last)?;
        }
        Ok(())
    }
}
