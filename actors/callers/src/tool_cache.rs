//! The tool cache of one agent's session (MGP §16.7): an actor, started at the first use and ended with
//! the connection.
//! Only the `calls` crate sends to it; it asks nobody.
//!
//! A call reports the tool it used without waiting, and not at all when the last report was of the same
//! tool. Reads are queued behind such reports, so they see them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mgp_engine::callers::token_cost;
use mgp_engine::callers::tool_cache::{self, CacheInsertion, Priced, ToolCache};
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::mgp::tools::Budget;
use mgp_protocol::mgp::tools::session::Evicted;
use mgp_protocol::refusal::Refusal;
use mgp_sync::snapshot::Snapshot;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, ActorRuntime};

use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::{AskError, Mailbox, Queued, Reply};

/// Cached tools of one session that the operator is shown; so many sessions are told of at once.
const TOLD: usize = 20;

/// Tools by `server:tool`.
pub type Names = BTreeSet<Arc<str>>;

/// Where a connection keeps its tool cache.
#[derive(Debug, Default)]
pub struct SessionToolCache {
    life: Mutex<CacheLife>,
    /// The client has read its list, so it is told about changes.
    listed: Arc<AtomicBool>,
}

/// Whether a session has its cache.
#[derive(Debug, Default)]
enum CacheLife {
    /// Nobody has used it.
    #[default]
    Unused,
    /// It was started; if it is lost, the next use starts an empty one.
    Started(ToolCacheHandle),
    /// The session has ended: no cache is started any more.
    Ended,
}

impl SessionToolCache {
    /// The cache, started if there is none; `None` when the session has ended. `changed` is called when the
    /// session's list changes after the client has read it.
    pub fn get_or_start(
        &self,
        budget: Budget,
        parent: ActorCell,
        changed: impl FnOnce() -> EventSink<()>,
    ) -> Option<ToolCacheHandle> {
        let mut life = self.life();
        match &*life {
            CacheLife::Started(handle) if handle.mailbox.is_open() => return Some(handle.clone()),
            CacheLife::Ended => return None,
            CacheLife::Unused | CacheLife::Started(_) => {}
        }
        let listed = self.listed.clone();
        let handle = ToolCacheHandle::start(listed, budget, parent, changed())?;
        *life = CacheLife::Started(handle.clone());
        Some(handle)
    }

    /// The cached tools, for the session's list; from now on the client is told about changes.
    pub fn listed(&self) -> Option<Arc<Names>> {
        self.listed.store(true, Ordering::Relaxed);
        match &*self.life() {
            CacheLife::Started(handle) => Some(handle.cached.load()),
            CacheLife::Unused | CacheLife::Ended => None,
        }
    }

    /// How many tools are cached, and the first [`TOLD`] of them, for the operator to read.
    pub fn told(&self) -> (usize, Vec<String>) {
        let names = match &*self.life() {
            CacheLife::Started(handle) => handle.cached.load(),
            CacheLife::Unused | CacheLife::Ended => Arc::default(),
        };
        (
            names.len(),
            names.iter().take(TOLD).map(ToString::to_string).collect(),
        )
    }

    /// The connection has ended.
    pub fn end(&self) {
        let before = std::mem::replace(&mut *self.life(), CacheLife::Ended);
        if let CacheLife::Started(handle) = before {
            handle.mailbox.stop("its session has ended");
        }
    }

    fn life(&self) -> MutexGuard<'_, CacheLife> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle of the actor.
#[derive(Debug, Clone)]
pub struct ToolCacheHandle {
    mailbox: Mailbox<ToolCacheMsg>,
    cached: Arc<Snapshot<Names>>,
    /// The tool reported last, unless something else was sent since: reporting it again would change
    /// nothing.
    latest: Arc<Mutex<Option<Arc<CatalogTool>>>>,
}

/// The tools a session can call, besides its cache.
pub struct CallableTools {
    /// Tools pinned for the agent that it may call.
    pub pinned: Vec<Priced>,
    /// Whether a tool exists and may be called.
    pub there: Box<dyn Fn(&str) -> bool + Send>,
}

impl fmt::Debug for CallableTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside")
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

/// A tool to evict: the name given, and the tool it means, if any.
pub type Named = (String, Option<Arc<str>>);

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
        // Started without waiting, because a call is under way.
        let (actor, _) = ActorRuntime::spawn_linked_instant(None, actor, budget, parent).ok()?;
        let mailbox = Mailbox::new(actor);
        Some(Self {
            mailbox,
            cached,
            latest: Arc::default(),
        })
    }

    /// A tool was called and answered. If there is no room it is not cached; it can still be called.
    pub fn used(&self, tool: &Arc<CatalogTool>) {
        {
            let mut latest = self.latest();
            if latest.as_ref().is_some_and(|it| Arc::ptr_eq(it, tool)) {
                return;
            }
            *latest = Some(tool.clone());
        }
        let _ = self.mailbox.tell(ToolCacheMsg::Used(tool.clone()));
    }

    fn latest(&self) -> MutexGuard<'_, Option<Arc<CatalogTool>>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask<T>(&self, message: impl FnOnce(Reply<T>) -> ToolCacheMsg) -> Result<T, Refusal> {
        let _forgets = ForgetsLatest(self);
        self.mailbox.ask(message).await.map_err(refused)
    }

    /// Caches these tools.
    ///
    /// # Errors
    /// When the session is ending, or too many messages wait.
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
    pub async fn held(&self, outside: CallableTools) -> Result<ToolCache, Refusal> {
        self.ask(|reply| ToolCacheMsg::Held(outside, reply)).await
    }

    /// Evicts these tools.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub async fn evict(
        &self,
        outside: CallableTools,
        tools: Vec<Named>,
    ) -> Result<Evicted, Refusal> {
        self.ask(|reply| ToolCacheMsg::Evict(outside, tools, reply))
            .await
    }
}

/// On drop, forgets the tool reported last, because it may have been evicted; also when nobody waits for
/// the answer.
struct ForgetsLatest<'a>(&'a ToolCacheHandle);

impl Drop for ForgetsLatest<'_> {
    fn drop(&mut self) {
        *self.0.latest() = None;
    }
}

fn refused(why: AskError) -> Refusal {
    match why {
        AskError::Overloaded => Refusal::Overloaded {
            what: "what this session holds of tools".into(),
        },
        AskError::Stopped | AskError::TimedOut => {
            Refusal::Broken(format!("what this session holds of tools: {why}"))
        }
    }
}

/// A tool with what it costs.
#[must_use]
pub fn priced(tool: &CatalogTool) -> Priced {
    Priced {
        tool: tool.canonical.clone(),
        tokens: token_cost::of_definition(tool.shown_raw()),
    }
}

/// Messages to the actor.
#[derive(Debug)]
pub enum ToolCacheMsg {
    /// A tool was called.
    Used(Arc<CatalogTool>),
    /// A request found these tools.
    Load(CallableTools, Vec<Arc<CatalogTool>>, Reply<Loaded>),
    /// Read the contents.
    Held(CallableTools, Reply<ToolCache>),
    /// Evict these tools.
    Evict(CallableTools, Vec<Named>, Reply<Evicted>),
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
        match queued.open() {
            ToolCacheMsg::Used(tool) => match state.cache.keep(&priced(&tool)) {
                CacheInsertion::Pinned | CacheInsertion::Touched => {}
                CacheInsertion::Added { .. } | CacheInsertion::TooLarge => self.publish(state),
            },
            ToolCacheMsg::Load(outside, tools, reply) => {
                state.look_at(outside);
                let loaded = state.load(&tools);
                self.publish(state);
                reply.send(loaded);
            }
            ToolCacheMsg::Held(outside, reply) => {
                state.look_at(outside);
                self.publish(state);
                reply.send(state.cache.clone());
            }
            ToolCacheMsg::Evict(outside, tools, reply) => {
                state.look_at(outside);
                let evicted = state.evict(tools);
                self.publish(state);
                reply.send(evicted);
            }
        }
        Ok(())
    }
}

impl ToolCacheActor {
    /// Publishes the cached names, and tells the client if its list changed.
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
    fn look_at(&mut self, outside: CallableTools) {
        let CallableTools { pinned, there } = outside;
        self.cache.retain(there);
        self.cache.pin(pinned);
    }

    fn load(&mut self, tools: &[Arc<CatalogTool>]) -> Loaded {
        let mut added = 0;
        for tool in tools {
            let one = priced(tool);
            match self.cache.keep(&one) {
                CacheInsertion::Added { .. } => added += one.tokens,
                // It is in this answer, but is not kept.
                CacheInsertion::TooLarge => added += one.tokens,
                CacheInsertion::Pinned | CacheInsertion::Touched => {}
            }
        }
        Loaded {
            count: self.cache.count(),
            added,
        }
    }

    fn evict(&mut self, tools: Vec<Named>) -> Evicted {
        let mut out = Evicted::default();
        for (name, tool) in tools {
            let gone = tool.map_or(tool_cache::Evicted::Absent, |tool| self.cache.evict(&tool));
            match gone {
                tool_cache::Evicted::Gone => out.evicted.push(name),
                tool_cache::Evicted::Pinned => out.pinned.push(name),
                tool_cache::Evicted::Absent => out.not_cached.push(name),
            }
        }
        out.total_tokens = self.cache.total_tokens();
        out
    }
}
