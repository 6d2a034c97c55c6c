//! The tool cache of one agent's session (MGP §16.7): an actor, started at the first use and ended with the
//! connection. Only the `calls` crate sends to it; it sends to no other actor.
//!
//! A call reports the tool it used without waiting, and not at all when the last report was of the same
//! tool. Reads are queued behind such reports, so they see them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::callers::token_cost;
use mgp_engine::callers::tool_cache::{self, CacheInsertion, PricedTool, ToolCache};
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::mgp::tools::Budget;
use mgp_protocol::mgp::tools::session::Evicted;
use mgp_protocol::refusal::Refusal;
use mgp_sync::Snapshot;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, ActorRuntime};

use mgp_runtime::{AskError, EventSink, Mailbox, Queued, Reply};

/// The most cached tools reported for one session, and the most sessions in one report.
const REPORTED_MAX: usize = 20;

/// Tools by `server:tool`.
pub type Names = BTreeSet<Arc<str>>;

/// A connection's slot for its tool cache.
#[derive(Debug, Default)]
pub struct SessionToolCache {
    state: Mutex<CacheState>,
    /// True once the client has read its list, so it is notified of changes.
    listed: Arc<AtomicBool>,
}

/// The lifecycle of a session's cache.
#[derive(Debug, Default)]
enum CacheState {
    /// No tool was used yet.
    #[default]
    Unused,
    /// The cache was started; if it is lost, the next use starts an empty one.
    Started(ToolCacheHandle),
    /// The session has ended: no cache is started any more.
    Ended,
}

impl SessionToolCache {
    /// The cache, started if there is none; `None` when the session has ended. `changed` is called when the
    /// session's list changes after the client has read it.
    pub(crate) fn get_or_start(
        &self,
        budget: Budget,
        parent: ActorCell,
        changed: impl FnOnce() -> EventSink<()>,
    ) -> Option<ToolCacheHandle> {
        let mut state = self.lock_state();
        match &*state {
            CacheState::Started(handle) if handle.mailbox.is_open() => return Some(handle.clone()),
            CacheState::Ended => return None,
            CacheState::Unused | CacheState::Started(_) => {}
        }
        let listed = self.listed.clone();
        let handle = ToolCacheHandle::start(listed, budget, parent, changed())?;
        *state = CacheState::Started(handle.clone());
        Some(handle)
    }

    /// The cached tools, for the session's list; from now on the client is notified of changes.
    pub fn listed(&self) -> Option<Arc<Names>> {
        self.listed.store(true, Ordering::Relaxed);
        match &*self.lock_state() {
            CacheState::Started(handle) => Some(handle.cached.load()),
            CacheState::Unused | CacheState::Ended => None,
        }
    }

    /// The number of cached tools, and the first [`REPORTED_MAX`] of them, for the operator.
    pub(crate) fn report(&self) -> (usize, Vec<String>) {
        let names = match &*self.lock_state() {
            CacheState::Started(handle) => handle.cached.load(),
            CacheState::Unused | CacheState::Ended => Arc::default(),
        };
        (
            names.len(),
            names
                .iter()
                .take(REPORTED_MAX)
                .map(ToString::to_string)
                .collect(),
        )
    }

    /// True before the first tool.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.report().0 == 0
    }

    /// Ends the cache with its connection.
    pub(crate) fn end(&self) {
        let before = std::mem::replace(&mut *self.lock_state(), CacheState::Ended);
        if let CacheState::Started(handle) = before {
            handle.mailbox.stop("its session has ended");
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle of the actor.
#[derive(Debug, Clone)]
pub struct ToolCacheHandle {
    mailbox: Mailbox<ToolCacheMsg>,
    cached: Arc<Snapshot<Names>>,
    /// The tool reported last, unless another message was sent since: reporting it again would change
    /// nothing.
    latest: Arc<Mutex<Option<Arc<CatalogTool>>>>,
}

/// The tools that a session can call besides its cache.
pub struct CallableTools {
    /// Tools pinned for the agent that it may call.
    pub pinned: Vec<PricedTool>,
    /// Whether a tool exists and may be called.
    pub exists: Box<dyn Fn(&str) -> bool + Send>,
}

impl fmt::Debug for CallableTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallableTools")
            .field("pinned", &self.pinned)
            .finish_non_exhaustive()
    }
}

/// The result of loading tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// Tools in the cache now.
    pub count: usize,
    /// Tokens of the tools that were added.
    pub added: u64,
}

/// A tool to evict: the given name, and the tool it resolves to, if any.
pub(crate) type EvictionTarget = (String, Option<Arc<str>>);

impl ToolCacheHandle {
    fn start(
        listed: Arc<AtomicBool>,
        budget: Budget,
        parent: ActorCell,
        changed: EventSink<()>,
    ) -> Option<Self> {
        let cached = Arc::new(Snapshot::new(Names::new()));
        let actor = ToolCacheActor {
            listed,
            changed,
            cached: cached.clone(),
        };
        // Started without waiting, because a call is in flight.
        let (actor, _) = ActorRuntime::spawn_linked_instant(None, actor, budget, parent).ok()?;
        let mailbox = Mailbox::new(actor);
        Some(Self {
            mailbox,
            cached,
            latest: Arc::default(),
        })
    }

    /// Records a tool that was called and answered. If the queue is full it is not cached; it can still be
    /// called.
    pub fn record_use(&self, tool: &Arc<CatalogTool>) {
        {
            let mut latest = self.lock_latest();
            if latest.as_ref().is_some_and(|it| Arc::ptr_eq(it, tool)) {
                return;
            }
            *latest = Some(tool.clone());
        }
        let _ = self.mailbox.send(ToolCacheMsg::Used(tool.clone()));
    }

    fn lock_latest(&self) -> MutexGuard<'_, Option<Arc<CatalogTool>>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask<T>(&self, message: impl FnOnce(Reply<T>) -> ToolCacheMsg) -> Result<T, Refusal> {
        let _forgets = ClearLatestOnDrop(self);
        self.mailbox.ask(message).await.map_err(cache_refusal)
    }

    /// Caches these tools.
    ///
    /// # Errors
    /// The session is ending, or too many messages are queued.
    pub async fn load(
        &self,
        outside: CallableTools,
        tools: Vec<Arc<CatalogTool>>,
    ) -> Result<Loaded, Refusal> {
        self.ask(|reply| ToolCacheMsg::Load(outside, tools, reply))
            .await
    }

    /// The contents of the cache.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub async fn read(&self, outside: CallableTools) -> Result<ToolCache, Refusal> {
        self.ask(|reply| ToolCacheMsg::Read(outside, reply)).await
    }

    /// Evicts these tools.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub async fn evict(
        &self,
        outside: CallableTools,
        tools: Vec<EvictionTarget>,
    ) -> Result<Evicted, Refusal> {
        self.ask(|reply| ToolCacheMsg::Evict(outside, tools, reply))
            .await
    }
}

/// On drop, forgets the tool reported last, because it may have been evicted, even if the caller no longer
/// awaits the answer.
struct ClearLatestOnDrop<'a>(&'a ToolCacheHandle);

impl Drop for ClearLatestOnDrop<'_> {
    fn drop(&mut self) {
        *self.0.lock_latest() = None;
    }
}

fn cache_refusal(error: AskError) -> Refusal {
    match error {
        AskError::Overloaded => Refusal::Overloaded {
            what: "what this session holds of tools".into(),
        },
        AskError::Stopped | AskError::TimedOut => {
            Refusal::Internal(format!("tool cache of the session: {error}"))
        }
    }
}

/// A tool with its cost in tokens.
#[must_use]
pub fn to_priced(tool: &CatalogTool) -> PricedTool {
    PricedTool {
        tool: tool.canonical_name.clone(),
        tokens: token_cost::estimate_definition(tool.visible_raw()),
    }
}

/// Messages to the actor.
#[derive(Debug)]
pub enum ToolCacheMsg {
    /// A tool was called.
    Used(Arc<CatalogTool>),
    /// A search returned these tools.
    Load(CallableTools, Vec<Arc<CatalogTool>>, Reply<Loaded>),
    /// Read the contents.
    Read(CallableTools, Reply<ToolCache>),
    /// Evict these tools.
    Evict(CallableTools, Vec<EvictionTarget>, Reply<Evicted>),
}

/// Fixed at construction.
#[derive(Debug)]
struct ToolCacheActor {
    listed: Arc<AtomicBool>,
    changed: EventSink<()>,
    /// The cached names, for the session's list. Only this actor writes them.
    cached: Arc<Snapshot<Names>>,
}

/// The state of the actor.
#[derive(Debug)]
struct ToolCacheState {
    cache: ToolCache,
}

impl Actor for ToolCacheActor {
    type Msg = Queued<ToolCacheMsg>;
    type State = ToolCacheState;
    type Arguments = Budget;

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        budget: Budget,
    ) -> Result<ToolCacheState, ActorProcessingErr> {
        Ok(ToolCacheState {
            cache: ToolCache::new(budget, Vec::new()),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut ToolCacheState,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            ToolCacheMsg::Used(tool) => match state.cache.insert(&to_priced(&tool)) {
                CacheInsertion::Pinned | CacheInsertion::Touched => {}
                CacheInsertion::Added { .. } | CacheInsertion::TooLarge => self.publish(state),
            },
            ToolCacheMsg::Load(outside, tools, reply) => {
                state.drop_missing(outside);
                let loaded = state.load(&tools);
                self.publish(state);
                reply.send(loaded);
            }
            ToolCacheMsg::Read(outside, reply) => {
                state.drop_missing(outside);
                self.publish(state);
                reply.send(state.cache.clone());
            }
            ToolCacheMsg::Evict(outside, tools, reply) => {
                state.drop_missing(outside);
                let evicted = state.evict(tools);
                self.publish(state);
                reply.send(evicted);
            }
        }
        Ok(())
    }
}

impl ToolCacheActor {
    /// Publishes the cached names, and notifies the client if its list changed.
    fn publish(&self, state: &ToolCacheState) {
        let names: Names = state.cache.cached().map(|one| one.tool.clone()).collect();
        if names == *self.cached.load() {
            return;
        }
        self.cached.store(Arc::new(names));
        if self.listed.load(Ordering::Relaxed) {
            self.changed.send(());
        }
    }
}

impl ToolCacheState {
    /// Drops tools that no longer exist.
    fn drop_missing(&mut self, outside: CallableTools) {
        let CallableTools {
            pinned,
            exists: there,
        } = outside;
        self.cache.retain(there);
        self.cache.set_pinned(pinned);
    }

    fn load(&mut self, tools: &[Arc<CatalogTool>]) -> Loaded {
        let mut added = 0;
        for tool in tools {
            let one = to_priced(tool);
            match self.cache.insert(&one) {
                CacheInsertion::Added { .. } => added += one.tokens,
                // It is in this answer, but is not cached.
                CacheInsertion::TooLarge => added += one.tokens,
                CacheInsertion::Pinned | CacheInsertion::Touched => {}
            }
        }
        Loaded {
            count: self.cache.count(),
            added,
        }
    }

    fn evict(&mut self, tools: Vec<EvictionTarget>) -> Evicted {
        let mut out = Evicted::default();
        for (name, tool) in tools {
            let eviction =
                tool.map_or(tool_cache::Eviction::Absent, |tool| self.cache.evict(&tool));
            match eviction {
                tool_cache::Eviction::Removed => out.evicted.push(name),
                tool_cache::Eviction::Pinned => out.pinned.push(name),
                tool_cache::Eviction::Absent => out.not_cached.push(name),
            }
        }
        out.total_tokens = self.cache.total_tokens();
        out
    }
}
