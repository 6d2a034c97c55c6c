//! Reads the log for the kernel itself: what was written, as it is written.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::store::audit::chain::Head;
use tokio::sync::watch;

use super::AuditHandle;
use super::files::LogFolder;
use super::queue::LogQueue;
use super::replay::run_blocking;
use super::tail::Tail;

/// Records read at once; more are read only after these were taken.
const BATCH: usize = 256;
/// How long records are gathered before they are read.
const GATHER: Duration = Duration::from_millis(20);

/// Reads on from a record.
pub struct LogReader {
    queue: Arc<LogQueue>,
    tail: Option<Tail>,
}

impl AuditHandle {
    /// The number of the last record that is written; 0 where there is no log.
    #[must_use]
    pub fn newest_sequence(&self) -> u64 {
        let ledger = self.queue.as_ref();
        ledger.map_or(0, |ledger| ledger.written.borrow().sequence)
    }

    /// Where the log is, and its last record that is written; `None` where no log is written.
    pub(crate) fn files(&self) -> Option<(LogFolder, watch::Receiver<Head>)> {
        let ledger = self.queue.as_ref()?;
        Some((ledger.folder.clone(), ledger.written.subscribe()))
    }

    /// What is written after this record; `None` where no log is written.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read_after(&self, sequence: u64) -> io::Result<Option<LogReader>> {
        let Some(ledger) = &self.queue else {
            return Ok(None);
        };
        let folder = ledger.folder.clone();
        let tail = run_blocking(move || Tail::open_after(folder, sequence)).await?;
        Ok(Some(LogReader {
            queue: ledger.clone(),
            tail: Some(tail),
        }))
    }
}

impl LogReader {
    /// Those that are there, each with its number; none when there are no more yet.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn read_available(&mut self) -> io::Result<Vec<(u64, String)>> {
        let mut tail = self.tail.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (tail, records) =
            run_blocking(move || tail.next(BATCH).map(|records| (tail, records))).await?;
        self.tail = Some(tail);
        Ok(records)
    }

    /// The next ones, as soon as there are any; none when the log has ended.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn next(&mut self) -> io::Result<Vec<(u64, String)>> {
        let mut written = self.queue.written.subscribe();
        loop {
            written.borrow_and_update();
            let records = self.read_available().await?;
            if !records.is_empty() || written.changed().await.is_err() {
                return Ok(records);
            }
            tokio::time::sleep(GATHER).await;
        }
    }
}
