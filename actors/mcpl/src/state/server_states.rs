//! The states of one server, and their journal.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_mcpl_engine::state::checkpoint_tree::{StateError, StateTree, TreeStep};
use mgp_mcpl_engine::state::checkpoint_trees::StateTrees;
use mgp_mcpl_engine::state::record::{StateRecord, TreeKey};
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mcp;
use mgp_protocol::mcpl::state::ResultState;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::task::{self, TaskError};
use mgp_runtime::time::unix_ms;
use mgp_store::atomic_file;
use mgp_store::journal::{AppendError, Journal};
use tokio::sync::{OnceCell, RwLock};

use super::TreePosition;
use super::tree_queues::TreeQueues;

/// How the name of a journal ends; the server's id stands before it.
pub(super) const FILE_EXTENSION: &str = ".journal";
/// What the journal of states says it is.
const KIND: &str = "states";
/// A result and a state that are longer than this together, in bytes, take more than a millisecond to patch.
const LONG_BYTES: usize = 64 << 10;
/// A journal is written anew when it has more than twice what is kept, and this many bytes more: so each byte is
/// written a few times at most.
const SLACK: usize = 8 << 20;

/// The states of one server.
#[derive(Debug)]
pub(crate) struct ServerStates {
    id: ServerId,
    path: PathBuf,
    journal: OnceCell<Journal>,
    trees: Mutex<StateTrees>,
    pub(super) queues: TreeQueues,
    /// Who writes all anew holds it alone, so that nothing is written meanwhile that it does not know of.
    write_lock: RwLock<()>,
    /// Bytes in the journal since it was last written anew, at least.
    bytes_written: AtomicUsize,
}

impl ServerStates {
    pub(super) fn new(folder: &Path, id: &ServerId) -> Self {
        Self {
            id: id.clone(),
            path: folder.join(format!("{id}{FILE_EXTENSION}")),
            journal: OnceCell::new(),
            trees: Mutex::default(),
            queues: TreeQueues::default(),
            write_lock: RwLock::default(),
            bytes_written: AtomicUsize::default(),
        }
    }

    /// All trees.
    pub(crate) fn trees(&self) -> MutexGuard<'_, StateTrees> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what is on disk, the first time.
    pub(super) async fn open(&self) -> Result<&Journal, String> {
        let open = || async {
            let path = self.path.clone();
            let opened = task::run_blocking("mcpl.opening_states", move || {
                if let Some(folder) = path.parent() {
                    atomic_file::create_folder(folder).map_err(|e| explain_io_error(&path, &e))?;
                }
                let opened = Journal::open(&path, KIND).map_err(|e| e.to_string())?;
                let bytes = opened.entries.iter().map(Vec::len).sum::<usize>();
                let trees = StateTrees::from_records(StateRecord::from_entries(&opened.entries));
                Ok::<_, String>((opened.journal, opened.torn_tail, trees, bytes))
            });
            let opened = opened.await.map_err(|broken| broken.to_string())?;
            let (journal, cut, trees, bytes) = opened
                .map_err(|why| format!("the states of server {} cannot be read: {why}", self.id))?;
            if let Some(cut) = cut {
                tracing::warn!(server = %self.id, "{cut}; the call was not answered either");
            }
            *self.trees() = trees;
            self.bytes_written.store(bytes, Ordering::Relaxed);
            Ok(journal)
        };
        self.journal.get_or_try_init(open).await
    }

    /// Evaluates the state in a result, and stores it. The caller holds the permit of the tree.
    pub(super) async fn settle(
        &self,
        key: &TreeKey,
        said: &str,
    ) -> Result<TreePosition, AppendError> {
        let judged = self.evaluate(key, said).await;
        let refused = match judged {
            Ok(step) => {
                if let Some(record) = StateRecord::from_step(key, &step) {
                    self.write(vec![record]).await?;
                }
                None
            }
            Err(fault) => {
                tracing::warn!(server = %self.id, set = %key.set, %fault, "the state of a result is not kept");
                Some(fault.to_string())
            }
        };
        let trees = self.trees();
        let current = trees.tree(key).and_then(|tree| tree.current());
        Ok(TreePosition {
            checkpoint: current.map(|current| current.id.clone()),
            rejection: refused,
        })
    }

    /// What a result does to its tree. Long ones are judged beside the threads that carry calls.
    async fn evaluate(&self, key: &TreeKey, said: &str) -> Result<TreeStep, StateError> {
        let tree = self.trees().tree(key).cloned().unwrap_or_default();
        let held = tree.current().and_then(|current| current.data.as_ref());
        let held = held.map_or(0, |data| data.len());
        let step = if said.len() + held < LONG_BYTES {
            evaluate_step(&tree, said)?
        } else {
            let said = said.to_owned();
            let judged =
                task::run_blocking("mcpl.judging_state", move || evaluate_step(&tree, &said));
            let broken = |broken: TaskError| StateError::Malformed(broken.to_string());
            judged.await.map_err(broken)??
        };
        self.trees().check_step(key, &step)?;
        Ok(step)
    }

    /// Writes down, then carries out.
    async fn write(&self, records: Vec<StateRecord>) -> Result<(), AppendError> {
        let pieces: Vec<Vec<u8>> = records.iter().flat_map(StateRecord::to_pieces).collect();
        let bytes: usize = pieces.iter().map(Vec::len).sum();
        let writing = self.write_lock.read().await;
        let journal = self.open().await.map_err(AppendError::Failed)?;
        journal.append_all(pieces).await?;
        let kept = {
            let mut trees = self.trees();
            for record in records {
                trees.apply(record);
            }
            trees.bytes()
        };
        drop(writing);
        let written = self.bytes_written.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if written > 2 * kept + SLACK {
            self.compact(journal).await;
        }
        Ok(())
    }

    /// Removes from the journal what is not stored any more.
    async fn compact(&self, journal: &Journal) {
        let _alone = self.write_lock.write().await;
        let records = self.trees().to_records();
        let pieces: Vec<Vec<u8>> = records.iter().flat_map(StateRecord::to_pieces).collect();
        let bytes: usize = pieces.iter().map(Vec::len).sum();
        match journal.replace(pieces).await {
            Ok(()) => self.bytes_written.store(bytes, Ordering::Relaxed),
            // What is there is whole, and the next one tries again.
            Err(why) => tracing::warn!(server = %self.id, %why, "its states are not written anew"),
        }
    }

    pub(super) async fn end_session(&self, agent: &AgentId, session: &str) {
        let ending = self.trees().session_end_records(agent, session, unix_ms());
        self.write_unawaited(ending).await;
    }

    /// Ends all sessions; for a removed server, everything.
    pub(super) async fn end_all(&self, gone: bool) {
        let ending = self.trees().all_end_records(gone, unix_ms());
        self.write_unawaited(ending).await;
    }

    /// Takes out what ended longer ago than this.
    pub(super) async fn expire(&self, keep: Duration) {
        let keep = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
        let expired = self.trees().expire_records(unix_ms(), keep);
        self.write_unawaited(expired).await;
    }

    /// Writes down what nobody waits for; what the disk does not take is said again at the next start.
    async fn write_unawaited(&self, records: Vec<StateRecord>) {
        if records.is_empty() {
            return;
        }
        if let Err(why) = self.write(records).await {
            tracing::warn!(server = %self.id, %why, "the end of a state is not written down");
        }
    }
}

fn evaluate_step(tree: &StateTree, said: &str) -> Result<TreeStep, StateError> {
    let malformed = |refusal: Refusal| StateError::Malformed(refusal.to_string());
    let said: ResultState<'_> = mcp::parse_params(Some(said)).map_err(malformed)?;
    tree.evaluate(&said, unix_ms())
}

fn explain_io_error(path: &Path, error: &std::io::Error) -> String {
    mgp_store::health::explain_io_error(path, error)
}
