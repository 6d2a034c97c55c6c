//! Searches for a caller among the tools it may call, off the threads that carry calls.

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

/// How long a search waits for the embedding of its query before it searches by words alone. The model is
/// loaded in less.
const EMBED_TIMEOUT: Duration = Duration::from_secs(5);

/// The state that a tool's server must have (§16.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerStatusFilter {
    /// Connected: its tools can be called now.
    #[default]
    Connected,
    /// Any state in which its tools are still offered, for instance while it is restarted.
    Offered,
    /// Exactly this one.
    Only(LifecycleState),
}

impl ServerStatusFilter {
    /// The meaning of the word in a filter.
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
    /// The kinds of tools that are searched.
    pub filter: SearchFilter,
    /// The states of servers that are searched.
    pub status: ServerStatusFilter,
    /// One server, or all.
    pub view: CatalogView,
    /// The most results.
    pub limit: usize,
}

/// A tool that was found.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The tool.
    pub entry: IndexedTool,
    /// How well it matches, from 0 to 1.
    pub score: f32,
    /// How certain it is that the tool does what is looked for.
    pub is_good_match: bool,
}

/// The result.
#[derive(Clone, Debug)]
pub struct ToolSearchResult {
    /// The best first.
    pub hits: Vec<Hit>,
    /// How many tools were searched.
    pub visible: usize,
    /// How it was searched: by words if there were no embeddings.
    pub strategy: Strategy,
    /// Bytes of the query beyond the limit, which were not read.
    pub(crate) ignored_bytes: usize,
    /// The whole time it took.
    pub duration: Duration,
    /// The part of it spent on the embedding of the query.
    pub embedding_duration: Duration,
}

impl ToolSearchResult {
    /// What the caller should know besides the results.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        let fit = self.hits.iter().any(|hit| hit.is_good_match);
        let fit = match (fit, self.hits.is_empty()) {
            (true, _) => None,
            (false, true) => Some("no tool fits".to_owned()),
            (false, false) => Some("no tool fits well; these are the nearest".to_owned()),
        };
        let unread = self.ignored_bytes;
        let cut = (unread > 0).then(|| {
            format!(
                "only the first {REQUEST_MAX} bytes of the query were read, and {unread} were not: say in a few sentences what the tool should do"
            )
        });
        let said: Vec<String> = fit.into_iter().chain(cut).collect();
        (!said.is_empty()).then(|| said.join("; "))
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
    /// Texts of tools that were embedded since the start.
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
        who: &Principal,
        wanted: ToolQuery,
    ) -> Result<ToolSearchResult, Refusal> {
        let began = monotonic_now();
        let _seat = self
            .parts
            .waiting_permits
            .try_acquire()
            .map_err(|_| overloaded())?;
        if wanted.query.trim().is_empty() && wanted.filter.categories.is_empty() {
            let words =
                "`query` is empty: say in words what the tool should do, or name a category";
            return Err(Refusal::BadParams(words.into()));
        }
        let request = SearchRequest::parse(&wanted.query);
        let meanings = match wanted.strategy {
            Strategy::Semantic | Strategy::Hybrid => {
                let texts = request.embedding_texts();
                self.parts.queue.embed_query(texts, EMBED_TIMEOUT).await
            }
            Strategy::Keyword | Strategy::Category => None,
        };
        let meaning = monotonic_now().duration_since(began);
        let running = self.parts.running_permits.acquire().await;
        let _running = running.expect("the semaphore is never closed");
        let (parts, who) = (self.parts.clone(), who.clone());
        let searching = mgp_runtime::task::run_blocking("search.search", move || {
            let index = parts.index.load();
            let closed = excluded_servers(&parts.servers.load(), &index, &wanted);
            let (table, now) = (parts.table.load(), unix_ms());
            let all = table.audience(&who) == Audience::All;
            let open = |server: &ServerId, tool: &str| {
                !closed.contains(server) && table.is_allowed(&who, server, Some(tool), now)
            };
            let doubles = match wanted.view {
                CatalogView::All | CatalogView::Set(_) => {
                    duplicate_tools(&parts.published.load().catalog, open)
                }
                CatalogView::One(_) => HashSet::new(),
            };
            let visible = |entry: &IndexedTool| {
                (closed.is_empty() || !closed.contains(&entry.server))
                    && (doubles.is_empty()
                        || !doubles.contains(&(entry.server.clone(), entry.name.clone())))
                    && (all || table.is_allowed(&who, &entry.server, Some(&entry.name), now))
            };
            let found = index.search(&IndexSearch {
                request: &request,
                vectors: meanings.as_deref().unwrap_or_default(),
                strategy: wanted.strategy,
                filter: &wanted.filter,
                limit: wanted.limit,
                is_visible: &visible,
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
                embedding_duration: meaning,
            }
        });
        let broken = |error| Refusal::Internal(format!("the search did not end: {error}"));
        searching.await.map_err(broken)
    }

    /// How complete the index is.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        let index = self.parts.index.load();
        Coverage {
            tools: index.len(),
            by_meaning: index.servers().map(|shelf| shelf.embedded_count()).sum(),
            pending_texts: self.parts.queue.pending_texts(),
            embedded: self.parts.queue.embedded(),
            running: self.parts.models.running(),
        }
    }
}

/// Of tools that are one of several, all but the first that is open: they are one entry.
fn duplicate_tools(
    catalog: &Catalog,
    open: impl Fn(&ServerId, &str) -> bool,
) -> HashSet<(ServerId, std::sync::Arc<str>)> {
    let mut doubles = HashSet::new();
    for places in catalog.replica_groups() {
        let first = places
            .iter()
            .position(|tool| open(&tool.server, &tool.own_name));
        for (_, tool) in places
            .iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != first)
        {
            doubles.insert((tool.server.clone(), tool.own_name.clone()));
        }
    }
    doubles
}

type Servers =
    std::collections::BTreeMap<ServerId, std::sync::Arc<mgp_servers::server::ServerHandle>>;

/// Servers that are left out.
fn excluded_servers(
    servers: &Servers,
    index: &mgp_engine::tools::index::Index,
    wanted: &ToolQuery,
) -> HashSet<ServerId> {
    let shown = |server: &ServerId| wanted.view.includes(server);
    let state = |server: &ServerId| servers.get(server).map(|handle| handle.state());
    let open = |server: &ServerId| match wanted.status {
        ServerStatusFilter::Connected => state(server) == Some(LifecycleState::Connected),
        ServerStatusFilter::Offered => state(server).is_some(),
        ServerStatusFilter::Only(wanted) => state(server) == Some(wanted),
    };
    let indexed = index.servers().map(|shelf| shelf.server());
    let closed = indexed.filter(|server| !(shown(server) && open(server)));
    closed.cloned().collect()
}

fn overloaded() -> Refusal {
    Refusal::Overloaded {
        what: "the queue of searches".into(),
    }
}
