//! The queues in which calls wait for the permit of their checkpoint tree.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_mcpl_engine::state::record::TreeKey;
use mgp_protocol::refusal::Refusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls that wait in one queue. A model that calls more tools of one state at once does not wait for their results.
const WAITING_MAX: usize = 32;
/// The longest wait of a call, so that one that never ends does not block the others forever.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The nonempty queues of a server's trees.
#[derive(Debug, Default)]
pub(super) struct TreeQueues(Arc<Mutex<HashMap<TreeKey, Arc<TreeQueue>>>>);

#[derive(Debug)]
struct TreeQueue {
    permit: Arc<Semaphore>,
    /// The number of queued calls, the permit's holder included.
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
    queues: Arc<Mutex<HashMap<TreeKey, Arc<TreeQueue>>>>,
    key: TreeKey,
    queue: Arc<TreeQueue>,
}

impl TreeQueues {
    /// Waits for the permit, first come first served.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] when too many wait, or it takes too long.
    pub(super) async fn acquire(&self, key: &TreeKey) -> Result<TreePermit, Refusal> {
        let slot = self.enter_queue(key).ok_or_else(|| Refusal::Overloaded {
            what: format!("the line of calls of one state, which holds {WAITING_MAX},"),
        })?;
        let permit = slot.queue.permit.clone().acquire_owned();
        match tokio::time::timeout(WAIT_TIMEOUT, permit).await {
            Ok(Ok(permit)) => Ok(TreePermit {
                _permit: permit,
                _slot: slot,
            }),
            Ok(Err(_)) | Err(_) => Err(Refusal::Overloaded {
                what: format!(
                    "the line of calls of one state did not move for {} s; it",
                    WAIT_TIMEOUT.as_secs()
                ),
            }),
        }
    }

    /// Whether all queues are empty.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    fn enter_queue(&self, key: &TreeKey) -> Option<QueueSlot> {
        let mut queues = lock(&self.0);
        let queue = queues.entry(key.clone()).or_insert_with(|| {
            Arc::new(TreeQueue {
                permit: Arc::new(Semaphore::new(1)),
                members: AtomicUsize::new(0),
            })
        });
        // Under the lock, as is leaving.
        if queue.members.load(Ordering::Relaxed) > WAITING_MAX {
            return None;
        }
        queue.members.fetch_add(1, Ordering::Relaxed);
        Some(QueueSlot {
            queues: self.0.clone(),
            key: key.clone(),
            queue: queue.clone(),
        })
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let mut queues = lock(&self.queues);
        if self.queue.members.fetch_sub(1, Ordering::Relaxed) == 1 {
            queues.remove(&self.key);
        }
    }
}

type Queues = HashMap<TreeKey, Arc<TreeQueue>>;

fn lock(queues: &Mutex<Queues>) -> MutexGuard<'_, Queues> {
    queues.lock().unwrap_or_else(PoisonError::into_inner)
}
