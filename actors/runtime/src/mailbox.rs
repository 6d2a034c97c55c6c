//! How actors are asked: bounded by credit, because an actor's own mailbox has no bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mgp_sync::credit::{Charge, Credit};
use ractor::ActorRef;
use tokio::sync::oneshot;

/// Messages that may wait in one mailbox. An actor handles thousands a second; more than this means
/// it is stuck, and saying so is better than growing.
pub const MAILBOX: u64 = 4096;

/// How long an ask waits for its answer.
const ASK_DEADLINE: Duration = Duration::from_secs(10);

/// A message with the credit it holds while it waits.
#[derive(Debug)]
pub struct Letter<M> {
    /// What is said.
    pub message: M,
    _charge: Option<Charge>,
}

/// Why an actor could not be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// It is gone or going.
    #[error("it has stopped")]
    Stopped,
    /// It did not answer in time.
    #[error("it did not answer within {} s", ASK_DEADLINE.as_secs())]
    TimedOut,
    /// Too many messages wait already.
    #[error("it has {MAILBOX} messages waiting")]
    Overloaded,
}

/// The address of an actor.
#[derive(Debug)]
pub struct Mailbox<M: Send + 'static> {
    actor: ActorRef<Letter<M>>,
    credit: Arc<Credit>,
}

impl<M: Send + 'static> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self {
            actor: self.actor.clone(),
            credit: self.credit.clone(),
        }
    }
}

impl<M: Send + 'static> Mailbox<M> {
    /// The mailbox of an actor.
    #[must_use]
    pub fn new(actor: ActorRef<Letter<M>>) -> Self {
        Self {
            actor,
            credit: Credit::new(MAILBOX),
        }
    }

    /// Tells without waiting.
    ///
    /// # Errors
    /// [`AskError::Overloaded`] or [`AskError::Stopped`].
    pub fn tell(&self, message: M) -> Result<(), AskError> {
        let charge = self.credit.try_take(1).ok_or(AskError::Overloaded)?;
        self.actor
            .send_message(Letter {
                message,
                _charge: Some(charge),
            })
            .map_err(|_| AskError::Stopped)
    }

    /// Tells the actor itself what has become of something it began: never refused for what others
    /// have said, and bounded by what it begins.
    ///
    /// # Errors
    /// [`AskError::Stopped`].
    pub fn remind(&self, message: M) -> Result<(), AskError> {
        let letter = Letter {
            message,
            _charge: None,
        };
        self.actor
            .send_message(letter)
            .map_err(|_| AskError::Stopped)
    }

    /// Tells, and asks for an answer.
    ///
    /// # Errors
    /// Any [`AskError`].
    pub async fn ask<T>(&self, message: impl FnOnce(Reply<T>) -> M) -> Result<T, AskError> {
        let (reply, answer) = oneshot::channel();
        self.tell(message(Reply(reply)))?;
        match tokio::time::timeout(ASK_DEADLINE, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(AskError::Stopped),
            Err(_) => Err(AskError::TimedOut),
        }
    }

    /// Asks the actor to end after the messages it already has.
    pub fn stop(&self, reason: &str) {
        self.actor.stop(Some(reason.to_owned()));
    }

    /// True while the actor lives.
    #[must_use]
    pub fn alive(&self) -> bool {
        matches!(
            self.actor.get_status(),
            ractor::ActorStatus::Unstarted
                | ractor::ActorStatus::Starting
                | ractor::ActorStatus::Running
        )
    }
}

/// The way back to whoever asked.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Sender<T>);

impl<T> Reply<T> {
    /// A way back, and where the answer comes out.
    #[must_use]
    pub fn new() -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }

    /// Answers; nobody waiting any more is no error.
    pub fn send(self, answer: T) {
        let _ = self.0.send(answer);
    }

    /// Resolves when nobody waits for the answer any more.
    pub async fn closed(&mut self) {
        self.0.closed().await;
    }
}

/// How many actors of a kind are alive (PRJ-001): held by each actor's state.
#[derive(Debug)]
pub struct Alive(&'static AtomicU64);

/// The kinds that are counted.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// One per stdio or socket connection of an agent.
    Connection,
    /// One per legacy HTTP session.
    Session,
    /// One per event subscription of a stateless client.
    Listener,
    /// One per server.
    Server,
}

static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
static SESSIONS: AtomicU64 = AtomicU64::new(0);
static LISTENERS: AtomicU64 = AtomicU64::new(0);
static SERVERS: AtomicU64 = AtomicU64::new(0);

impl Kind {
    fn counter(self) -> &'static AtomicU64 {
        match self {
            Self::Connection => &CONNECTIONS,
            Self::Session => &SESSIONS,
            Self::Listener => &LISTENERS,
            Self::Server => &SERVERS,
        }
    }

    /// How many live.
    #[must_use]
    pub fn alive(self) -> u64 {
        self.counter().load(Ordering::Relaxed)
    }
}

impl Alive {
    /// Counts one more of this kind until dropped.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        kind.counter().fetch_add(1, Ordering::Relaxed);
        Self(kind.counter())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
