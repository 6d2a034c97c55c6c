//! Reads the log files for one server: only written events are sent, and a slow server delays
//! nobody.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::ids::ServerId;

use super::AuditHandle;
use super::queue::LogQueue;
use super::replay::{run_blocking, with_sequence};
use super::server_reports::is_reported_by;
use super::tail::Tail;

/// Maximum number of events read at once; more are read only after these were sent.
const BATCH: usize = 256;
/// How long events are gathered before they are sent.
const GATHER: Duration = Duration::from_millis(20);

/// Reads on from the last event that was sent to the server.
pub struct Follower {
    queue: Arc<LogQueue>,
    server: ServerId,
    mark: DeliveryMark,
    last: u64,
    tail: Option<Tail>,
}

/// Consecutive events.
#[derive(Debug)]
pub struct EventBatch {
    /// The first and last sequence of preceding events that were trimmed before they were read.
    pub trimmed: Option<(u64, u64)>,
    /// The params of each event's notification. Events that the server itself reported are left out, because
    /// echoing them could loop forever.
    pub events: Vec<String>,
    end: u64,
}

impl AuditHandle {
    /// A follower of the log for this server; `None` without a log.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn follow(&self, server: &ServerId) -> io::Result<Option<Follower>> {
        let Some(queue) = &self.queue else {
            return Ok(None);
        };
        let newest = queue.written.borrow().sequence;
        let mark = DeliveryMark(queue.folder.delivery_mark(server));
        let (folder, stored_mark) = (queue.folder.clone(), mark.clone());
        let (last, tail) = run_blocking(move || {
            let from = stored_mark.read().unwrap_or(newest);
            Ok((from, Tail::open_after(folder, from)?))
        })
        .await?;
        Ok(Some(Follower {
            queue: queue.clone(),
            server: server.clone(),
            mark,
            last,
            tail: Some(tail),
        }))
    }
}

impl Follower {
    /// Waits for the next events; `None` when the log has ended.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn next(&mut self) -> io::Result<Option<EventBatch>> {
        let mut written = self.queue.written.subscribe();
        loop {
            written.borrow_and_update();
            let mut tail = self.tail.take().ok_or(io::ErrorKind::BrokenPipe)?;
            let (tail, events) =
                run_blocking(move || tail.next(BATCH).map(|events| (tail, events))).await?;
            self.tail = Some(tail);
            if let Some((end, _)) = events.last() {
                return Ok(Some(self.batch(*end, &events)));
            }
            if written.changed().await.is_err() {
                return Ok(None);
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    fn batch(&self, end: u64, events: &[(u64, String)]) -> EventBatch {
        let first = events.first().map_or(end, |(first, _)| *first);
        let others = events
            .iter()
            .filter(|(_, event)| !is_reported_by(event, &self.server));
        EventBatch {
            trimmed: (first > self.last + 1).then_some((self.last + 1, first - 1)),
            events: others
                .filter_map(|(seq, event)| with_sequence(*seq, event))
                .collect(),
            end,
        }
    }

    /// Stores that the server has received these events.
    pub async fn confirm(&mut self, batch: &EventBatch) {
        self.last = batch.end;
        let (mark, end) = (self.mark.clone(), batch.end);
        if let Err(error) = run_blocking(move || mark.write(end)).await {
            tracing::warn!(%error, "how far an audit server was told is not kept");
        }
    }
}

/// Stores how far a server has received the log, for its next connection.
#[derive(Clone)]
struct DeliveryMark(PathBuf);

impl DeliveryMark {
    fn read(&self) -> Option<u64> {
        fs::read_to_string(&self.0).ok()?.trim().parse().ok()
    }

    /// Not synced: after a power cut some events are sent again.
    fn write(&self, sequence: u64) -> io::Result<()> {
        fs::write(&self.0, format!("{sequence}\n"))
    }
}
