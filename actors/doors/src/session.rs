//! The actor of one legacy HTTP session: from `initialize` to DELETE, its idle timeout or the end of the
//! kernel.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use mgp_protocol::ids::{AgentId, SessionId};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::reception::{AgentPresence, Reception};
use mgp_callers::agent::{Agent, Outward};
use mgp_callers::credential::Credential;
use mgp_callers::exchange::streams::{Stream, Streams};
use mgp_callers::request::Caller;
use mgp_runtime::ids::new_id;
use mgp_runtime::mailbox::{Alive, Kind, Mailbox, Queued};
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::time::moment;

/// What requests of a session use.
#[derive(Debug)]
pub struct Session {
    /// The session id, sent with each request.
    pub id: SessionId,
    /// The caller.
    pub caller: Arc<Caller>,
    /// Its connection.
    pub agent: Arc<Agent>,
    /// Its event streams.
    pub streams: Arc<Streams>,
    used: AtomicU64,
    standing: AtomicUsize,
}

impl Session {
    /// Notes that the session is being used.
    pub fn touch(&self) {
        self.used
            .store(moment().since_start().as_secs(), Ordering::Relaxed);
    }

    fn idle(&self) -> Duration {
        if self.standing.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        let used = Duration::from_secs(self.used.load(Ordering::Relaxed));
        moment().since_start().saturating_sub(used)
    }

    /// Wraps a stream of this session; while it is open the session is not idle.
    pub fn standing(self: &Arc<Self>, stream: Stream) -> SessionStream {
        self.standing.fetch_add(1, Ordering::Relaxed);
        SessionStream {
            stream,
            session: self.clone(),
        }
    }
}

/// An open stream of a session.
#[derive(Debug)]
pub struct SessionStream {
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
        self.session.standing.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All sessions, by id.
#[derive(Debug)]
pub struct Sessions {
    table: RwLock<Entries>,
    limits: SessionLimits,
    reception: Reception,
}

type Entries = HashMap<SessionId, (Arc<Session>, Mailbox<SessionMsg>)>;

/// Limits on sessions.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    /// Sessions open at once.
    pub max: usize,
    /// The idle timeout.
    pub idle: Duration,
    /// Events kept for replay.
    pub replay: usize,
}

/// Messages to the actor.
#[derive(Debug)]
pub enum SessionMsg {
    /// Time to check whether the session is idle.
    Look,
}

/// Why a session could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSession {
    /// The table is full.
    #[error("{0} sessions are open already (`[http] max_sessions`)")]
    Full(usize),
    /// The kernel is ending.
    #[error("the kernel is stopping")]
    Stopping,
}

impl Sessions {
    /// No session yet.
    #[must_use]
    pub fn new(limits: SessionLimits, reception: Reception) -> Arc<Self> {
        Arc::new(Self {
            table: RwLock::default(),
            limits,
            reception,
        })
    }

    /// An agent before its `initialize`, with the streams for its session.
    #[must_use]
    pub fn agent(&self, pass: &Credential) -> (Arc<Agent>, Arc<Streams>) {
        let streams = Streams::new(self.limits.replay);
        let outward = Outward::Session(streams.clone());
        let agent = Agent::new(pass.agent.clone(), pass.is_operator(), outward);
        (agent, streams)
    }

    /// Opens a session for a caller after its `initialize`.
    ///
    /// # Errors
    /// [`NoSession`].
    pub async fn open(
        self: &Arc<Self>,
        caller: Arc<Caller>,
        agent: Arc<Agent>,
        streams: Arc<Streams>,
    ) -> Result<Arc<Session>, NoSession> {
        if self.len() >= self.limits.max {
            return Err(NoSession::Full(self.limits.max));
        }
        let session = Arc::new(Session {
            id: new_id(),
            caller,
            agent,
            streams,
            used: AtomicU64::new(moment().since_start().as_secs()),
            standing: AtomicUsize::new(0),
        });
        let actor = SessionActor {
            session: session.clone(),
            sessions: self.clone(),
        };
        let agents = self.reception.agents.get_cell();
        let (actor, _) = Actor::spawn_linked(None, actor, (), agents)
            .await
            .map_err(|_| NoSession::Stopping)?;
        {
            let mut table = self.write();
            // Other sessions may have been opened while the actor started.
            if table.len() >= self.limits.max {
                actor.stop(None);
                return Err(NoSession::Full(self.limits.max));
            }
            let entry = (session.clone(), Mailbox::new(actor));
            table.insert(session.id.clone(), entry);
        }
        Ok(session)
    }

    /// The bounds on sessions.
    #[must_use]
    pub fn limits(&self) -> SessionLimits {
        self.limits
    }

    /// The session with this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Arc<Session>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.get(id).map(|(session, _)| session.clone())
    }

    /// Ends a session: its id is unknown from now on.
    pub fn close(&self, id: &SessionId) {
        let entry = self.write().remove(id);
        if let Some((session, mailbox)) = entry {
            session.agent.disconnect();
            mailbox.stop("closed");
        }
    }

    /// Ends all sessions of an agent.
    pub fn end_of(&self, agent: &AgentId) {
        let ids: Vec<_> = {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            let own = table.values().filter(|(s, _)| s.caller.agent == *agent);
            own.map(|(session, _)| session.id.clone()).collect()
        };
        ids.iter().for_each(|id| self.close(id));
    }

    /// Ends all sessions.
    pub fn close_all(&self) {
        let ids: Vec<_> = self.write().keys().cloned().collect();
        ids.iter().for_each(|id| self.close(id));
    }

    /// How many are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// True when none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
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
    me: Mailbox<SessionMsg>,
    /// The timer of the idle check; it ends with the session.
    looking: SupervisedTask<()>,
    _listed: ListedSession,
    /// `None` once the session has ended in order.
    presence: Option<AgentPresence>,
    _alive: Alive,
}

/// The place of a session in the table: however its actor ends, a panic included, its id is unknown from
/// then on.
#[derive(Debug)]
struct ListedSession {
    sessions: Arc<Sessions>,
    id: SessionId,
}

impl Drop for ListedSession {
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
            looking: look_later(&me, sessions.limits.idle),
            me,
            presence: Some(AgentPresence::begin(
                &sessions.reception,
                &self.session.agent,
            )),
            _listed: ListedSession {
                sessions,
                id: self.session.id.clone(),
            },
            _alive: Alive::new(Kind::Session),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        queued: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match queued.open() {
            SessionMsg::Look => {
                let (idle, limit) = (self.session.idle(), self.sessions.limits.idle);
                if idle >= limit {
                    self.sessions.close(&self.session.id);
                } else {
                    state.looking = look_later(&state.me, limit - idle);
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

fn look_later(me: &Mailbox<SessionMsg>, after: Duration) -> SupervisedTask<()> {
    let me = me.clone();
    let after = after.max(Duration::from_secs(1));
    task::supervised("session.clock", async move {
        tokio::time::sleep(after).await;
        let _ = me.tell(SessionMsg::Look);
    })
}
