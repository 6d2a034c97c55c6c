//! Finds tools (MGP §16.4): keeps the index of what is offered, publishes it, and searches it for
//! those who ask.
//! Told by: catalog. Asked by: operator. Asks: the thread that embeds.
//!
//! Lost, it is started again with an index of what is published; the threads that embed go on.
//!
//! What a server offers can be found by its words as soon as it is published. Its meaning follows as
//! the thread that embeds comes to it, and what that thread has made lasts in a file.

mod embedding_queue;
#[cfg(test)]
mod everyday;
mod kinds;
mod model;
mod provider;
mod query;
mod uses;
mod vector_file;
mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use mgp_engine::policy::access::GrantTable;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_engine::tools::index::{Draft, Index, ServerIndex};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::security::Security;
use mgp_sync::snapshot::Snapshot;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};
use tokio::sync::Semaphore;

use crate::shown::Shown;
use mgp_runtime::mailbox::{Letter, Mailbox};
use mgp_runtime::task;
use mgp_servers::server::ServerTable;

use self::embedding_queue::EmbeddingQueue;
use self::model::Models;
pub use self::model::{Embedding, Meanings, ModelLocation, Program, serve};
pub use self::provider::{Key, Provider};
pub use self::query::{Coverage, Hit, ServerStatusFilter, ToolQuery, ToolsFound};

/// Searches that run at once: each takes some milliseconds of a core.
const SEARCHING: usize = 2;
/// Searches that wait for that, or for the meaning of what they look for. One more is refused.
const WAITING: usize = 64;

/// The way in for everyone else.
#[derive(Debug, Clone)]
pub struct SearchHandle {
    mailbox: Mailbox<SearchMsg>,
    parts: Arc<SearchParts>,
}

/// What a search reads, and what outlives the actor.
#[derive(Debug)]
struct SearchParts {
    shown: Arc<Snapshot<Shown>>,
    index: Arc<Snapshot<Index>>,
    queue: Arc<EmbeddingQueue>,
    models: Arc<Models>,
    table: Arc<Snapshot<GrantTable>>,
    servers: Arc<ServerTable>,
    kinds: kinds::Kinds,
    room: Semaphore,
    running: Semaphore,
}

/// What a search is made of.
#[derive(Debug)]
pub struct SearchOptions {
    /// What is offered.
    pub shown: Arc<Snapshot<Shown>>,
    /// Who may call what.
    pub table: Arc<Snapshot<GrantTable>>,
    /// In which state servers are.
    pub servers: Arc<ServerTable>,
    /// Where meanings come from.
    pub meanings: Meanings,
    /// Where they are kept.
    pub file: PathBuf,
    /// The kernel's data folder, where it is recorded which tools were called.
    pub data_dir: PathBuf,
}

impl SearchOptions {
    /// Starts the actor, and the threads that embed.
    ///
    /// # Errors
    /// When the actor cannot be started.
    pub async fn open(self) -> Result<(SearchHandle, ActorCell), SpawnErr> {
        let index = Arc::new(Snapshot::new(Index::default()));
        let uses = match self.meanings.embedding {
            Embedding::Off => embedding_queue::Uses::new(),
            Embedding::Builtin | Embedding::Provider(_) => {
                let reading = task::blocking("search.uses", move || uses::uses(&self.data_dir));
                reading.await.unwrap_or_default()
            }
        };
        let queue = Arc::new(EmbeddingQueue::new(
            self.meanings.embedding.dimension(),
            uses,
        ));
        let models = Arc::new(Models::new(self.meanings));
        let mailbox = Mailbox::restarted();
        worker::start(&queue, &models, self.file, mailbox.clone())
            .map_err(|error| SpawnErr::StartupFailed(error.into()))?;
        let parts = SearchParts {
            shown: self.shown,
            index,
            queue,
            models,
            table: self.table,
            servers: self.servers,
            kinds: kinds::Kinds::default(),
            room: Semaphore::new(WAITING + SEARCHING),
            running: Semaphore::new(SEARCHING),
        };
        let handle = SearchHandle {
            mailbox,
            parts: Arc::new(parts),
        };
        let cell = handle.start().await?;
        Ok((handle, cell))
    }
}

/// The threads end with the last who could ask them.
impl Drop for SearchParts {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl SearchHandle {
    /// Starts the actor again, in the place of one that was lost.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(&self) -> Result<ActorCell, SpawnErr> {
        let actor = SearchActor {
            shown: self.parts.shown.clone(),
            index: self.parts.index.clone(),
            queue: self.parts.queue.clone(),
        };
        let cell = self.mailbox.start(actor, ()).await?;
        self.published();
        Ok(cell)
    }

    /// Has the actor panic: used by tests to break it.
    pub fn panic(&self) {
        let _ = self.mailbox.tell(SearchMsg::Panic);
    }

    /// What is offered has changed. One that finds no room is not missed: those before it that wait
    /// will see what there is then.
    pub fn published(&self) {
        let _ = self.mailbox.tell(SearchMsg::Published);
    }
}

/// What the actor is told.
#[derive(Debug)]
pub enum SearchMsg {
    /// What is offered has changed.
    Published,
    /// More is known of the meaning of this server's tools.
    Embedded(ServerId),
    /// The first vector of a model showed how many numbers its vectors have.
    Measured,
    /// Used by tests to break it.
    Panic,
}

/// What never changes.
#[derive(Debug)]
struct SearchActor {
    shown: Arc<Snapshot<Shown>>,
    /// Where the index is published. Nobody else writes there.
    index: Arc<Snapshot<Index>>,
    queue: Arc<EmbeddingQueue>,
}

/// What does: of what the shelves were made.
#[derive(Debug)]
struct SearchState {
    stock: BTreeMap<ServerId, Stock>,
}

/// What a server's shelf is made of.
#[derive(Debug, Clone)]
struct Stock {
    tools: Vec<Arc<CatalogTool>>,
    about: Box<str>,
}

impl Stock {
    /// True when a shelf of the one is a shelf of the other.
    fn is(&self, other: &Self) -> bool {
        let mut pairs = self.tools.iter().zip(&other.tools);
        self.tools.len() == other.tools.len()
            && self.about == other.about
            && pairs.all(|(one, other)| Arc::ptr_eq(one, other))
    }

    fn shelf(&self, server: &ServerId, dimension: Option<usize>) -> ServerIndex {
        let draft = |tool: &Arc<CatalogTool>| {
            let security = Security::of(&tool.raw);
            let (name, raw) = (&tool.own_name, &tool.raw);
            let risk = tool.requirements.risk.level;
            Draft::read(server, name, raw, security.as_ref(), risk)
                .placed(&tool.requirements.rules().categories)
                .fitting(dimension)
        };
        ServerIndex::new(server, &self.about, self.tools.iter().map(draft).collect())
    }
}

impl Actor for SearchActor {
    type Msg = Letter<SearchMsg>;
    type State = SearchState;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<SearchState, ActorProcessingErr> {
        Ok(SearchState {
            stock: BTreeMap::new(),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        letter: Self::Msg,
        state: &mut SearchState,
    ) -> Result<(), ActorProcessingErr> {
        match letter.message {
            SearchMsg::Published => self.catch_up(state).await,
            SearchMsg::Embedded(server) => self.embedded(&server).await,
            SearchMsg::Measured => {
                // What tools say of their meaning can be held against the model's only now.
                state.stock.clear();
                self.catch_up(state).await;
            }
            SearchMsg::Panic => panic!("told to"),
        }
        Ok(())
    }
}

impl SearchActor {
    /// Makes the index one of what is offered now.
    async fn catch_up(&self, state: &mut SearchState) {
        let shown = self.shown.load();
        let stock = |offer: &Arc<mgp_engine::tools::catalog::ServerOffer>| {
            let peer = shown.peers.get(offer.server());
            let about = peer.and_then(|peer| peer.instructions.clone());
            let stock = Stock {
                tools: offer.tools().to_vec(),
                about: about.unwrap_or_default(),
            };
            (offer.server().clone(), stock)
        };
        let stocks: BTreeMap<ServerId, Stock> = shown.catalog.offers().map(stock).collect();
        let index = self.index.load();
        let indexed = index.servers().map(|shelf| shelf.server());
        for gone in indexed.filter(|server| !stocks.contains_key(*server)) {
            self.index.update(|index| index.without(gone));
            self.queue.forget(gone);
        }
        for (server, stock) in &stocks {
            let before = state.stock.get(server);
            if !before.is_some_and(|before| before.is(stock)) {
                self.put(server, stock).await;
            }
        }
        state.stock = stocks;
    }

    /// Words take their time to be read, so this is no work for the threads that carry calls.
    async fn put(&self, server: &ServerId, stock: &Stock) {
        let (own, stock, queue) = (server.clone(), stock.clone(), self.queue.clone());
        let reading = task::blocking("search.index", move || {
            let shelf = stock.shelf(&own, queue.dimension());
            let missing = queue.missing(&shelf);
            (queue.fill(&shelf), missing)
        });
        // What a server says of its tools takes nobody along: they are not found, and that is all.
        let (shelf, missing) = match reading.await {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(%server, %error, "its tools cannot be indexed");
                return;
            }
        };
        let shelf = Arc::new(shelf);
        self.index.update(|index| index.with(shelf.clone()));
        self.queue.want(server, missing);
    }

    async fn embedded(&self, server: &ServerId) {
        let Some(shelf) = self.index.load().server(server).cloned() else {
            return;
        };
        let queue = self.queue.clone();
        let filling = task::blocking("search.index", move || queue.fill(&shelf));
        let shelf = match filling.await {
            Ok(shelf) => Arc::new(shelf),
            Err(error) => {
                tracing::error!(%server, %error, "its tools are found by words alone");
                return;
            }
        };
        self.index.update(|index| index.with(shelf.clone()));
    }
}
