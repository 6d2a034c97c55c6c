//! The queues in which calls of one tree wait for their permit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_mcpl_engine::state::record::TreeKey;
use mgp_protocol::refusal::Refusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls that wait in one line. A model that calls more tools of one state at once does not wait for their results.
const WAITING_MAX: usize = 32;
/// The longest wait of a call, so that one that never ends does not block the others for ever.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The lines of all trees of a server in which somebody is.
#[derive(Debug, Default)]
pub(super) struct TreeQueues(Arc<Mutex<HashMap<TreeKey, Arc<TreeQueue>>>>);

#[derive(Debug)]
struct TreeQueue {
    permit: Arc<Semaphore>,
    /// The permit's holder, and the queue.
    members: AtomicUsize,
}

/// The permit, until it is dropped.
#[derive(Debug)]
pub(super) struct TreePermit {
    _permit: OwnedSemaphorePermit,
    _slot: QueueSlot,
}

/// A position in a queue: dropping it leaves the queue, and the last one removes the queue.
#[derive(Debug)]
struct QueueSlot {
    lines: Arc<Mutex<HashMap<TreeKey, Arc<TreeQueue>>>>,
    key: TreeKey,
    queue: Arc<TreeQueue>,
}

impl TreeQueues {
    /// Waits for the permit, first come first served.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] when too many wait, or it takes too long.
    pub(super) async fn acquire(&self, key: &TreeKey) -> Result<TreePermit, Refusal> {
        let place = self.enter_queue(key).ok_or_else(|| Refusal::Overloaded {
            what: format!("the line of calls of one state, which holds {WAITING_MAX},"),
        })?;
        let turn = place.queue.permit.clone().acquire_owned();
        match tokio::time::timeout(WAIT_TIMEOUT, turn).await {
            Ok(Ok(turn)) => Ok(TreePermit {
                _permit: turn,
                _slot: place,
            }),
            Ok(Err(_)) | Err(_) => Err(Refusal::Overloaded {
                what: format!(
                    "the line of calls of one state did not move for {} s; it",
                    WAIT_TIMEOUT.as_secs()
                ),
            }),
        }
    }

    /// True when all queues are empty.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    fn enter_queue(&self, key: &TreeKey) -> Option<QueueSlot> {
        let mut lines = lock(&self.0);
        let line = lines.entry(key.clone()).or_insert_with(|| {
            Arc::new(TreeQueue {
                permit: Arc::new(Semaphore::new(1)),
                members: AtomicUsize::new(0),
            })
        });
        // Under the lock, as is leaving.
        if line.members.load(Ordering::Relaxed) > WAITING_MAX {
            return None;
        }
        line.members.fetch_add(1, Ordering::Relaxed);
        Some(QueueSlot {
            lines: self.0.clone(),
            key: key.clone(),
            queue: line.clone(),
        })
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let mut lines = lock(&self.lines);
        if self.queue.members.fetch_sub(1, Ordering::Relaxed) == 1 {
            lines.remove(&self.key);
        }
    }
}

type Lines = HashMap<TreeKey, Arc<TreeQueue>>;

fn lock(lines: &Mutex<Lines>) -> MutexGuard<'_, Lines> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}
