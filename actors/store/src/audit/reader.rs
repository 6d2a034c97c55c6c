//! Reads the log for the kernel itself, as it is written.

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

/// Maximum number of records read at once; more are read only after these were taken.
const BATCH: usize = 256;
/// How long new records are gathered before they are read.
const GATHER: Duration = Duration::from_millis(20);

/// Reads the log from a given record on.
pub struct LogReader {
    queue: Arc<LogQueue>,
    tail: Option<Tail>,
}

impl AuditHandle {
    /// The sequence of the last written record; 0 without a log.
    #[must_use]
    pub fn newest_sequence(&self) -> u64 {
        let queue = self.queue.as_ref();
        queue.map_or(0, |queue| queue.written.borrow().sequence)
    }

    /// The log's folder and its last written record; `None` without a log.
    pub(crate) fn files(&self) -> Option<(LogFolder, watch::Receiver<Head>)> {
        let queue = self.queue.as_ref()?;
        Some((queue.folder.clone(), queue.written.subscribe()))
    }

    /// A reader of the records after this one; `None` without a log.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn read_after(&self, sequence: u64) -> io::Result<Option<LogReader>> {
        let Some(queue) = &self.queue else {
            return Ok(None);
        };
        let folder = queue.folder.clone();
        let tail = run_blocking(move || Tail::open_after(folder, sequence)).await?;
        Ok(Some(LogReader {
            queue: queue.clone(),
            tail: Some(tail),
        }))
    }
}

impl LogReader {
    /// The available records with their sequences; empty if there are no more yet.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn read_available(&mut self) -> io::Result<Vec<(u64, String)>> {
        let mut tail = self.tail.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (tail, records) =
            run_blocking(move || tail.next(BATCH).map(|records| (tail, records))).await?;
        self.tail = Some(tail);
        Ok(records)
    }

    /// Waits for the next records; empty when the log has ended.
    ///
    /// # Errors
    /// When the log cannot be read.
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
