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
use super::checkpoint_tree_queues::TreeQueues;

/// The suffix of a journal's name, after the server's id.
pub(super) const FILE_EXTENSION: &str = ".journal";
/// The kind of journal.
const KIND: &str = "states";
/// A result and a state that are longer than this together, in bytes, take more than a millisecond to patch.
const LONG_BYTES: usize = 64 << 10;
/// A journal is compacted when it has more than twice the stored bytes, and this many bytes more: so each byte is written
/// a few times at most.
const SLACK: usize = 8 << 20;

/// The states of one server.
#[derive(Debug)]
pub(crate) struct ServerStates {
    id: ServerId,
    path: PathBuf,
    journal: OnceCell<Journal>,
    trees: Mutex<StateTrees>,
    pub(super) queues: TreeQueues,
    /// Compaction holds it exclusively, so that no concurrent write is missed.
    write_lock: RwLock<()>,
    /// Bytes in the journal since the last compaction, at least.
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

    pub(crate) fn trees(&self) -> MutexGuard<'_, StateTrees> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the states from disk, the first time.
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
            let (journal, tail, trees, bytes) = opened
                .map_err(|why| format!("the states of server {} cannot be read: {why}", self.id))?;
            if let Some(tail) = tail {
                tracing::warn!(server = %self.id, "{tail}; the call was not answered either");
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
        result_state: &str,
    ) -> Result<TreePosition, AppendError> {
        let evaluated = self.evaluate(key, result_state).await;
        let rejection = match evaluated {
            Ok(step) => {
                if let Some(record) = StateRecord::from_step(key, &step) {
                    self.write(vec![record]).await?;
                }
                None
            }
            Err(fault) => {
                tracing::warn!(server = %self.id, set = %key.set, %fault, "the state of a result is not stored");
                Some(fault.to_string())
            }
        };
        let trees = self.trees();
        let current = trees.tree(key).and_then(|tree| tree.current());
        Ok(TreePosition {
            checkpoint: current.map(|current| current.id.clone()),
            rejection,
        })
    }

    /// The effect of a result on its tree. Long ones are evaluated off the threads that carry calls.
    async fn evaluate(&self, key: &TreeKey, result_state: &str) -> Result<TreeStep, StateError> {
        let tree = self.trees().tree(key).cloned().unwrap_or_default();
        let state_bytes = tree.current().and_then(|current| current.data.as_ref());
        let state_bytes = state_bytes.map_or(0, |data| data.len());
        let step = if result_state.len() + state_bytes < LONG_BYTES {
            evaluate_step(&tree, result_state)?
        } else {
            let result_state = result_state.to_owned();
            let evaluated = task::run_blocking("mcpl.judging_state", move || {
                evaluate_step(&tree, &result_state)
            });
            let broken = |broken: TaskError| StateError::Malformed(broken.to_string());
            evaluated.await.map_err(broken)??
        };
        self.trees().check_step(key, &step)?;
        Ok(step)
    }

    /// Writes records to the journal, then applies them.
    async fn write(&self, records: Vec<StateRecord>) -> Result<(), AppendError> {
        let pieces: Vec<Vec<u8>> = records.iter().flat_map(StateRecord::to_pieces).collect();
        let bytes: usize = pieces.iter().map(Vec::len).sum();
        let writing = self.write_lock.read().await;
        let journal = self.open().await.map_err(AppendError::Failed)?;
        journal.append_all(pieces).await?;
        let stored_bytes = {
            let mut trees = self.trees();
            for record in records {
                trees.apply(record);
            }
            trees.bytes()
        };
        drop(writing);
        let written = self.bytes_written.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if written > 2 * stored_bytes + SLACK {
            self.compact(journal).await;
        }
        Ok(())
    }

    /// Removes outdated records from the journal.
    async fn compact(&self, journal: &Journal) {
        let _alone = self.write_lock.write().await;
        let records = self.trees().to_records();
        let pieces: Vec<Vec<u8>> = records.iter().flat_map(StateRecord::to_pieces).collect();
        let bytes: usize = pieces.iter().map(Vec::len).sum();
        match journal.replace(pieces).await {
            Ok(()) => self.bytes_written.store(bytes, Ordering::Relaxed),
            // The journal is intact, and the next write retries.
            Err(why) => {
                tracing::warn!(server = %self.id, %why, "the journal of its states is not compacted")
            }
        }
    }

    pub(super) async fn end_session(&self, agent: &AgentId, session: &str) {
        let ending = self.trees().session_end_records(agent, session, unix_ms());
        self.write_unawaited(ending).await;
    }

    /// Ends all sessions; for a removed server, all states.
    pub(super) async fn end_all(&self, is_removed: bool) {
        let ending = self.trees().all_end_records(is_removed, unix_ms());
        self.write_unawaited(ending).await;
    }

    /// Removes states that ended longer ago than `keep`.
    pub(super) async fn expire(&self, keep: Duration) {
        let keep = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
        let expired = self.trees().expire_records(unix_ms(), keep);
        self.write_unawaited(expired).await;
    }

    /// Writes records that nobody waits for; after a disk failure, the next start writes them again.
    async fn write_unawaited(&self, records: Vec<StateRecord>) {
        if records.is_empty() {
            return;
        }
        if let Err(why) = self.write(records).await {
            tracing::warn!(server = %self.id, %why, "the end of a state is not stored");
        }
    }
}

fn evaluate_step(tree: &StateTree, result_state: &str) -> Result<TreeStep, StateError> {
    let malformed = |refusal: Refusal| StateError::Malformed(refusal.to_string());
    let result_state: ResultState<'_> = mcp::parse_params(Some(result_state)).map_err(malformed)?;
    tree.evaluate(&result_state, unix_ms())
}

fn explain_io_error(path: &Path, error: &std::io::Error) -> String {
    mgp_store::explain_io_error(path, error)
}
