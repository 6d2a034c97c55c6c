//! Mailboxes of actors, bounded by credit because those of the actor library are unbounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mgp_sync::{Charge, Credit, Slot};
use ractor::{Actor, ActorCell, ActorRef, ActorStatus, SpawnErr};
use tokio::sync::oneshot;

/// Messages that may wait in one mailbox. An actor handles thousands a second; more than this means that it is stuck, and
/// an error is better than growth.
pub(crate) const MAILBOX_CAPACITY: u64 = 4096;

/// How long an ask waits for its answer.
const ASK_DEADLINE: Duration = Duration::from_secs(10);

/// A message in a mailbox, with its credit.
#[derive(Debug)]
pub struct Queued<M> {
    /// `None` only in [`Queued::panic`].
    message: Option<M>,
    _charge: Option<Charge>,
}

impl<M> Queued<M> {
    /// For tests: the actor that handles it panics.
    #[must_use]
    pub fn panic() -> Self {
        Self {
            message: None,
            _charge: None,
        }
    }

    /// The message.
    ///
    /// # Panics
    /// Only for [`Self::panic`].
    #[must_use]
    pub fn into_message(self) -> M {
        self.message.expect("only a test queues an empty message")
    }
}

/// Why an actor could not be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// It has ended or is ending.
    #[error("it has stopped")]
    Stopped,
    /// It did not answer in time.
    #[error("it did not answer within {} s", ASK_DEADLINE.as_secs())]
    TimedOut,
    /// The mailbox is full.
    #[error("it has {MAILBOX_CAPACITY} messages waiting")]
    Overloaded,
}

/// The address of an actor.
#[derive(Debug)]
pub struct Mailbox<M: Send + 'static> {
    address: Address<M>,
    credit: Arc<Credit>,
}

/// How the actor is reached.
#[derive(Debug)]
enum Address<M: Send + 'static> {
    /// An actor that is never restarted.
    Fixed(ActorRef<Queued<M>>),
    /// An actor that its supervisor restarts; the slot holds the current one.
    Restartable(Arc<Slot<ActorRef<Queued<M>>>>),
}

impl<M: Send + 'static> Address<M> {
    fn actor(&self) -> Result<ActorRef<Queued<M>>, AskError> {
        match self {
            Self::Fixed(actor) => Ok(actor.clone()),
            Self::Restartable(slot) => match slot.get() {
                Some(actor) => Ok((*actor).clone()),
                None => Err(AskError::Stopped),
            },
        }
    }

    fn send(&self, queued: Queued<M>) -> Result<(), AskError> {
        let sent = match self {
            Self::Fixed(actor) => actor.send_message(queued),
            Self::Restartable(_) => self.actor()?.send_message(queued),
        };
        sent.map_err(|_| AskError::Stopped)
    }
}

impl<M: Send + 'static> Clone for Address<M> {
    fn clone(&self) -> Self {
        match self {
            Self::Fixed(actor) => Self::Fixed(actor.clone()),
            Self::Restartable(slot) => Self::Restartable(slot.clone()),
        }
    }
}

impl<M: Send + 'static> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self {
            address: self.address.clone(),
            credit: self.credit.clone(),
        }
    }
}

impl<M: Send + 'static> Mailbox<M> {
    /// The mailbox of an actor.
    #[must_use]
    pub fn new(actor: ActorRef<Queued<M>>) -> Self {
        Self {
            address: Address::Fixed(actor),
            credit: Credit::new(MAILBOX_CAPACITY),
        }
    }

    /// The mailbox of an actor that is restarted after a failure. There is no actor before [`Mailbox::start`], and queued
    /// messages are lost at a failure.
    #[must_use]
    pub fn new_restartable() -> Self {
        Self {
            address: Address::Restartable(Arc::new(Slot::new())),
            credit: Credit::new(MAILBOX_CAPACITY),
        }
    }

    /// Starts the actor of a mailbox made by [`Mailbox::new_restartable`], or its successor.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn start<A>(&self, actor: A, arguments: A::Arguments) -> Result<ActorCell, SpawnErr>
    where
        A: Actor<Msg = Queued<M>>,
    {
        let (actor, _) = Actor::spawn(None, actor, arguments).await?;
        let cell = actor.get_cell();
        if let Address::Restartable(slot) = &self.address {
            let _ = slot.fill(Arc::new(actor));
        }
        Ok(cell)
    }

    /// Sends without waiting.
    ///
    /// # Errors
    /// [`AskError::Overloaded`] or [`AskError::Stopped`].
    pub fn send(&self, message: M) -> Result<(), AskError> {
        let charge = self.credit.try_take(1).ok_or(AskError::Overloaded)?;
        self.address.send(Queued {
            message: Some(message),
            _charge: Some(charge),
        })
    }

    /// Sends an actor a message about its own work. Not subject to the mailbox's bound; limited by the work that the actor
    /// starts.
    ///
    /// # Errors
    /// [`AskError::Stopped`].
    pub fn send_to_self(&self, message: M) -> Result<(), AskError> {
        self.address.send(Queued {
            message: Some(message),
            _charge: None,
        })
    }

    /// Sends, and waits for the answer.
    ///
    /// # Errors
    /// Any [`AskError`].
    pub async fn ask<T>(&self, message: impl FnOnce(Reply<T>) -> M) -> Result<T, AskError> {
        let (reply, answer) = oneshot::channel();
        self.send(message(Reply(reply)))?;
        match tokio::time::timeout(ASK_DEADLINE, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(AskError::Stopped),
            Err(_) => Err(AskError::TimedOut),
        }
    }

    /// For tests: the actor panics.
    pub fn panic(&self) {
        let _ = self.address.send(Queued::panic());
    }

    /// Whether its actor still runs.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let actor = self.address.actor();
        actor.is_ok_and(|actor| actor.get_status() < ActorStatus::Stopping)
    }

    /// Ends the actor after the messages it already has.
    pub fn stop(&self, reason: &str) {
        if let Ok(actor) = self.address.actor() {
            actor.stop(Some(reason.to_owned()));
        }
    }
}

/// The sender of an answer.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Sender<T>);

impl<T> Reply<T> {
    /// The sender of an answer and its receiver.
    #[must_use]
    pub fn new() -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }

    /// Answers; a requester that stopped waiting is no error.
    pub fn send(self, answer: T) {
        let _ = self.0.send(answer);
    }

    /// Whether the requester still waits for the answer.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        !self.0.is_closed()
    }

    /// Resolves when the requester stops waiting for the answer.
    pub async fn closed(&mut self) {
        self.0.closed().await;
    }
}

/// Counts a live actor of a kind (PRJ-001); owned by the actor's state.
#[derive(Debug)]
pub struct ActorCountGuard(&'static AtomicU64);

/// The counted kinds.
#[derive(Debug, Clone, Copy)]
pub enum CountedKind {
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

impl CountedKind {
    fn counter(self) -> &'static AtomicU64 {
        match self {
            Self::Connection => &CONNECTIONS,
            Self::Session => &SESSIONS,
            Self::Listener => &LISTENERS,
            Self::Server => &SERVERS,
        }
    }

    /// The number of live actors.
    #[must_use]
    pub fn live_count(self) -> u64 {
        self.counter().load(Ordering::Relaxed)
    }
}

impl ActorCountGuard {
    /// Counts one more of this kind until dropped.
    #[must_use]
    pub fn new(kind: CountedKind) -> Self {
        kind.counter().fetch_add(1, Ordering::Relaxed);
        Self(kind.counter())
    }
}

impl Drop for ActorCountGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
