//! The actor of one legacy HTTP session: from `initialize` to DELETE, its idle timeout or the shutdown of
//! the kernel.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use mgp_engine::policy::access::{ClaimedGroups, EntryEffect};
use mgp_engine::servers::log_levels::LogLevel;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::ids::{AgentId, SessionId};
use mgp_protocol::{jsonrpc, mcp};
use mgp_transports::{FairSlots, SlotAdmission, Usage};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde::{Deserialize, Serialize};

use crate::endpoint_context::{AgentPresence, EndpointContext};
use mgp_callers::agent::{Agent, AgentChannel};
use mgp_callers::request::Caller;
use mgp_callers::{Credential, Delivery, Stream, Streams};
use mgp_runtime::ids::new_session_id;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::time::monotonic_now;
use mgp_runtime::{ActorCountGuard, CountedKind, Mailbox, Queued, task};

/// The limit of the operator's sessions, which are counted separately: agents cannot use up those of the
/// console. Each open page holds one.
const OPERATOR_SESSIONS: usize = 32;

/// Longest parameters of an `initialize` that are kept, in bytes. Those of usual clients have a few hundred.
const HELLO_BYTES_MAX: usize = 4 << 10;
/// About the size of a record without its variable parts.
const RECORD_BYTES: usize = 400;
/// Methods that leave nothing behind for which a session would have to be restored.
const PLAIN_METHODS: [&str; 15] = [
    "completion/complete",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/initialized",
    "notifications/progress",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "tasks/get",
    "tasks/list",
    "tools/call",
    "tools/list",
];

/// The session as used by its requests.
#[derive(Debug)]
pub struct Session {
    /// The session id, sent with each request.
    pub id: SessionId,
    /// The caller.
    pub(crate) caller: Arc<Caller>,
    /// Its connection.
    pub(crate) agent: Arc<Agent>,
    /// Its event streams.
    pub(crate) streams: Arc<Streams>,
    /// The parameters of its `initialize`; empty if they are too long to keep.
    hello: Box<str>,
    /// True as long as nothing but its record would have to be restored.
    is_plain: AtomicBool,
    used: AtomicU64,
    /// Set by each use since the last eviction check.
    was_used: AtomicBool,
    open_streams: AtomicUsize,
}

impl Session {
    /// Notes what its client asks for: a kernel that hands over keeps no subscriptions, and no state of other
    /// extensions than MCP's lists and calls.
    pub(crate) fn note_method(&self, method: &str) {
        if !PLAIN_METHODS.contains(&method) {
            self.is_plain.store(false, Ordering::Relaxed);
        }
    }

    /// What the next program in this process restores; `None` if that would not be all of it.
    fn to_record(&self) -> Option<SessionRecord> {
        let caller = &self.caller;
        let is_whole = self.is_plain.load(Ordering::Relaxed)
            && !self.hello.is_empty()
            && !caller.operator
            && caller.mcpl.is_none()
            && !self.agent.has_requests()
            && !self.streams.was_interrupted();
        is_whole.then(|| SessionRecord {
            id: self.id.clone(),
            agent: caller.agent.clone(),
            groups: caller.groups.iter().cloned().collect(),
            view: caller.view.clone(),
            address: caller.address.as_deref().map(Into::into),
            hello: self.hello.clone(),
            is_ready: self.agent.is_ready(),
            has_tools: !self.agent.tool_cache.is_empty(),
            level: self.agent.has_set_level().then(|| self.agent.level()),
        })
    }

    /// Marks the session as used.
    pub(crate) fn touch(&self) {
        self.was_used.store(true, Ordering::Relaxed);
        self.used
            .store(monotonic_now().since_start().as_secs(), Ordering::Relaxed);
    }

    fn idle(&self) -> Duration {
        if self.open_streams.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        let used = Duration::from_secs(self.used.load(Ordering::Relaxed));
        monotonic_now().since_start().saturating_sub(used)
    }

    /// Whether it can be evicted when another session needs its slot.
    fn usage(&self) -> Usage {
        let is_busy = self.open_streams.load(Ordering::Relaxed) > 0 || self.agent.has_requests();
        match self.was_used.swap(false, Ordering::Relaxed) {
            _ if is_busy => Usage::Busy,
            true => Usage::Recent,
            false => Usage::Idle,
        }
    }

    /// Wraps a stream of this session; the session is not idle while it is open.
    pub(crate) fn open_stream(self: &Arc<Self>, stream: Stream) -> SessionStream {
        self.open_streams.fetch_add(1, Ordering::Relaxed);
        SessionStream {
            stream,
            session: self.clone(),
        }
    }
}

/// An open stream of a session.
#[derive(Debug)]
pub(crate) struct SessionStream {
    stream: Stream,
    session: Arc<Session>,
}

impl futures_util::Stream for SessionStream {
    type Item = bytes::Bytes;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<bytes::Bytes>> {
        std::pin::Pin::new(&mut self.stream).poll_next(cx)
    }
}

impl Drop for SessionStream {
    fn drop(&mut self) {
        self.session.touch();
        self.session.open_streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A session, as one kernel hands it over to the next.
#[derive(Debug, Serialize, Deserialize)]
pub struct SessionRecord {
    id: SessionId,
    agent: AgentId,
    groups: Vec<(AgentId, EntryEffect)>,
    view: CatalogView,
    address: Option<Box<str>>,
    hello: Box<str>,
    is_ready: bool,
    /// Its list had tools that were found or called; they are found again.
    #[serde(default)]
    has_tools: bool,
    level: Option<LogLevel>,
}

impl SessionRecord {
    /// About its size, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        RECORD_BYTES + self.hello.len() + self.groups.len() * RECORD_BYTES / 4
    }
}

/// All sessions, by id.
#[derive(Debug)]
pub struct Sessions {
    table: RwLock<SessionTable>,
    limits: SessionLimits,
    endpoint: EndpointContext,
}

/// The open sessions and their agents.
#[derive(Debug)]
struct SessionTable {
    sessions: HashMap<SessionId, Entry>,
    agents: FairSlots<AgentId, SessionId>,
    operator: FairSlots<AgentId, SessionId>,
}

type Entry = (Arc<Session>, Mailbox<SessionMsg>);

impl SessionTable {
    fn new(max: usize) -> Self {
        Self {
            sessions: HashMap::new(),
            agents: FairSlots::new(max),
            operator: FairSlots::new(OPERATOR_SESSIONS),
        }
    }

    /// Adds a session, and returns the one that was evicted for it. `None` when there is no slot.
    fn insert(&mut self, entry: Entry) -> Option<Option<Entry>> {
        let Self {
            sessions,
            agents,
            operator,
        } = self;
        let caller = &entry.0.caller;
        let shares = if caller.operator { operator } else { agents };
        let usage = |id: &SessionId| sessions.get(id).map_or(Usage::Idle, |(s, _)| s.usage());
        let evicted = match shares.admit(&caller.agent, usage) {
            SlotAdmission::Free => None,
            SlotAdmission::Replaces(id) => sessions.remove(&id),
            SlotAdmission::Full => return None,
        };
        let id = entry.0.id.clone();
        shares.insert(&caller.agent, id.clone());
        sessions.insert(id, entry);
        Some(evicted)
    }

    fn remove(&mut self, id: &SessionId) -> Option<Entry> {
        self.agents.remove(id);
        self.operator.remove(id);
        self.sessions.remove(id)
    }
}

/// Limits on sessions.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    /// The most open sessions, without the operator's. Above it, an idle one of the agent with the most is
    /// evicted.
    pub max: usize,
    /// The idle timeout.
    pub idle: Duration,
    /// Events stored for replay.
    pub replay: usize,
}

/// Messages to the actor.
#[derive(Debug)]
pub enum SessionMsg {
    /// The session is to be checked for its idle timeout.
    CheckIdle,
}

/// Why a session could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SessionError {
    /// The table is full, and this agent has no idle session to evict.
    #[error(
        "{0} sessions are open already (`[tuning.http] max_sessions`), and none of this agent's is idle"
    )]
    Full(usize),
    /// The kernel is shutting down.
    #[error("the kernel is stopping")]
    ShuttingDown,
}

impl Sessions {
    /// An empty table.
    #[must_use]
    pub fn new(limits: SessionLimits, endpoint: EndpointContext) -> Arc<Self> {
        Arc::new(Self {
            table: RwLock::new(SessionTable::new(limits.max)),
            limits,
            endpoint,
        })
    }

    /// Creates an agent before its `initialize`, with the streams for its session.
    #[must_use]
    pub(crate) fn new_agent(&self, pass: &Credential) -> (Arc<Agent>, Arc<Streams>) {
        let budget = self.endpoint.directory.responses.budget(&pass.agent);
        let streams = Streams::new(self.limits.replay, Some(budget));
        let outward = AgentChannel::Session(streams.clone());
        let agent = Agent::new(pass.agent.clone(), pass.is_operator(), outward);
        agent.set_groups(pass.groups.clone());
        (agent, streams)
    }

    /// Opens a session for a caller after its `initialize`. When all slots are taken, an idle session of the agent
    /// with the most is closed; its client opens a new one on its next request.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) async fn open(
        self: &Arc<Self>,
        caller: Arc<Caller>,
        (agent, streams): (Arc<Agent>, Arc<Streams>),
        hello: Option<&str>,
    ) -> Result<Arc<Session>, SessionError> {
        let id = new_session_id();
        self.insert(id, caller, (agent, streams), hello.unwrap_or_default())
            .await
    }

    async fn insert(
        self: &Arc<Self>,
        id: SessionId,
        caller: Arc<Caller>,
        (agent, streams): (Arc<Agent>, Arc<Streams>),
        hello: &str,
    ) -> Result<Arc<Session>, SessionError> {
        let hello = if hello.len() <= HELLO_BYTES_MAX {
            hello
        } else {
            ""
        };
        let session = Arc::new(Session {
            id,
            caller,
            agent,
            streams,
            hello: hello.into(),
            is_plain: AtomicBool::new(true),
            used: AtomicU64::new(monotonic_now().since_start().as_secs()),
            was_used: AtomicBool::new(false),
            open_streams: AtomicUsize::new(0),
        });
        let actor = SessionActor {
            session: session.clone(),
            sessions: self.clone(),
        };
        let agents = self.endpoint.agents.get_cell();
        let (actor, _) = Actor::spawn_linked(None, actor, (), agents)
            .await
            .map_err(|_| SessionError::ShuttingDown)?;
        let mailbox = Mailbox::new(actor);
        let inserted = self.write().insert((session.clone(), mailbox.clone()));
        match inserted {
            Some(evicted) => evicted.into_iter().for_each(end_session),
            None => {
                mailbox.stop("no place");
                return Err(SessionError::Full(self.limits.max));
            }
        }
        Ok(session)
    }

    /// The sessions that the next program in this process can restore.
    #[must_use]
    pub fn to_records(&self) -> Vec<SessionRecord> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let sessions = table.sessions.values();
        sessions
            .filter_map(|(session, _)| session.to_record())
            .collect()
    }

    /// Opens the sessions of the kernel before this one, as far as their agents still exist.
    pub async fn restore(self: &Arc<Self>, records: Vec<SessionRecord>) {
        for record in records {
            let groups = ClaimedGroups::new(record.groups);
            let credential = Credential::permanent(record.agent).with_groups(groups);
            let (agent, streams) = self.new_agent(&credential);
            let hello = mcp::parse_params::<mcp::Initialize<'_>>(Some(&record.hello));
            let address = record.address.as_deref().map(Into::into);
            let caller = hello.and_then(|hello| agent.initialize(record.view, &hello, address));
            let Ok(caller) = caller else { continue };
            if record.is_ready {
                agent.set_ready();
            }
            record
                .level
                .into_iter()
                .for_each(|level| agent.set_level(level));
            if record.has_tools {
                // The list has fewer tools now, until they are found again.
                let changed = jsonrpc::notification("notifications/tools/list_changed", None);
                agent.send(changed.into(), Delivery::Reliable);
            }
            // Without a place its client gets 404, and opens a new one.
            let _ = self
                .insert(record.id, caller, (agent, streams), &record.hello)
                .await;
        }
    }

    /// The session with this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Arc<Session>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let entry = table.sessions.get(id);
        entry.map(|(session, _)| session.clone())
    }

    /// Closes a session: its id is unknown from now on.
    pub(crate) fn close(&self, id: &SessionId) {
        let entry = self.write().remove(id);
        entry.into_iter().for_each(end_session);
    }

    /// Closes all sessions of an agent.
    pub(crate) fn close_agent_sessions(&self, agent: &AgentId) {
        let ids: Vec<_> = {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            let own = table
                .sessions
                .values()
                .filter(|(s, _)| s.caller.agent == *agent);
            own.map(|(session, _)| session.id.clone()).collect()
        };
        ids.iter().for_each(|id| self.close(id));
    }

    /// Closes all sessions.
    pub fn close_all(&self) {
        let ids: Vec<_> = self.write().sessions.keys().cloned().collect();
        ids.iter().for_each(|id| self.close(id));
    }

    /// The number of open sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .sessions
            .len()
    }

    /// True when no session is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn write(&self) -> RwLockWriteGuard<'_, SessionTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a session whose id is unknown already.
fn end_session((session, mailbox): Entry) {
    session.agent.disconnect();
    mailbox.stop("closed");
}

/// Fixed at construction.
#[derive(Debug)]
struct SessionActor {
    session: Arc<Session>,
    sessions: Arc<Sessions>,
}

/// The state of the actor.
#[derive(Debug)]
struct SessionState {
    mailbox: Mailbox<SessionMsg>,
    /// The timer of the idle check; it ends with the session.
    idle_timer: SupervisedTask<()>,
    _entry: SessionEntry,
    /// `None` once the session has ended normally.
    presence: Option<AgentPresence>,
    _alive: ActorCountGuard,
}

/// The slot of a session in the table: however its actor ends, even by a panic, its id is unknown from then
/// on.
#[derive(Debug)]
struct SessionEntry {
    sessions: Arc<Sessions>,
    id: SessionId,
}

impl Drop for SessionEntry {
    fn drop(&mut self) {
        self.sessions.close(&self.id);
    }
}

impl Actor for SessionActor {
    type Msg = Queued<SessionMsg>;
    type State = SessionState;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<Self::State, ActorProcessingErr> {
        let (me, sessions) = (Mailbox::new(myself), self.sessions.clone());
        Ok(SessionState {
            idle_timer: schedule_idle_check(&me, sessions.limits.idle),
            mailbox: me,
            presence: Some(AgentPresence::enter(
                &sessions.endpoint,
                &self.session.agent,
            )),
            _entry: SessionEntry {
                sessions,
                id: self.session.id.clone(),
            },
            _alive: ActorCountGuard::new(CountedKind::Session),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match queued.into_message() {
            SessionMsg::CheckIdle => {
                let (idle, limit) = (self.session.idle(), self.sessions.limits.idle);
                if idle >= limit {
                    self.sessions.close(&self.session.id);
                } else {
                    state.idle_timer = schedule_idle_check(&state.mailbox, limit - idle);
                }
            }
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        state.presence = None;
        Ok(())
    }
}

fn schedule_idle_check(me: &Mailbox<SessionMsg>, after: Duration) -> SupervisedTask<()> {
    let me = me.clone();
    let after = after.max(Duration::from_secs(1));
    task::spawn_supervised("session.clock", async move {
        tokio::time::sleep(after).await;
        let _ = me.send(SessionMsg::CheckIdle);
    })
}
