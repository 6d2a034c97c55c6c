//! The states of one server, and their journal.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mgp_mcpl_engine::state::record::{StateRecord, TreeKey};
use mgp_mcpl_engine::state::tree::{StateFault, StateTree, TreeStep};
use mgp_mcpl_engine::state::trees::StateTrees;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mcp;
use mgp_protocol::mcpl::state::ResultState;
use mgp_protocol::refusal::Refusal;
use mgp_runtime::task::{self, TaskBroken};
use mgp_runtime::time::unix_ms;
use mgp_store::atomic_file;
use mgp_store::journal::{Journal, NotAppended};
use tokio::sync::{OnceCell, RwLock};

use super::StateStanding;
use super::turn_lines::TurnLines;

/// How the name of a journal ends; the server's id stands before it.
pub(super) const FILE_ENDS: &str = ".journal";
/// What the journal of states says it is.
const KIND: &str = "states";
/// A result and a state that are longer than this together, in bytes, take more than a millisecond to patch.
const LONG: usize = 64 << 10;
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
    pub(super) lines: TurnLines,
    /// Who writes all anew holds it alone, so that nothing is written meanwhile that it does not know of.
    writing: RwLock<()>,
    /// Bytes in the journal since it was last written anew, at least.
    written: AtomicUsize,
}

impl ServerStates {
    pub(super) fn new(folder: &Path, id: &ServerId) -> Self {
        Self {
            id: id.clone(),
            path: folder.join(format!("{id}{FILE_ENDS}")),
            journal: OnceCell::new(),
            trees: Mutex::default(),
            lines: TurnLines::default(),
            writing: RwLock::default(),
            written: AtomicUsize::default(),
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
            let opened = task::blocking("mcpl.opening_states", move || {
                if let Some(folder) = path.parent() {
                    atomic_file::make_folder(folder).map_err(|e| explained(&path, &e))?;
                }
                let opened = Journal::open(&path, KIND).map_err(|e| e.to_string())?;
                let bytes = opened.entries.iter().map(Vec::len).sum::<usize>();
                let trees = StateTrees::read(StateRecord::read(&opened.entries));
                Ok::<_, String>((opened.journal, opened.cut, trees, bytes))
            });
            let opened = opened.await.map_err(|broken| broken.to_string())?;
            let (journal, cut, trees, bytes) = opened
                .map_err(|why| format!("the states of server {} cannot be read: {why}", self.id))?;
            if let Some(cut) = cut {
                tracing::warn!(server = %self.id, "{cut}; the call was not answered either");
            }
            *self.trees() = trees;
            self.written.store(bytes, Ordering::Relaxed);
            Ok(journal)
        };
        self.journal.get_or_try_init(open).await
    }

    /// Judges what a result says, and keeps it. Whoever calls holds the turn of the tree.
    pub(super) async fn settle(
        &self,
        key: &TreeKey,
        said: &str,
    ) -> Result<StateStanding, NotAppended> {
        let judged = self.judged(key, said).await;
        let refused = match judged {
            Ok(step) => {
                if let Some(record) = StateRecord::of(key, &step) {
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
        Ok(StateStanding {
            checkpoint: current.map(|current| current.id.clone()),
            refused,
        })
    }

    /// What a result does to its tree. Long ones are judged beside the threads that carry calls.
    async fn judged(&self, key: &TreeKey, said: &str) -> Result<TreeStep, StateFault> {
        let tree = self.trees().tree(key).cloned().unwrap_or_default();
        let held = tree.current().and_then(|current| current.data.as_ref());
        let held = held.map_or(0, |data| data.len());
        let step = match said.len() + held < LONG {
            true => judged(&tree, said)?,
            false => {
                let said = said.to_owned();
                let judged = task::blocking("mcpl.judging_state", move || judged(&tree, &said));
                let broken = |broken: TaskBroken| StateFault::Malformed(broken.to_string());
                judged.await.map_err(broken)??
            }
        };
        self.trees().fits(key, &step)?;
        Ok(step)
    }

    /// Writes down, then carries out.
    async fn write(&self, records: Vec<StateRecord>) -> Result<(), NotAppended> {
        let pieces: Vec<Vec<u8>> = records.iter().flat_map(StateRecord::pieces).collect();
        let bytes: usize = pieces.iter().map(Vec::len).sum();
        let writing = self.writing.read().await;
        let journal = self.open().await.map_err(NotAppended::Failed)?;
        journal.append_all(pieces).await?;
        let kept = {
            let mut trees = self.trees();
            for record in records {
                trees.apply(record);
            }
            trees.bytes()
        };
        drop(writing);
        let written = self.written.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if written > 2 * kept + SLACK {
            self.write_anew(journal).await;
        }
        Ok(())
    }

    /// Leaves out of the journal what is not kept any more.
    async fn write_anew(&self, journal: &Journal) {
        let _alone = self.writing.write().await;
        let records = self.trees().records();
        let pieces: Vec<Vec<u8>> = records.iter().flat_map(StateRecord::pieces).collect();
        let bytes: usize = pieces.iter().map(Vec::len).sum();
        match journal.replace(pieces).await {
            Ok(()) => self.written.store(bytes, Ordering::Relaxed),
            // What is there is whole, and the next one tries again.
            Err(why) => tracing::warn!(server = %self.id, %why, "its states are not written anew"),
        }
    }

    pub(super) async fn end_session(&self, agent: &AgentId, session: &str) {
        let ending = self.trees().ending(agent, session, unix_ms());
        self.noted(ending).await;
    }

    /// Ends all sessions; of a server that is gone, everything.
    pub(super) async fn end_all(&self, gone: bool) {
        let ending = self.trees().all_ended(gone, unix_ms());
        self.noted(ending).await;
    }

    /// Takes out what ended longer ago than this.
    pub(super) async fn expire(&self, keep: Duration) {
        let keep = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
        let expired = self.trees().expired(unix_ms(), keep);
        self.noted(expired).await;
    }

    /// Writes down what nobody waits for; what the disk does not take is said again at the next start.
    async fn noted(&self, records: Vec<StateRecord>) {
        if records.is_empty() {
            return;
        }
        if let Err(why) = self.write(records).await {
            tracing::warn!(server = %self.id, %why, "the end of a state is not written down");
        }
    }
}

fn judged(tree: &StateTree, said: &str) -> Result<TreeStep, StateFault> {
    let malformed = |refusal: Refusal| StateFault::Malformed(refusal.to_string());
    let said: ResultState<'_> = mcp::read(Some(said)).map_err(malformed)?;
    tree.judge(&said, unix_ms())
}

fn explained(path: &Path, error: &std::io::Error) -> String {
    mgp_store::trouble::explained(path, error)
}
