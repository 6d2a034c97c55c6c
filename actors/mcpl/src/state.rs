//! Checkpoint storage (MCPL §8): a journal for each server, on disk before a call is answered.
//!
//! Calls of one tree are serialized: each call carries the state that the previous one left. There is no actor: a call
//! holds the permit of its tree, and dropping it passes the permit on.

mod checkpoint_tree_queues;
mod result_state;
mod rollback;
mod server_states;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mgp_callers::request::Caller;
use mgp_mcpl_engine::state::checkpoint_tree::CarriedState;
use mgp_mcpl_engine::state::checkpoint_trees::StateTrees;
use mgp_mcpl_engine::state::record::TreeKey;
use mgp_mcpl_engine::state::rules::{SharedBy, StateRules};
use mgp_protocol::ids::{AgentId, ConnectionId, ServerId};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::randomness;
use mgp_runtime::task::{self, TaskError};
use mgp_store::journal::AppendError;

use self::checkpoint_tree_queues::TreePermit;
use self::server_states::{FILE_EXTENSION, ServerStates};

pub use self::result_state::{split_state, with_note, with_text};
pub use self::rollback::RollbackRequest;

/// How often expired states are removed. Much shorter than any sensible retention.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(600);

/// The states of all servers.
#[derive(Debug)]
pub struct States {
    folder: PathBuf,
    /// Distinguishes the sessions of this run of the kernel from those of others.
    run: String,
    rules: Mutex<Arc<StateRules>>,
    servers: Mutex<HashMap<ServerId, Arc<ServerStates>>>,
}

/// The permit of a call: no other call of its tree is in flight until it is dropped.
#[derive(Debug)]
pub struct TreeLock {
    /// The state that the call carries.
    pub carried: CarriedState,
    server: Arc<ServerStates>,
    key: TreeKey,
    _permit: TreePermit,
}

/// The position of a tree after a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreePosition {
    /// The state that the next call carries.
    pub checkpoint: Option<Arc<str>>,
    /// The reason if the server's state was not stored.
    pub rejection: Option<String>,
}

impl States {
    /// The states in this folder, which is created when needed.
    #[must_use]
    pub fn new(folder: PathBuf, rules: StateRules) -> Arc<Self> {
        let run = u32::from_le_bytes(randomness::random_bytes());
        let stored = stored_servers(&folder).into_iter();
        let open = |id: ServerId| (id.clone(), Arc::new(ServerStates::new(&folder, &id)));
        let servers = Mutex::new(stored.map(open).collect());
        Arc::new(Self {
            folder,
            run: format!("{run:08x}"),
            rules: Mutex::new(Arc::new(rules)),
            servers,
        })
    }

    /// `[mcpl.state]`.
    #[must_use]
    pub fn rules(&self) -> Arc<StateRules> {
        let rules = self.rules.lock();
        rules.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies a changed configuration from the next call on.
    pub fn configure(&self, rules: StateRules) {
        let mut current = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(rules);
    }

    /// The tree that a call of this set continues; `None` if nothing is stored.
    #[must_use]
    pub fn key(&self, server: &ServerId, set: &str, caller: &Caller) -> Option<TreeKey> {
        let agent = Some(caller.agent.clone());
        let (agent, session) = match self.rules().shared_by(server, set) {
            SharedBy::Nobody => return None,
            SharedBy::Everyone => (None, None),
            SharedBy::Agent => (agent, None),
            // A client without a session continues the state of its agent.
            SharedBy::Session if caller.is_stateless() => (agent, None),
            SharedBy::Session => (agent, Some(self.session(caller.connection))),
        };
        Some(TreeKey {
            set: set.into(),
            agent,
            session,
        })
    }

    fn session(&self, connection: ConnectionId) -> Arc<str> {
        format!("{}-{}", self.run, connection.0).into()
    }

    /// Waits for the permit of this tree. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] when the queue is full, the wait times out, or no further state can be stored;
    /// [`Refusal::Internal`] when the stored states cannot be read.
    pub async fn lock_tree(&self, server: &ServerId, key: TreeKey) -> Result<TreeLock, Refusal> {
        let server = self.open_server(server).await?;
        let permit = server.queues.acquire(&key).await?;
        let trees = server.trees();
        trees
            .check_capacity(&key)
            .map_err(|full| Refusal::Overloaded {
                what: full.to_string(),
            })?;
        let carried = trees.carried_state(&key);
        drop(trees);
        Ok(TreeLock {
            carried,
            server,
            key,
            _permit: permit,
        })
    }

    /// The states of this server, read from disk the first time.
    ///
    /// # Errors
    /// [`Refusal::Internal`], with a text for the operator.
    pub(crate) async fn open_server(
        &self,
        server: &ServerId,
    ) -> Result<Arc<ServerStates>, Refusal> {
        let states = self.server_states(&server.server());
        states.open().await.map_err(Refusal::Internal)?;
        Ok(states)
    }

    fn server_states(&self, server: &ServerId) -> Arc<ServerStates> {
        let mut servers = self.servers();
        let open = || Arc::new(ServerStates::new(&self.folder, server));
        servers.entry(server.clone()).or_insert_with(open).clone()
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<ServerId, Arc<ServerStates>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_servers(&self) -> Vec<Arc<ServerStates>> {
        self.servers().values().cloned().collect()
    }

    /// Ends the states of an agent's session; they are removed when they expire.
    pub fn session_ended(&self, agent: &AgentId, connection: ConnectionId) {
        let session = self.session(connection);
        for server in self.all_servers() {
            let (agent, session) = (agent.clone(), session.clone());
            let ends = async move { server.end_session(&agent, &session).await };
            task::spawn_detached("mcpl.ended_session", ends);
        }
    }

    /// Ends the states of a removed server; they are removed when they expire, unless it returns before.
    pub fn server_removed(&self, server: &ServerId) {
        let Some(states) = self.servers().get(&server.server()).cloned() else {
            return;
        };
        let ends = async move {
            if states.open().await.is_ok() {
                states.end_all(true).await;
            }
        };
        task::spawn_detached("mcpl.removed_server", ends);
    }

    /// Loads stored states, ends the sessions of the previous run, and periodically removes expired states. Ends with the
    /// states.
    pub async fn run_maintenance(states: Weak<Self>) {
        if let Some(states) = states.upgrade() {
            for server in stored_servers(&states.folder) {
                match states.open_server(&server).await {
                    Ok(stored) => stored.end_all(false).await,
                    Err(why) => tracing::error!(%server, %why, "its states cannot be read"),
                }
            }
        }
        loop {
            let Some(states) = states.upgrade() else {
                return;
            };
            let (keep, all) = (states.rules().keep_ended, states.all_servers());
            drop(states);
            for server in all {
                server.expire(keep).await;
            }
            tokio::time::sleep(MAINTENANCE_INTERVAL).await;
        }
    }

    /// Whether calls of this tree are serialized, since it has a stored state. For a server that never had one this costs one
    /// lookup.
    pub async fn has_tree(&self, server: &ServerId, key: &TreeKey) -> bool {
        if !self.servers().contains_key(&server.server()) {
            return false;
        }
        // A read failure is reported when the permit is acquired.
        let Ok(states) = self.open_server(server).await else {
            return true;
        };
        states.trees().tree(key).is_some()
    }

    /// All trees of a server.
    ///
    /// # Errors
    /// [`Refusal::Internal`] when the stored states cannot be read.
    pub async fn trees(&self, server: &ServerId) -> Result<StateTrees, Refusal> {
        if !self.servers().contains_key(server) {
            return Ok(StateTrees::default());
        }
        let states = self.open_server(server).await?;
        let trees = states.trees().clone();
        Ok(trees)
    }
}

/// The servers with stored states.
fn stored_servers(folder: &Path) -> Vec<ServerId> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter_map(|name| ServerId::parse(name.strip_suffix(FILE_EXTENSION)?).ok())
        .collect()
}

impl TreeLock {
    /// Stores the state of the server's answer, and passes the permit on. Completes even if its caller is dropped: the next
    /// call carries the state on disk.
    ///
    /// # Errors
    /// [`Refusal::Internal`] when the disk failed; the tree is unchanged.
    pub async fn settle(self, result_state: String) -> Result<TreePosition, Refusal> {
        let settles = task::spawn_supervised("mcpl.state_of_result", async move {
            self.server.settle(&self.key, &result_state).await
        });
        let settled = settles.detach().await;
        match settled.map_err(|_| TaskError::Aborted).flatten() {
            Ok(settled) => settled.map_err(|why| store_error(&why)),
            Err(broken) => Err(Refusal::Internal(broken.to_string())),
        }
    }

    /// Whether the tree has this checkpoint.
    #[must_use]
    pub(crate) fn has_checkpoint(&self, checkpoint: &str) -> bool {
        let trees = self.server.trees();
        let tree = trees.tree(&self.key);
        tree.is_some_and(|tree| tree.contains(checkpoint))
    }

    /// Moves the tree to an earlier checkpoint, to which the server has rolled back.
    ///
    /// # Errors
    /// As [`Self::settle`].
    pub(crate) async fn move_to(self, checkpoint: String) -> Result<TreePosition, Refusal> {
        let result_state = format!(r#"{{"checkpoint":{}}}"#, mgp_json::quote(&checkpoint));
        self.settle(result_state).await
    }
}

fn store_error(why: &AppendError) -> Refusal {
    Refusal::Internal(format!(
        "the tool did its work, but the state that it answered could not be kept, and the next call goes on from the one before: {why}"
    ))
}
