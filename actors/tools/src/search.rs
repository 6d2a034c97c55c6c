//! Search for tools (MGP §16.4): publishes an index of the catalog, and runs searches.
//! The catalog sends to it; agents and the operator search; worker threads compute embeddings.
//!
//! A restart after a failure rebuilds the index from the published catalog; the threads continue.
//!
//! Tools can be found by words as soon as they are published, and by meaning once a thread has embedded their texts.
//! Vectors are stored in a file.

mod embedding_priority;
mod embedding_queue;
#[cfg(test)]
mod held_out_requests;
mod kinds;
mod model;
mod provider;
mod query;
mod remote;
mod vector_file;
mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use mgp_cluster::PeerServer;
use mgp_engine::policy::access::GrantTable;
use mgp_engine::tools::catalog::{CatalogTool, ServerOffer};
use mgp_engine::tools::index::{Index, IndexDraft, ServerIndex};
use mgp_protocol::federation::tool_index::ToolVector;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::discovery::security::Security;
use mgp_sync::Snapshot;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};
use tokio::sync::Semaphore;

use crate::published_catalog::PublishedCatalog;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::{Mailbox, Queued, task};
use mgp_servers::ServerTable;

use self::embedding_queue::EmbeddingQueue;
pub(crate) use self::model::ModelLocation;
use self::model::Models;
pub use self::model::{Embedding, EmbeddingOptions, Program, serve};
pub use self::provider::{Key, Provider};
pub use self::query::{Hit, ServerStatusFilter, ToolQuery, ToolSearchResult};
pub use self::remote::RemoteTools;

/// Searches that run at once; each takes some milliseconds of a core.
const CONCURRENT_MAX: usize = 2;
/// Searches that wait to run or for the embedding of their query. Further ones are rejected.
const WAITING_MAX: usize = 64;

/// A shared handle to the search.
#[derive(Debug, Clone)]
pub struct SearchHandle {
    mailbox: Mailbox<SearchMsg>,
    parts: Arc<SearchParts>,
}

/// The tools of other nodes, once there is a cluster.
type Remote = OnceLock<RemoteTools>;

/// The inputs of searches, and whatever outlives the actor.
#[derive(Debug)]
struct SearchParts {
    published: Arc<Snapshot<PublishedCatalog>>,
    index: Arc<Snapshot<Index>>,
    queue: Arc<EmbeddingQueue>,
    models: Arc<Models>,
    table: Arc<Snapshot<GrantTable>>,
    servers: Arc<ServerTable>,
    kinds: kinds::Kinds,
    remote: Arc<Remote>,
    /// Watches the tools of other nodes; ends with the last handle.
    remote_follower: OnceLock<SupervisedTask<()>>,
    waiting_permits: Semaphore,
    running_permits: Semaphore,
}

/// The dependencies of the search.
#[derive(Debug)]
pub struct SearchOptions {
    /// The published catalog.
    pub published: Arc<Snapshot<PublishedCatalog>>,
    /// Access control.
    pub table: Arc<Snapshot<GrantTable>>,
    /// The states of servers.
    pub servers: Arc<ServerTable>,
    /// The source of embeddings.
    pub embedding: EmbeddingOptions,
    /// The file of vectors.
    pub file: PathBuf,
    /// The kernel's data folder, whose audit log shows which tools were called.
    pub data_dir: PathBuf,
}

impl SearchOptions {
    /// Starts the actor and the embedding threads.
    ///
    /// # Errors
    /// The actor cannot be started.
    pub async fn open(self) -> Result<(SearchHandle, ActorCell), SpawnErr> {
        let index = Arc::new(Snapshot::new(Index::default()));
        let usage_counts = match self.embedding.embedding {
            Embedding::Off => embedding_queue::UsageCounts::new(),
            Embedding::Builtin | Embedding::Provider(_) => {
                let reading = task::run_blocking("search.uses", move || {
                    embedding_priority::read_usage_counts(&self.data_dir)
                });
                reading.await.unwrap_or_default()
            }
        };
        let queue = Arc::new(EmbeddingQueue::new(
            self.embedding.embedding.dimension(),
            usage_counts,
        ));
        let models = Arc::new(Models::new(self.embedding));
        let mailbox = Mailbox::new_restartable();
        worker::start(&queue, &models, self.file, mailbox.clone())
            .map_err(|error| SpawnErr::StartupFailed(error.into()))?;
        let parts = SearchParts {
            published: self.published,
            index,
            queue,
            models,
            table: self.table,
            servers: self.servers,
            kinds: kinds::Kinds::default(),
            remote: Arc::default(),
            remote_follower: OnceLock::new(),
            waiting_permits: Semaphore::new(WAITING_MAX + CONCURRENT_MAX),
            running_permits: Semaphore::new(CONCURRENT_MAX),
        };
        let handle = SearchHandle {
            mailbox,
            parts: Arc::new(parts),
        };
        let cell = handle.start().await?;
        Ok((handle, cell))
    }
}

/// Dropping the last handle ends the threads.
impl Drop for SearchParts {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl SearchHandle {
    /// Restarts the actor after a failure.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn start(&self) -> Result<ActorCell, SpawnErr> {
        let actor = SearchActor {
            published: self.parts.published.clone(),
            index: self.parts.index.clone(),
            queue: self.parts.queue.clone(),
            remote: self.parts.remote.clone(),
            model: self.parts.models.id(),
        };
        let cell = self.mailbox.start(actor, ()).await?;
        self.notify_published();
        Ok(cell)
    }

    /// Uses the vectors that other nodes made of their tools from now on. Called once.
    pub fn set_remote(&self, remote: RemoteTools) {
        if let Ok(()) = self.parts.remote.set(remote.clone()) {
            let follower = remote::run_follower(remote, self.mailbox.clone());
            let follower = task::spawn_supervised("search.follow", follower);
            let _ = self.parts.remote_follower.set(follower);
        }
    }

    /// The vectors of a server's tools in the form for other nodes.
    #[must_use]
    pub(crate) fn vectors_for_nodes(
        &self,
        indexed: &ServerIndex,
    ) -> BTreeMap<Arc<str>, ToolVector> {
        let model = self.parts.models.id();
        let vectors = model.map(|model| remote::to_remote_vectors(indexed, &model));
        vectors.unwrap_or_default()
    }

    /// The published index; replaced whenever something in it changes.
    #[must_use]
    pub fn index(&self) -> Arc<Index> {
        self.parts.index.load()
    }

    /// Reports a changed catalog. May be dropped when the mailbox is full: a queued message of the same kind will read
    /// the newest catalog.
    pub(crate) fn notify_published(&self) {
        let _ = self.mailbox.send(SearchMsg::Published);
    }
}

/// Messages to the actor.
#[derive(Debug)]
pub enum SearchMsg {
    /// The catalog has changed.
    Published,
    /// More texts of this server have been embedded.
    Embedded(ServerId),
    /// The first vector of a model showed its dimension.
    DimensionKnown,
}

/// Fixed at construction.
#[derive(Debug)]
struct SearchActor {
    published: Arc<Snapshot<PublishedCatalog>>,
    /// Where the index is published; only this actor writes it.
    index: Arc<Snapshot<Index>>,
    queue: Arc<EmbeddingQueue>,
    remote: Arc<Remote>,
    /// The model's id at other nodes.
    model: Option<String>,
}

/// The state of the actor: the inputs of each server's index.
#[derive(Debug)]
struct SearchState {
    inputs: BTreeMap<ServerId, IndexInput>,
}

/// The inputs of a server's index.
#[derive(Debug, Clone)]
struct IndexInput {
    tools: Arc<[Arc<CatalogTool>]>,
    /// The server's instructions, which its vectors depend on; `None` for a restored list, until it is connected.
    about: Option<Box<str>>,
    /// The offer of its node, if that has vectors of the model used here.
    remote: Option<Arc<PeerServer>>,
}

impl IndexInput {
    /// Whether both give the same index. Most inputs are shared and compare by pointer.
    fn is_same_as(&self, other: &Self, model: Option<&str>) -> bool {
        let is_same = |(a, b): (&Arc<CatalogTool>, &Arc<CatalogTool>)| Arc::ptr_eq(a, b);
        let has_same_tools = Arc::ptr_eq(&self.tools, &other.tools)
            || self.tools.len() == other.tools.len()
                && self.tools.iter().zip(&*other.tools).all(is_same);
        has_same_tools && self.about == other.about && self.has_same_vectors(other, model)
    }

    fn has_same_vectors(&self, other: &Self, model: Option<&str>) -> bool {
        let is_same_offer = match (&self.remote, &other.remote) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        is_same_offer || self.remote_vectors(model) == other.remote_vectors(model)
    }

    /// For each tool, the vector of this model that its node sent.
    fn remote_vectors(&self, model: Option<&str>) -> Vec<Option<&ToolVector>> {
        let tools = self.tools.iter();
        let offer = self.remote.as_deref().zip(model);
        tools
            .map(|tool| remote::remote_vector(offer?, &tool.own_name))
            .collect()
    }

    fn build_index(
        &self,
        server: &ServerId,
        model: Option<&str>,
        dimension: Option<usize>,
    ) -> ServerIndex {
        let draft = |(tool, vector): (&Arc<CatalogTool>, Option<&ToolVector>)| {
            let security = Security::from_definition(&tool.raw);
            let (name, raw) = (&tool.own_name, tool.visible_raw());
            let risk = tool.requirements.risk.level;
            IndexDraft::parse(server, name, raw, security.as_ref(), risk)
                .with_categories(&tool.requirements.rules().categories)
                .with_compatible_embedding(dimension)
                .with_vector(remote::to_vector(vector, dimension))
        };
        let tools = self.tools.iter().zip(self.remote_vectors(model));
        // Models do not call what is only for apps.
        let drafts = tools.filter(|(tool, _)| !tool.is_app_only()).map(draft);
        ServerIndex::new(
            server,
            self.about.as_deref().unwrap_or_default(),
            drafts.collect(),
        )
    }
}

impl Actor for SearchActor {
    type Msg = Queued<SearchMsg>;
    type State = SearchState;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<SearchState, ActorProcessingErr> {
        Ok(SearchState {
            inputs: BTreeMap::new(),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut SearchState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            SearchMsg::Published => self.update_index(state).await,
            SearchMsg::Embedded(server) => self.refresh_vectors(&server).await,
            SearchMsg::DimensionKnown => {
                // Vectors can be compared with the model's only once its dimension is known.
                state.inputs.clear();
                self.update_index(state).await;
            }
        }
        Ok(())
    }
}

impl SearchActor {
    /// The offer of another node for its server, if there is a model for its vectors.
    fn remote_server(&self, offer: &ServerOffer) -> Option<Arc<PeerServer>> {
        let remote = self.remote.get().filter(|_| self.model.is_some())?;
        remote.find_server(offer.server())
    }

    /// Updates the index to the published catalog.
    async fn update_index(&self, state: &mut SearchState) {
        let published = self.published.load();
        let input = |offer: &Arc<ServerOffer>| {
            let peer = published.peers.get(offer.server());
            let about = peer.map(|peer| peer.instructions.clone().unwrap_or_default());
            let input = IndexInput {
                remote: self.remote_server(offer),
                tools: offer.shared_tools(),
                about,
            };
            (offer.server().clone(), input)
        };
        let inputs: BTreeMap<ServerId, IndexInput> =
            published.catalog.offers().map(input).collect();
        let index = self.index.load();
        let indexed = index.servers().map(|indexed| indexed.server());
        for removed in indexed.filter(|server| !inputs.contains_key(*server)) {
            self.index.update(|index| index.without_server(removed));
            self.queue.forget(removed);
        }
        for (server, input) in &inputs {
            let before = state.inputs.get(server);
            if !before.is_some_and(|before| before.is_same_as(input, self.model.as_deref())) {
                self.index_server(server, input).await;
            }
        }
        state.inputs = inputs;
    }

    /// Tokenizing takes time, so it runs off the threads that carry calls.
    async fn index_server(&self, server: &ServerId, input: &IndexInput) {
        let is_complete = input.about.is_some();
        let (id, input, queue) = (server.clone(), input.clone(), self.queue.clone());
        let model = self.model.clone();
        let reading = task::run_blocking("search.index", move || {
            let index = input.build_index(&id, model.as_deref(), queue.dimension());
            let missing = queue.missing_texts(&index);
            (queue.fill(&index), missing)
        });
        // A panic over one server's texts affects no other server: only its tools are not found.
        let (index, missing) = match reading.await {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(%server, %error, "its tools cannot be indexed");
                return;
            }
        };
        let server_index = Arc::new(index);
        self.index
            .update(|index| index.with_server(server_index.clone()));
        // Tools of another node are embedded there, once for all nodes.
        if !server.is_remote() && is_complete {
            self.queue.push_texts(server, missing);
        }
    }

    async fn refresh_vectors(&self, server: &ServerId) {
        let Some(server_index) = self.index.load().server(server).cloned() else {
            return;
        };
        let queue = self.queue.clone();
        let filling = task::run_blocking("search.index", move || queue.fill(&server_index));
        let server_index = match filling.await {
            Ok(filled) => Arc::new(filled),
            Err(error) => {
                tracing::error!(%server, %error, "its tools are found by words alone");
                return;
            }
        };
        self.index
            .update(|index| index.with_server(server_index.clone()));
    }
}
