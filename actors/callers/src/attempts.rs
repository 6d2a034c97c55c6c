//! How a stateless client follows one call: by its first request and, after each `input_required`, by
//! the next one (MCP 2026-07-28, multi round-trip requests).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::callers::questions::{PendingQuestions, QuestionKey};
use mgp_engine::servers::log_levels::LogLevel;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp::ClientCapabilities;
use mgp_transports::lines::LineSink;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use crate::agent::{ClientAnswer, Unanswered, pass_line};
use crate::exchange::{Delivery, Exchange, Flag};
use crate::tasks::LongCall;

/// Questions that come this close to one another are put to the client together.
const GATHER: Duration = Duration::from_millis(10);

/// However many come, the client has the first ones after this.
const GATHER_MOST: Duration = Duration::from_millis(100);

/// Messages that may wait for the reader of one response stream; lossy ones are dropped above it.
pub const STREAM_QUEUE: usize = 256;

/// One call of a stateless client.
#[derive(Debug)]
pub struct CallRounds {
    now: Mutex<CallRound>,
    /// Its method may be answered with questions.
    may_ask: bool,
    board: Mutex<Board>,
    /// Something is asked, answered or not asked any more.
    changed: Notify,
    long: OnceLock<LongCall>,
    may_take_long: Flag,
}

/// The request by which the client follows the call right now.
#[derive(Debug)]
pub struct CallRound {
    /// The client's id of it.
    pub id: RequestId,
    /// Where messages that belong to it go; `None` once it has its answer.
    pub outlet: Option<Outlet>,
    /// The progress token it gave, as JSON text.
    pub token: Option<Box<str>>,
    /// What it says its client can be asked for.
    pub capabilities: ClientCapabilities,
    /// The least severe log level it wants; `None` wants no log.
    pub level: Option<LogLevel>,
    /// When it had its answer.
    pub left: Option<Instant>,
}

/// Where messages of a request go.
#[derive(Debug, Clone)]
pub enum Outlet {
    /// A line connection.
    Line(LineSink),
    /// The response stream of a POST.
    Stream(mpsc::Sender<Bytes>),
}

/// What was asked and has no answer yet.
#[derive(Debug, Default)]
struct Board {
    questions: PendingQuestions,
    waiting: HashMap<QuestionKey, oneshot::Sender<ClientAnswer>>,
}

impl CallRounds {
    /// A call that its client follows by this request.
    #[must_use]
    pub fn new(first: CallRound, may_ask: bool) -> Self {
        Self {
            now: Mutex::new(first),
            may_ask,
            board: Mutex::default(),
            changed: Notify::new(),
            long: OnceLock::new(),
            may_take_long: Flag::default(),
        }
    }

    /// The client comes back for the call with another request.
    pub fn follow(&self, next: CallRound) {
        *self.now() = next;
    }

    /// The request has its answer; until the next one nobody listens.
    pub fn leave(&self) {
        let mut now = self.now();
        now.outlet = None;
        now.left = Some(Instant::now());
        now.token = None;
    }

    /// The id of the request by which the call is followed right now.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.now().id.clone()
    }

    /// What the client can be asked for, as it said last.
    #[must_use]
    pub fn capabilities(&self) -> ClientCapabilities {
        self.now().capabilities
    }

    /// The least severe log level the client wants, as it said last.
    #[must_use]
    pub fn level(&self) -> Option<LogLevel> {
        self.now().level
    }

    /// The progress token of the request by which the call is followed right now.
    #[must_use]
    pub fn token(&self) -> Option<Box<str>> {
        self.now().token.clone()
    }

    /// Sends a message to whoever follows the call; false when a message that must not be lost
    /// found no room.
    pub(crate) fn send(&self, frame: Bytes, class: Delivery) -> bool {
        let outlet = self.now().outlet.clone();
        match outlet {
            Some(Outlet::Line(sink)) => {
                pass_line(&sink, frame, class);
                true
            }
            Some(Outlet::Stream(stream)) => {
                stream.try_send(frame).is_ok() || class == Delivery::Lossy
            }
            None => true,
        }
    }

    /// Puts a question into the next `input_required` and waits for what the client says.
    pub async fn ask(
        &self,
        exchange: &Exchange,
        method: &str,
        params: Option<&str>,
    ) -> Result<ClientAnswer, Unanswered> {
        if !self.may_ask {
            return Err(Unanswered::Gone);
        }
        let (sender, answer) = oneshot::channel();
        let key = {
            let mut board = self.board();
            let key = board.questions.ask(method, params);
            let key = key.map_err(|_| Unanswered::Overloaded)?;
            board.waiting.insert(key, sender);
            key
        };
        let _withdraw = Withdraw { rounds: self, key };
        self.changed.notify_waiters();
        tokio::select! {
            answer = answer => answer.map_err(|_| Unanswered::Gone),
            () = exchange.cancelled() => Err(Unanswered::Cancelled),
        }
    }

    /// Resolves when something is asked, and what belongs together has been asked too.
    pub async fn asked(&self) {
        loop {
            let mut asked = std::pin::pin!(self.changed.notified());
            asked.as_mut().enable();
            if !self.is_asking() {
                asked.await;
                continue;
            }
            self.gather().await;
            if self.is_asking() {
                return;
            }
        }
    }

    /// Resolves at the next change of what is asked.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// The call becomes a task when it takes longer than this; what is said first counts.
    pub fn may_take_long(&self, call: LongCall) {
        let _ = self.long.set(call);
        self.may_take_long.raise();
    }

    /// Resolves when the call has taken so long that it becomes a task.
    pub async fn took_long(&self) -> &LongCall {
        self.may_take_long.raised().await;
        let call = self.long.get().expect("it is there before the flag is up");
        tokio::time::sleep(call.after).await;
        call
    }

    async fn gather(&self) {
        let more = async {
            loop {
                let asked = self.changed.notified();
                if tokio::time::timeout(GATHER, asked).await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(GATHER_MOST, more).await;
    }

    /// True while a question has no answer.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        !self.board().questions.is_empty()
    }

    /// How long the call has been waiting for its client to come back with answers; `None` while it
    /// does not.
    #[must_use]
    pub fn suspended_for(&self) -> Option<Duration> {
        let since = self.now().left.filter(|_| self.is_asking())?;
        Some(since.elapsed())
    }

    /// The questions without an answer, as the `inputRequests` object.
    #[must_use]
    pub fn input_requests(&self) -> String {
        self.board().questions.input_requests()
    }

    /// Takes the `inputResponses` object of a client. Answers to nothing are dropped; what is still
    /// without an answer is asked again.
    pub fn answer(&self, input_responses: &str) {
        let mut board = self.board();
        let answered = board.questions.answer(input_responses);
        for (key, result) in answered.taken {
            if let Some(waiter) = board.waiting.remove(&key) {
                let _ = waiter.send(Ok(result.into()));
            }
        }
        drop(board);
        self.changed.notify_waiters();
    }

    fn now(&self) -> MutexGuard<'_, CallRound> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// However the asking ends, the question does not outlive it.
struct Withdraw<'a> {
    rounds: &'a CallRounds,
    key: QuestionKey,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let mut board = self.rounds.board();
        board.questions.withdraw(self.key);
        board.waiting.remove(&self.key);
        drop(board);
        self.rounds.changed.notify_waiters();
    }
}
