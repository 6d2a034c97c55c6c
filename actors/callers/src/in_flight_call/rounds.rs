//! A stateless client's call over several requests: the first, and one after each
//! `input_required` (MCP 2026-07-28, multi round-trip requests).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::callers::input_requests::{InputRequestKey, InputRequests};
use mgp_engine::servers::log_levels::LogLevel;
use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::mcp::ClientCapabilities;
use mgp_transports::lines::{LineSink, SendError};
use tokio::sync::futures::Notified;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::callback::{CallbackError, CallbackResult};
use super::delivery::{Delivery, Receipt, send_line_as, try_send_line};
use super::flag::Flag;

/// Callbacks this close together are sent to the client in one answer.
const COALESCE_DELAY: Duration = Duration::from_millis(10);

/// The longest wait for further callbacks.
const COALESCE_MAX: Duration = Duration::from_millis(100);

/// Buffered messages for the reader of one response stream; lossy ones are dropped above it.
pub const STREAM_QUEUE: usize = 256;

/// One call of a stateless client.
#[derive(Debug)]
pub struct CallRounds {
    current: Mutex<CallRound>,
    /// True if the client is expected to return with another request.
    will_return: AtomicBool,
    /// True if its method allows `input_required` as an answer.
    can_ask: bool,
    callbacks: Mutex<CallbackBoard>,
    /// Notified when a callback is added, answered or withdrawn, and when the client returns.
    changed: Notify,
    long_call: OnceLock<LongCall>,
    can_be_promoted: Flag,
    /// Its server reported that the call takes long.
    is_long: Flag,
    /// The client's preference for when a long call becomes a task.
    wait: Mutex<Option<TaskWait>>,
}

/// How long a client waits for an answer before the call becomes a task, whatever its server's entry says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskWait {
    /// At most this long.
    For(Duration),
    /// Without limit.
    Forever,
}

/// The request by which the client currently waits for the call.
#[derive(Debug)]
pub struct CallRound {
    /// The client's id of this request.
    pub id: RequestId,
    /// Where its messages are sent; `None` once it was answered.
    pub outlet: Option<Outlet>,
    /// Its progress token, as JSON text.
    pub token: Option<Box<str>>,
    /// The client capabilities that it declares.
    pub capabilities: ClientCapabilities,
    /// The lowest log level it wants; `None` for no log.
    pub log_level: Option<LogLevel>,
    /// When it was answered.
    pub answered_at: Option<Instant>,
}

/// Where messages of one request are sent.
#[derive(Debug, Clone)]
pub enum Outlet {
    /// A line connection.
    Line(LineSink),
    /// The response stream of a POST.
    Stream(mpsc::Sender<Bytes>),
}

/// Callbacks without an answer.
#[derive(Debug, Default)]
struct CallbackBoard {
    input_requests: InputRequests,
    waiting: HashMap<InputRequestKey, oneshot::Sender<CallbackResult>>,
}

/// When and how a long call becomes a task.
#[derive(Debug, Clone)]
pub struct LongCall {
    /// The server of the tool.
    pub server: ServerId,
    /// The server's own name for the tool.
    pub tool: Box<str>,
    /// How long it may take as a call.
    pub threshold: Duration,
    /// The retention of its task.
    pub ttl: Duration,
}

impl CallRounds {
    /// Creates a call with its first request.
    #[must_use]
    pub fn new(first: CallRound, can_ask: bool) -> Self {
        Self {
            current: Mutex::new(first),
            will_return: AtomicBool::new(false),
            can_ask,
            callbacks: Mutex::default(),
            changed: Notify::new(),
            long_call: OnceLock::new(),
            can_be_promoted: Flag::default(),
            is_long: Flag::default(),
            wait: Mutex::default(),
        }
    }

    /// Continues the call with the client's next request.
    pub fn continue_with(&self, next: CallRound) {
        let mut now = self.lock_current();
        self.will_return.store(false, Ordering::Relaxed);
        *now = next;
        drop(now);
        self.changed.notify_waiters();
    }

    /// Ends the current request with an answer; until the next one messages have no receiver. `returns`:
    /// the client is expected to return.
    pub fn suspend(&self, returns: bool) {
        let mut now = self.lock_current();
        self.will_return.store(returns, Ordering::Relaxed);
        now.outlet = None;
        now.answered_at = Some(Instant::now());
        now.token = None;
    }

    /// True while messages reach the client, or will when it returns.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        let now = self.lock_current();
        now.outlet.is_some() || self.will_return.load(Ordering::Relaxed)
    }

    /// True while the client answers callbacks between two requests.
    #[must_use]
    pub fn will_return(&self) -> bool {
        let now = self.lock_current();
        now.answered_at.is_some() && self.will_return.load(Ordering::Relaxed)
    }

    /// Resolves when messages reach the client; false when it does not return for them.
    pub(crate) async fn wait_until_reachable(&self) -> bool {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.lock_current().outlet.is_some() {
                return true;
            }
            if !self.is_reachable() {
                return false;
            }
            changed.await;
        }
    }

    /// The id of the current request.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.lock_current().id.clone()
    }

    /// The client's capabilities, as last declared.
    #[must_use]
    pub fn capabilities(&self) -> ClientCapabilities {
        self.lock_current().capabilities
    }

    /// The lowest log level the client wants, as last declared.
    #[must_use]
    pub(crate) fn log_level(&self) -> Option<LogLevel> {
        self.lock_current().log_level
    }

    /// The progress token of the current request.
    #[must_use]
    pub(crate) fn token(&self) -> Option<Box<str>> {
        self.lock_current().token.clone()
    }

    /// Sends a message on the current request, when there is one; `Some(false)` when a message that must
    /// not be lost meets a full queue.
    pub(crate) fn send(&self, frame: Bytes, class: Delivery) -> Option<bool> {
        let outlet = self.lock_current().outlet.clone();
        Some(match outlet? {
            Outlet::Line(sink) => {
                send_line_as(&sink, frame, class);
                true
            }
            Outlet::Stream(stream) => stream.try_send(frame).is_ok() || class == Delivery::Lossy,
        })
    }

    /// Sends a message that can wait; false when the queue is full.
    pub(super) fn try_send_with_receipt(&self, frame: Vec<u8>, receipt: &Receipt) -> bool {
        match self.lock_current().outlet.clone() {
            Some(Outlet::Line(sink)) => try_send_line(&sink, receipt.attach(frame)),
            Some(Outlet::Stream(stream)) => {
                let sent = stream.try_send(receipt.attach(frame));
                !matches!(sent, Err(TrySendError::Full(_)))
            }
            None => true,
        }
    }

    /// Sends a message on the stream of the current request, unless its queue is full.
    ///
    /// # Errors
    /// [`SendError::Full`] to try again later; [`SendError::Closed`] when the stream is closed.
    pub(super) fn try_send(&self, frame: Bytes) -> Result<(), SendError> {
        match self.lock_current().outlet.as_ref() {
            Some(Outlet::Stream(stream)) => {
                stream.try_send(frame).map_err(|refused| match refused {
                    TrySendError::Full(_) => SendError::Full,
                    TrySendError::Closed(_) => SendError::Closed,
                })
            }
            Some(Outlet::Line(sink)) => sink.send_low_priority(frame),
            None => Err(SendError::Closed),
        }
    }

    /// Resolves when the stream of the current request has capacity, or is closed.
    pub(crate) fn capacity_available(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let Some(Outlet::Stream(stream)) = self.lock_current().outlet.clone() else {
            return None;
        };
        Some(async move {
            let _ = stream.reserve().await;
        })
    }

    /// Puts a callback into the next `input_required` and waits for the answer, unless the call is
    /// `cancelled` before.
    ///
    /// # Errors
    /// [`CallbackError`]: why there is no answer.
    pub async fn send_callback(
        &self,
        cancelled: impl Future<Output = ()>,
        method: &str,
        params: Option<&str>,
    ) -> Result<CallbackResult, CallbackError> {
        if !self.can_ask {
            return Err(CallbackError::Disconnected);
        }
        let (sender, answer) = oneshot::channel();
        let key = {
            let mut board = self.lock_callbacks();
            let key = board.input_requests.add(method, params);
            let key = key.map_err(|_| CallbackError::Overloaded)?;
            board.waiting.insert(key, sender);
            key
        };
        let _withdraw = WithdrawGuard { rounds: self, key };
        self.changed.notify_waiters();
        tokio::select! {
            answer = answer => answer.map_err(|_| CallbackError::Disconnected),
            () = cancelled => Err(CallbackError::Cancelled),
        }
    }

    /// Resolves when callbacks are open and no more arrive within the coalescing delay.
    pub async fn wait_for_callbacks(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if !self.has_open_callbacks() {
                changed.await;
                continue;
            }
            self.coalesce().await;
            if self.has_open_callbacks() {
                return;
            }
        }
    }

    /// Resolves at the next change of the open callbacks.
    pub fn change_notified(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Allows the call to become a task after a threshold; only the first setting counts.
    pub fn allow_promotion(&self, call: LongCall) {
        let _ = self.long_call.set(call);
        self.can_be_promoted.raise();
    }

    /// Turns the call into a task now, if it may become one, because its server reported that it takes
    /// long. A wait set by the client has precedence.
    pub fn promote_now(&self) {
        self.is_long.raise();
    }

    /// Sets how long the client waits, in place of the server's setting.
    pub fn set_task_wait(&self, wait: TaskWait) {
        *self.wait.lock().unwrap_or_else(PoisonError::into_inner) = Some(wait);
    }

    /// Resolves when that time has passed, or when the server reported that the call takes long.
    pub async fn wait_for_promotion(&self) -> &LongCall {
        let began = Instant::now();
        self.can_be_promoted.wait_until_raised().await;
        let call = self
            .long_call
            .get()
            .expect("it is there before the flag is up");
        let wait = *self.wait.lock().unwrap_or_else(PoisonError::into_inner);
        match wait {
            None => tokio::select! {
                () = tokio::time::sleep(call.threshold) => {}
                () = self.is_long.wait_until_raised() => {}
            },
            Some(TaskWait::For(wait)) => tokio::time::sleep_until(began + wait).await,
            Some(TaskWait::Forever) => std::future::pending().await,
        }
        call
    }

    async fn coalesce(&self) {
        let arriving = async {
            loop {
                let changed = self.changed.notified();
                if tokio::time::timeout(COALESCE_DELAY, changed).await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(COALESCE_MAX, arriving).await;
    }

    /// True while a callback has no answer.
    #[must_use]
    pub fn has_open_callbacks(&self) -> bool {
        !self.lock_callbacks().input_requests.is_empty()
    }

    /// How long the call has waited for the client's answers; `None` while it does not
    /// wait.
    #[must_use]
    pub fn suspended_for(&self) -> Option<Duration> {
        let since = self
            .lock_current()
            .answered_at
            .filter(|_| self.has_open_callbacks())?;
        Some(since.elapsed())
    }

    /// The callbacks without an answer, as the `inputRequests` object.
    #[must_use]
    pub fn input_requests(&self) -> String {
        self.lock_callbacks().input_requests.render_input_requests()
    }

    /// Handles the `inputResponses` object of a client. Answers without a callback are dropped; callbacks
    /// still without an answer are sent again.
    pub fn answer(&self, input_responses: &str) {
        let mut board = self.lock_callbacks();
        let answered = board.input_requests.accept_responses(input_responses);
        for (key, result) in answered.accepted {
            if let Some(waiter) = board.waiting.remove(&key) {
                let _ = waiter.send(Ok(result.into()));
            }
        }
        drop(board);
        self.changed.notify_waiters();
    }

    fn lock_current(&self) -> MutexGuard<'_, CallRound> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_callbacks(&self) -> MutexGuard<'_, CallbackBoard> {
        self.callbacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// On drop, withdraws the callback.
struct WithdrawGuard<'a> {
    rounds: &'a CallRounds,
    key: InputRequestKey,
}

impl Drop for WithdrawGuard<'_> {
    fn drop(&mut self) {
        let mut board = self.rounds.lock_callbacks();
        board.input_requests.withdraw(self.key);
        board.waiting.remove(&self.key);
        drop(board);
        self.rounds.changed.notify_waiters();
    }
}
