//! What one session of an agent holds of tools (MGP §16.7): made when it is first needed, and gone
//! with its connection.
//! Told by: calls. Asked by: calls. Asks: nobody.
//!
//! A call tells it and goes on, and says nothing where the call before was of the same tool; whoever wants
//! to read what is held asks it, behind all that was told.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use mgp_engine::callers::token_cost;
use mgp_engine::callers::tool_cache::{self, CacheInsertion, Priced, ToolCache};
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::mgp::tools::Budget;
use mgp_protocol::mgp::tools::session::Evicted;
use mgp_protocol::refusal::Refusal;
use mgp_sync::snapshot::Snapshot;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, ActorRuntime};

use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::{AskError, Letter, Mailbox, Reply};

/// Tools by `server:tool`.
pub type Names = BTreeSet<Arc<str>>;

/// A connection's place for what its session holds.
#[derive(Debug, Default)]
pub struct SessionToolCache {
    /// `None` once it has ended: whoever comes late makes no new one.
    handle: OnceLock<Option<ToolCacheHandle>>,
    /// Its client has asked for its list, and hears of changes.
    listed: Arc<AtomicBool>,
}

impl SessionToolCache {
    /// The way to it, started where it is not there yet; `None` when it has ended. `changed` hears that
    /// the session's list is another, once its client has asked for that list.
    pub fn get_or_start(
        &self,
        budget: Budget,
        parent: ActorCell,
        changed: impl FnOnce() -> EventSink<()>,
    ) -> Option<&ToolCacheHandle> {
        let start = || ToolCacheHandle::start(self.listed.clone(), budget, parent, changed());
        self.handle.get_or_init(start).as_ref()
    }

    /// The tools it has cached, for its list; from now on its client hears of changes.
    pub fn listed(&self) -> Option<Arc<Names>> {
        self.listed.store(true, Ordering::Relaxed);
        let handle = self.handle.get()?.as_ref()?;
        Some(handle.cached.load())
    }

    /// The connection has ended.
    pub fn end(&self) {
        if self.handle.set(None).is_err()
            && let Some(Some(handle)) = self.handle.get()
        {
            handle.mailbox.stop("its session has ended");
        }
    }
}

/// The way in for everyone else.
#[derive(Debug, Clone)]
pub struct ToolCacheHandle {
    mailbox: Mailbox<ToolCacheMsg>,
    cached: Arc<Snapshot<Names>>,
    /// The tool that was told of last, where nothing else was said since: said again it would change
    /// nothing.
    latest: Arc<Mutex<Option<Arc<CatalogTool>>>>,
}

/// How things stand outside, when somebody asks.
pub struct CallableTools {
    /// What is pinned for the agent and may be called by it.
    pub pinned: Vec<Priced>,
    /// Whether a tool is there and may be called.
    pub there: Box<dyn Fn(&str) -> bool + Send>,
}

impl fmt::Debug for CallableTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside")
            .field("pinned", &self.pinned)
            .finish_non_exhaustive()
    }
}

/// What came of loading tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// How many tools it holds now.
    pub count: usize,
    /// What those cost that came to it.
    pub added: u64,
}

/// A tool to let go of: as it was named, and what that means where it means anything.
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
        // Started without waiting: a call goes on meanwhile.
        let (actor, _) = ActorRuntime::spawn_linked_instant(None, actor, budget, parent).ok()?;
        let mailbox = Mailbox::new(actor);
        Some(Self {
            mailbox,
            cached,
            latest: Arc::default(),
        })
    }

    /// A tool was called, and answered. One that finds no room is not held: it can be called all the
    /// same.
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

    /// Holds these tools from now on.
    ///
    /// # Errors
    /// When the session ends, or too much waits for it.
    pub async fn load(
        &self,
        outside: CallableTools,
        tools: Vec<Arc<CatalogTool>>,
    ) -> Result<Loaded, Refusal> {
        self.ask(|reply| ToolCacheMsg::Load(outside, tools, reply))
            .await
    }

    /// What it holds.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub async fn held(&self, outside: CallableTools) -> Result<ToolCache, Refusal> {
        self.ask(|reply| ToolCacheMsg::Held(outside, reply)).await
    }

    /// Lets go of these.
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

/// When this goes nothing is the latest any more: neither what was told of before nor meanwhile, for it
/// may have been let go of. Also when nobody waits for the answer.
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

/// What a tool costs, as it is held.
#[must_use]
pub fn priced(tool: &CatalogTool) -> Priced {
    Priced {
        tool: tool.canonical.clone(),
        tokens: token_cost::of_definition(&tool.raw),
    }
}

/// What the actor is told and asked.
#[derive(Debug)]
pub enum ToolCacheMsg {
    /// A tool was called.
    Used(Arc<CatalogTool>),
    /// A request found these.
    Load(CallableTools, Vec<Arc<CatalogTool>>, Reply<Loaded>),
    /// What is there?
    Held(CallableTools, Reply<ToolCache>),
    /// These may go.
    Evict(CallableTools, Vec<Named>, Reply<Evicted>),
}

/// What never changes.
#[derive(Debug)]
struct ToolCacheActor {
    listed: Arc<AtomicBool>,
    changed: EventSink<()>,
    /// For the session's list. Nobody else writes there.
    cached: Arc<Snapshot<Names>>,
}

/// What does.
#[derive(Debug)]
struct ToolCacheState {
    cache: ToolCache,
}

impl Actor for ToolCacheActor {
    type Msg = Letter<ToolCacheMsg>;
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
        letter: Self::Msg,
        state: &mut ToolCacheState,
    ) -> Result<(), ActorProcessingErr> {
        match letter.message {
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
    /// Shows the session's list what is cached, and tells its client where that is another list.
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
    /// Lets go of what is not there any more.
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
                // It is in the answer, and no longer than that in the context.
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
