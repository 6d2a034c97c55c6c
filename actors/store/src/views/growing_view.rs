//! The view as it grows: what is in its database, and the records that do not fill a block yet.

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

/// How often it is said how far the view is while it is built.
const PROGRESS: Duration = Duration::from_secs(10);

pub(super) struct GrowingView {
    blocks: GrowingBlocks,
    lines: IndexedLines,
    reported_at: MonotonicTime,
    /// It was said that the view is being built.
    is_reported: bool,
}

/// What records were read into.
struct GrowingBlocks {
    database: ViewDatabase,
    open: OpenBlock,
    /// The last record read; those of `open` are of its file.
    last: Option<RecordLine>,
    /// A block with so many records is written.
    block_records: usize,
    /// Files before this one have no blocks.
    cleared: u64,
    /// Blocks were added since what is in memory was written.
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

    /// The last record in it.
    pub(super) fn last_sequence(&self) -> u64 {
        self.blocks.last.map_or(0, |last| last.head.sequence)
    }

    /// Answers a question as far as it is.
    pub(super) fn find(&self, query: &ViewQuery) -> Result<MatchedRecords, String> {
        let look = SearchSource {
            database: &self.blocks.database,
            open: (
                self.blocks.last.map_or(0, |last| last.number),
                &self.blocks.open,
            ),
            folder: &self.lines.folder,
        };
        query.find(&look)
    }

    /// Adds a piece of the log, and removes some of what the log has removed; false when nothing is to be
    /// done.
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
                // The view is none the worse for it: it is tried again with the next record.
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

    /// All is in the view.
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

    /// Writes what is in blocks; the others are read again.
    pub(super) fn close(self) -> Result<(), String> {
        self.blocks.database.flush()
    }
}

impl GrowingBlocks {
    /// Adds the next record; one without anything it could be found by is passed over.
    fn add(&mut self, line: RecordLine, event: Option<&IndexedEvent<'_>>) -> Result<(), String> {
        // A block is of one file.
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
        // What the log has removed meanwhile is not written.
        let last = self.last.filter(|last| last.number >= self.cleared);
        if let Some(last) = last.filter(|_| !block.is_empty()) {
            self.is_grown = true;
            self.database.add(&block, last)?;
        }
        Ok(())
    }
}
