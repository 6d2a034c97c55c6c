//! Searches the tools that a caller may call, off the threads that carry calls.

use std::collections::HashSet;
use std::time::Duration;

use mgp_engine::policy::access::{Audience, Principal};
use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_engine::tools::catalog::{Catalog, CatalogView};
use mgp_engine::tools::index::{
    IndexSearch, IndexedTool, REQUEST_MAX, SearchFilter, SearchRequest, Strategy,
};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::discovery;
use mgp_protocol::refusal::Refusal;

use super::{ModelLocation, SearchHandle};
use mgp_runtime::time::{monotonic_now, unix_ms};

/// How long a search waits for the embedding of its query before it searches by words alone. The model loads faster.
const EMBED_TIMEOUT: Duration = Duration::from_secs(5);

/// The state that a tool's server must have (§16.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerStatusFilter {
    /// Connected: its tools can be called now.
    #[default]
    Connected,
    /// Any state in which its tools are still offered, for instance during a restart.
    Offered,
    /// Exactly this one.
    Only(LifecycleState),
}

impl ServerStatusFilter {
    /// Converts the status of a filter.
    #[must_use]
    pub fn from_status(word: discovery::Status) -> Self {
        match word {
            discovery::Status::All => Self::Offered,
            discovery::Status::Registered => Self::Only(LifecycleState::Registered),
            discovery::Status::Connecting => Self::Only(LifecycleState::Connecting),
            discovery::Status::Connected => Self::Connected,
            discovery::Status::Draining => Self::Only(LifecycleState::Draining),
            discovery::Status::Disconnected => Self::Only(LifecycleState::Disconnected),
            discovery::Status::Error => Self::Only(LifecycleState::Error),
            discovery::Status::Restarting => Self::Only(LifecycleState::Restarting),
        }
    }
}

/// A search.
#[derive(Clone, Debug)]
pub struct ToolQuery {
    /// The query, in words.
    pub query: String,
    /// By words or by meaning.
    pub strategy: Strategy,
    /// Filters the tools by their kinds.
    pub filter: SearchFilter,
    /// Filters the tools by the state of their servers.
    pub status: ServerStatusFilter,
    /// One server, or all.
    pub view: CatalogView,
    /// The maximum number of results.
    pub limit: usize,
}

/// A result.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The tool.
    pub entry: IndexedTool,
    /// How well it matches, from 0 to 1.
    pub score: f32,
    /// Whether it is likely that the tool does what the query describes.
    pub is_good_match: bool,
}

/// The result.
#[derive(Clone, Debug)]
pub struct ToolSearchResult {
    /// The best first.
    pub hits: Vec<Hit>,
    /// The number of tools that were searched.
    pub visible: usize,
    /// The strategy that was used: by words if there were no embeddings.
    pub strategy: Strategy,
    /// Bytes of the query beyond the limit, which were ignored.
    pub(crate) ignored_bytes: usize,
    /// The total duration.
    pub duration: Duration,
}

impl ToolSearchResult {
    /// A note for the caller about the quality of the results.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        let has_match = self.hits.iter().any(|hit| hit.is_good_match);
        let quality = match (has_match, self.hits.is_empty()) {
            (true, _) => None,
            (false, true) => Some("no tool fits".to_owned()),
            (false, false) => Some("no tool fits well; these are the nearest".to_owned()),
        };
        let ignored = self.ignored_bytes;
        let truncation = (ignored > 0).then(|| {
            format!(
                "only the first {REQUEST_MAX} bytes of the query were read, and {ignored} were not: say in a few sentences what the tool should do"
            )
        });
        let notes: Vec<String> = quality.into_iter().chain(truncation).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

/// How complete the index is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Tools that can be found by words.
    pub tools: usize,
    /// Tools that can be found by meaning.
    pub by_meaning: usize,
    /// Texts that wait to be embedded.
    pub pending_texts: usize,
    /// Texts of tools embedded since the start.
    pub embedded: u64,
    /// The state of the built-in model's process.
    pub running: ModelLocation,
}

impl SearchHandle {
    /// Searches the tools that this caller may call.
    ///
    /// # Errors
    /// An empty query; too many searches at once.
    pub async fn search(
        &self,
        caller: &Principal,
        query: ToolQuery,
    ) -> Result<ToolSearchResult, Refusal> {
        let began = monotonic_now();
        let _waiting = self
            .parts
            .waiting_permits
            .try_acquire()
            .map_err(|_| overloaded())?;
        if query.query.trim().is_empty() && query.filter.categories.is_empty() {
            let why = "`query` is empty: say in words what the tool should do, or name a category";
            return Err(Refusal::BadParams(why.into()));
        }
        let request = SearchRequest::parse(&query.query);
        let vectors = match query.strategy {
            Strategy::Semantic | Strategy::Hybrid => {
                let texts = request.embedding_texts();
                self.parts.queue.embed_query(texts, EMBED_TIMEOUT).await
            }
            Strategy::Keyword | Strategy::Category => None,
        };
        let running = self.parts.running_permits.acquire().await;
        let _running = running.expect("the semaphore is never closed");
        let (parts, caller) = (self.parts.clone(), caller.clone());
        let searching = mgp_runtime::task::run_blocking("search.search", move || {
            let index = parts.index.load();
            let excluded = excluded_servers(&parts.servers.load(), &index, &query);
            let (table, now) = (parts.table.load(), unix_ms());
            let sees_all = table.audience(&caller) == Audience::All;
            let is_callable = |server: &ServerId, tool: &str| {
                !excluded.contains(server) && table.is_allowed(&caller, server, Some(tool), now)
            };
            let duplicates = match query.view {
                CatalogView::All | CatalogView::Set(_) => {
                    duplicate_tools(&parts.published.load().catalog, is_callable)
                }
                CatalogView::One(_) => HashSet::new(),
            };
            let is_visible = |entry: &IndexedTool| {
                (excluded.is_empty() || !excluded.contains(&entry.server))
                    && (duplicates.is_empty()
                        || !duplicates.contains(&(entry.server.clone(), entry.name.clone())))
                    && (sees_all
                        || table.is_allowed(&caller, &entry.server, Some(&entry.name), now))
            };
            let found = index.search(&IndexSearch {
                request: &request,
                vectors: vectors.as_deref().unwrap_or_default(),
                strategy: query.strategy,
                filter: &query.filter,
                limit: query.limit,
                is_visible: &is_visible,
            });
            let hit = |hit: &mgp_engine::tools::index::SearchHit<'_>| Hit {
                entry: hit.entry.clone(),
                score: hit.score,
                is_good_match: hit.is_match,
            };
            ToolSearchResult {
                hits: found.hits.iter().map(hit).collect(),
                visible: found.visible,
                strategy: found.strategy,
                ignored_bytes: request.unread_bytes(),
                duration: monotonic_now().duration_since(began),
            }
        });
        let failed = |error| Refusal::Internal(format!("the search failed: {error}"));
        searching.await.map_err(failed)
    }

    /// How complete the index is.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        let index = self.parts.index.load();
        Coverage {
            tools: index.len(),
            by_meaning: index.servers().map(|server| server.embedded_count()).sum(),
            pending_texts: self.parts.queue.pending_texts(),
            embedded: self.parts.queue.embedded(),
            running: self.parts.models.running(),
        }
    }
}

/// Of each group of replicas, all tools but the first callable one: a group is one entry.
fn duplicate_tools(
    catalog: &Catalog,
    is_callable: impl Fn(&ServerId, &str) -> bool,
) -> HashSet<(ServerId, std::sync::Arc<str>)> {
    let mut duplicates = HashSet::new();
    for group in catalog.replica_groups() {
        let first = group
            .iter()
            .position(|tool| is_callable(&tool.server, &tool.own_name));
        for (_, tool) in group
            .iter()
            .enumerate()
            .filter(|(index, _)| Some(*index) != first)
        {
            duplicates.insert((tool.server.clone(), tool.own_name.clone()));
        }
    }
    duplicates
}

type Servers = std::collections::BTreeMap<ServerId, std::sync::Arc<mgp_servers::ServerHandle>>;

/// Servers outside of the view or in another state.
fn excluded_servers(
    servers: &Servers,
    index: &mgp_engine::tools::index::Index,
    query: &ToolQuery,
) -> HashSet<ServerId> {
    let is_in_view = |server: &ServerId| query.view.includes(server);
    let state = |server: &ServerId| servers.get(server).map(|handle| handle.state());
    let has_status = |server: &ServerId| match query.status {
        ServerStatusFilter::Connected => state(server) == Some(LifecycleState::Connected),
        ServerStatusFilter::Offered => state(server).is_some(),
        ServerStatusFilter::Only(wanted) => state(server) == Some(wanted),
    };
    let indexed = index.servers().map(|server| server.server());
    let excluded = indexed.filter(|server| !(is_in_view(server) && has_status(server)));
    excluded.cloned().collect()
}

fn overloaded() -> Refusal {
    Refusal::Overloaded {
        what: "the queue of searches".into(),
    }
}
