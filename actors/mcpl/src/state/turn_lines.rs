//! The lines in which calls of one tree wait for their turn.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_mcpl_engine::state::record::TreeKey;
use mgp_protocol::refusal::Refusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls that wait in one line. A model that calls more tools of one state at once does not wait for their results.
const WAITING: usize = 32;
/// How long a call waits at most, so that one that never ends does not hold the others for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// The lines of all trees of a server in which somebody is.
#[derive(Debug, Default)]
pub(super) struct TurnLines(Arc<Mutex<HashMap<TreeKey, Arc<TurnLine>>>>);

#[derive(Debug)]
struct TurnLine {
    turn: Arc<Semaphore>,
    /// Who has the turn, and who waits.
    within: AtomicUsize,
}

/// The turn, until it is dropped.
#[derive(Debug)]
pub(super) struct TurnPermit {
    _turn: OwnedSemaphorePermit,
    _place: TurnPlace,
}

/// A place in a line: who drops it has left, and the last one takes the line away.
#[derive(Debug)]
struct TurnPlace {
    lines: Arc<Mutex<HashMap<TreeKey, Arc<TurnLine>>>>,
    key: TreeKey,
    line: Arc<TurnLine>,
}

impl TurnLines {
    /// Waits for the turn, first come first served.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] when too many wait, or it takes too long.
    pub(super) async fn turn(&self, key: &TreeKey) -> Result<TurnPermit, Refusal> {
        let place = self.place(key).ok_or_else(|| Refusal::Overloaded {
            what: format!("the line of calls of one state, which holds {WAITING},"),
        })?;
        let turn = place.line.turn.clone().acquire_owned();
        match tokio::time::timeout(PATIENCE, turn).await {
            Ok(Ok(turn)) => Ok(TurnPermit {
                _turn: turn,
                _place: place,
            }),
            Ok(Err(_)) | Err(_) => Err(Refusal::Overloaded {
                what: format!(
                    "the line of calls of one state did not move for {} s; it",
                    PATIENCE.as_secs()
                ),
            }),
        }
    }

    /// True when nobody is in any line.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        locked(&self.0).is_empty()
    }

    fn place(&self, key: &TreeKey) -> Option<TurnPlace> {
        let mut lines = locked(&self.0);
        let line = lines.entry(key.clone()).or_insert_with(|| {
            Arc::new(TurnLine {
                turn: Arc::new(Semaphore::new(1)),
                within: AtomicUsize::new(0),
            })
        });
        // Under the lock, as is leaving.
        if line.within.load(Ordering::Relaxed) > WAITING {
            return None;
        }
        line.within.fetch_add(1, Ordering::Relaxed);
        Some(TurnPlace {
            lines: self.0.clone(),
            key: key.clone(),
            line: line.clone(),
        })
    }
}

impl Drop for TurnPlace {
    fn drop(&mut self) {
        let mut lines = locked(&self.lines);
        if self.line.within.fetch_sub(1, Ordering::Relaxed) == 1 {
            lines.remove(&self.key);
        }
    }
}

type Lines = HashMap<TreeKey, Arc<TurnLine>>;

fn locked(lines: &Mutex<Lines>) -> MutexGuard<'_, Lines> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}
