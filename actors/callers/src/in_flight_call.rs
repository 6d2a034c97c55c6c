//! The state of one in-flight request: where its messages go, and whether it was cancelled.

pub(crate) mod call_stream;
pub(crate) mod callback;
pub(crate) mod delivery;
mod flag;
pub(crate) mod forwarded_headers;
pub(crate) mod guard_report;
pub(crate) mod in_flight_calls;
pub(crate) mod progress;
pub(crate) mod remote_times;
pub(crate) mod rounds;
pub(crate) mod stop;
pub(crate) mod streams;
mod tap;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::calls::state::CallState;
use mgp_engine::clock::{MonotonicTime, to_micros_rounded_up};
use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::refusal::{CallOutcome, Refusal};
use mgp_transports::lines::LineSink;
use mgp_transports::{ResponseBudget, UnreadResponse};
use serde_json::value::RawValue;

use self::call_stream::CallStreamHandle;
use self::delivery::{Receipt, try_send_line};
use self::forwarded_headers::ForwardedHeaders;
use self::guard_report::GuardReport;
use self::progress::ReportedProgress;
use self::remote_times::RemoteTimes;
use self::rounds::CallRounds;
use self::stop::Stop;
use self::streams::{Lane, Streams};
use crate::agent_tap::AgentTap;
use mgp_runtime::time::{monotonic_now, report_call};

pub(crate) use self::delivery::send_line_as;
pub use self::delivery::{Delivery, send_line};
pub use self::flag::Flag;
pub use mgp_transports::lines::SendError;

/// The state of one request.
#[derive(Debug)]
pub struct InFlightCall {
    /// The client's id of the request; a stateless client's call has it in its rounds.
    id: Option<RequestId>,
    started_at: MonotonicTime,
    state: Mutex<CallState>,
    reply_path: ReplyPath,
    primer: Once,
    needs_stream: Flag,
    is_paused: Flag,
    has_no_timeout: Flag,
    task: OnceLock<(Box<str>, Box<str>)>,
    missing_capabilities: OnceLock<Box<RawValue>>,
    cancelled: Flag,
    cancel_reason: OnceLock<String>,
    ended: Flag,
    stream: OnceLock<CallStreamHandle>,
    progress: ReportedProgress,
    stop: Stop,
    forwarded_headers: OnceLock<ForwardedHeaders>,
    /// The memory limit for responses of its agent.
    budget: OnceLock<ResponseBudget>,
    /// The reservation for its response, from arrival to delivery.
    response: Mutex<Option<UnreadResponse>>,
    /// Set while an operator watches the agent.
    tap: OnceLock<AgentTap>,
    /// Microseconds spent in servers' queues.
    queue_wait_us: AtomicU64,
    remote_times: RemoteTimes,
    /// What the guards of results found.
    guard_report: Mutex<Option<Box<GuardReport>>>,
}

/// Where messages of a request are sent.
#[derive(Debug)]
pub enum ReplyPath {
    /// A line connection.
    Line(LineSink),
    /// The SSE stream of this request, opened by its first message. `primed` sends an event without data
    /// first, so that the client can resume from the start.
    Stream {
        /// All streams of the session.
        streams: Arc<Streams>,
        /// The stream of this request.
        lane: Lane,
        /// Set for clients that understand the empty event.
        primed: bool,
    },
    /// The requests of a stateless client; boxed because it is large.
    Rounds(Box<CallRounds>),
    /// No receiver: the kernel's own requests.
    Discard,
}

impl InFlightCall {
    /// Creates a call whose answer goes this way.
    #[must_use]
    pub fn new(path: ReplyPath) -> Arc<Self> {
        Self::build(None, path)
    }

    /// Creates the call of a request that its client knows under this id.
    #[must_use]
    pub(crate) fn with_id(id: RequestId, path: ReplyPath) -> Arc<Self> {
        Self::build(Some(id), path)
    }

    /// Sets the request headers that may be forwarded to servers that name them.
    pub fn set_forwarded_headers(&self, headers: Option<ForwardedHeaders>) {
        if let Some(headers) = headers {
            let _ = self.forwarded_headers.set(headers);
        }
    }

    /// The request headers that may be forwarded.
    #[must_use]
    pub fn forwarded_headers(&self) -> Option<&ForwardedHeaders> {
        self.forwarded_headers.get()
    }

    /// Counts its response against its agent's limit.
    pub fn set_budget(&self, budget: ResponseBudget) {
        let _ = self.budget.set(budget);
    }

    /// The memory limit for responses of its agent; `None` for the kernel's own requests.
    #[must_use]
    pub fn budget(&self) -> Option<&ResponseBudget> {
        self.budget.get()
    }

    /// Reserves memory for a response that has arrived; false above the limit. The reservation replaces an
    /// earlier one and lasts until delivery.
    #[must_use]
    pub fn try_reserve_response(&self, bytes: usize) -> bool {
        let Some(budget) = self.budget.get() else {
            return true;
        };
        // A response whose length was known in advance is already reserved.
        let mut received = self.lock_response();
        if received
            .as_ref()
            .is_some_and(|held| held.len() >= bytes as u64)
        {
            return true;
        }
        *received = None;
        *received = budget.admit(bytes);
        received.is_some()
    }

    /// Waits for capacity for a response of so many bytes, and reserves it.
    pub async fn reserve_response(&self, bytes: usize) {
        if let Some(budget) = self.budget.get() {
            let admitted = budget.admit_when_free(bytes).await;
            *self.lock_response() = Some(admitted);
        }
    }

    /// Waits while responses of its agent use up their limit.
    pub async fn wait_while_full(&self) {
        if let Some(budget) = self.budget.get() {
            drop(budget.admit_when_free(budget.min_free()).await);
        }
    }

    /// The response; its reservation lasts until the last reference to a part of it is dropped.
    #[must_use]
    pub fn release_response(&self, response: Bytes) -> Bytes {
        self.lock_response().take();
        match self.budget.get() {
            Some(budget) => budget.attach_to(response),
            None => response,
        }
    }

    fn lock_response(&self) -> MutexGuard<'_, Option<UnreadResponse>> {
        self.response.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn build(id: Option<RequestId>, path: ReplyPath) -> Arc<Self> {
        report_call();
        Arc::new(Self {
            id,
            started_at: monotonic_now(),
            state: Mutex::default(),
            reply_path: path,
            primer: Once::new(),
            needs_stream: Flag::default(),
            is_paused: Flag::default(),
            has_no_timeout: Flag::default(),
            task: OnceLock::new(),
            missing_capabilities: OnceLock::new(),
            cancelled: Flag::default(),
            cancel_reason: OnceLock::new(),
            ended: Flag::default(),
            stream: OnceLock::new(),
            progress: ReportedProgress::default(),
            stop: Stop::default(),
            forwarded_headers: OnceLock::new(),
            budget: OnceLock::new(),
            response: Mutex::default(),
            tap: OnceLock::new(),
            queue_wait_us: AtomicU64::new(0),
            remote_times: RemoteTimes::default(),
            guard_report: Mutex::default(),
        })
    }

    /// When the request began.
    #[must_use]
    pub fn started_at(&self) -> MonotonicTime {
        self.started_at
    }

    /// Adds time spent in a server's queue.
    pub fn add_queue_wait(&self, time: Duration) {
        self.queue_wait_us
            .fetch_add(to_micros_rounded_up(time), Ordering::Relaxed);
    }

    /// The total time spent in servers' queues.
    #[must_use]
    pub fn queue_wait(&self) -> Duration {
        Duration::from_micros(self.queue_wait_us.load(Ordering::Relaxed))
    }

    /// The durations exchanged with the node it came from and the nodes it went to.
    #[must_use]
    pub fn remote_times(&self) -> &RemoteTimes {
        &self.remote_times
    }

    /// Sends a message that belongs to this request.
    pub fn send(&self, frame: Bytes, class: Delivery) {
        if class == Delivery::Lossy && self.is_cancelled() {
            return;
        }
        self.tap_sent(&frame);
        match &self.reply_path {
            ReplyPath::Line(sink) => send_line_as(sink, frame, class),
            ReplyPath::Stream { streams, lane, .. } => {
                self.prime();
                streams.push(*lane, frame, class);
                self.needs_stream.raise();
            }
            ReplyPath::Rounds(rounds) => {
                if rounds.send(frame, class) == Some(false) {
                    self.cancel();
                }
            }
            ReplyPath::Discard => {}
        }
    }

    /// Sends a message as soon as the client can receive it: a stateless client may have to return first.
    /// False when it does not return.
    pub async fn send_when_reachable(&self, frame: impl Fn() -> Bytes, class: Delivery) -> bool {
        let Some(rounds) = self.rounds() else {
            self.send(frame(), class);
            return true;
        };
        while rounds.wait_until_reachable().await {
            if let Some(sent) = rounds.send(frame(), class) {
                if !sent {
                    self.cancel();
                }
                return true;
            }
        }
        false
    }

    /// Sends a message that can wait, acknowledged with `receipt`; false when the queue is full.
    pub(crate) fn try_send_with_receipt(&self, frame: Vec<u8>, receipt: &Receipt) -> bool {
        if self.is_cancelled() {
            return true;
        }
        let copy = self.copy_for_tap(&frame);
        let sent = match &self.reply_path {
            ReplyPath::Line(sink) => try_send_line(sink, receipt.attach(frame)),
            ReplyPath::Stream { streams, lane, .. } => {
                self.prime();
                let sent = streams.try_push_with_receipt(*lane, frame, receipt);
                self.needs_stream.raise();
                sent
            }
            ReplyPath::Rounds(rounds) => rounds.try_send_with_receipt(frame, receipt),
            ReplyPath::Discard => true,
        };
        if let Some(copy) = copy.filter(|_| sent) {
            self.tap_sent(&copy);
        }
        sent
    }

    /// Sends a message of a request that stays open, unless the queue is full.
    ///
    /// # Errors
    /// [`SendError::Full`] to try again later; [`SendError::Closed`] when the connection is closed.
    pub(crate) fn try_send_on_round(&self, frame: Bytes) -> Result<(), SendError> {
        let rounds = self.rounds().filter(|_| !self.is_cancelled());
        let rounds = rounds.ok_or(SendError::Closed)?;
        let copy = self.copy_for_tap(&frame);
        rounds.try_send(frame)?;
        if let Some(copy) = copy {
            self.tap_sent(&copy);
        }
        Ok(())
    }

    /// Sends a message that can wait over any transport, unless the queue is full.
    ///
    /// # Errors
    /// [`SendError::Full`] when the queue is full; [`SendError::Closed`] when the reader is gone.
    pub fn try_send(&self, frame: Bytes) -> Result<(), SendError> {
        match &self.reply_path {
            _ if self.is_cancelled() => Err(SendError::Closed),
            ReplyPath::Line(sink) => sink.send_low_priority(frame),
            ReplyPath::Stream { streams, lane, .. } => {
                self.prime();
                self.needs_stream.raise();
                streams.try_push(*lane, frame)
            }
            ReplyPath::Rounds(rounds) => rounds.try_send(frame),
            ReplyPath::Discard => Err(SendError::Closed),
        }
    }

    /// The stream of the call's chunks, when it has one.
    #[must_use]
    pub fn stream(&self) -> Option<&CallStreamHandle> {
        self.stream.get()
    }

    /// The stream of the call's chunks, started by `start` when there is none.
    pub fn stream_or_start(
        &self,
        start: impl FnOnce() -> Option<CallStreamHandle>,
    ) -> Option<&CallStreamHandle> {
        if self.stream.get().is_none()
            && let Some(stream) = start()
            && let Err(second) = self.stream.set(stream)
        {
            second.stop();
        }
        self.stream.get()
    }

    /// The progress sent to a client without MGP streams.
    #[must_use]
    pub fn progress(&self) -> &ReportedProgress {
        &self.progress
    }

    /// `mgp/stream/cancel` of this request.
    #[must_use]
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The call and its stream have ended: answers a pending `mgp/stream/cancel`.
    pub(crate) fn end_stream(&self) {
        self.stop.mark_ended();
    }

    /// False when the client cancelled the request: then it gets no answer (CMCP-054). A stopped call is
    /// answered.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        !self.is_cancelled() || self.stop.is_requested()
    }

    /// The id that the client gave the request, which of a stateless client is that of the newest
    /// round; `None` for the kernel's own requests.
    #[must_use]
    pub fn request_id(&self) -> Option<RequestId> {
        match &self.reply_path {
            ReplyPath::Rounds(rounds) => Some(rounds.id()),
            ReplyPath::Line(_) | ReplyPath::Stream { .. } | ReplyPath::Discard => self.id.clone(),
        }
    }

    /// The rounds of a stateless client's call; `None` for other callers.
    #[must_use]
    pub fn rounds(&self) -> Option<&CallRounds> {
        match &self.reply_path {
            ReplyPath::Rounds(rounds) => Some(rounds),
            ReplyPath::Line(_) | ReplyPath::Stream { .. } | ReplyPath::Discard => None,
        }
    }

    /// The progress token of the client's current request, if any; `first` is the token of its first
    /// request.
    #[must_use]
    pub fn progress_token(&self, first: Box<str>) -> Option<Box<str>> {
        match &self.reply_path {
            ReplyPath::Rounds(rounds) => rounds.token(),
            ReplyPath::Line(_) | ReplyPath::Stream { .. } | ReplyPath::Discard => Some(first),
        }
    }

    /// Sends the empty event, unless it was sent.
    pub fn prime(&self) {
        if let ReplyPath::Stream {
            streams,
            lane,
            primed: true,
        } = &self.reply_path
        {
            self.primer
                .call_once(|| streams.push(*lane, Bytes::new(), Delivery::Reliable));
        }
    }

    /// Resolves when there is a message that needs a stream.
    pub async fn wait_until_stream_needed(&self) {
        self.needs_stream.wait_until_raised().await;
    }

    /// True when a message was sent that needs a stream.
    #[must_use]
    pub fn has_needed_stream(&self) -> bool {
        self.needs_stream.is_raised()
    }

    /// The server closed its stream and expects the client to reconnect later (SEP-1699).
    pub fn pause(&self) {
        self.is_paused.raise();
        self.needs_stream.raise();
    }

    /// Resolves after [`Self::pause`].
    pub async fn wait_until_paused(&self) {
        self.is_paused.wait_until_raised().await;
    }

    /// The call may be silent without limit, because its task is polled.
    pub fn disable_timeout(&self) {
        self.has_no_timeout.raise();
    }

    /// True after [`Self::disable_timeout`].
    #[must_use]
    pub fn has_no_timeout(&self) -> bool {
        self.has_no_timeout.is_raised()
    }

    /// Sets the task that the request concerns: the server's own id of it, and the client's.
    pub fn set_task(&self, server_task: &str, id: &str) {
        let _ = self.task.set((server_task.into(), id.into()));
    }

    /// The ids set with [`Self::set_task`].
    #[must_use]
    pub fn task(&self) -> Option<(&str, &str)> {
        self.task
            .get()
            .map(|(server_task, id)| (&**server_task, &**id))
    }

    /// Cancels a call that cannot continue because the client lacks these capabilities.
    pub fn cancel_for_capabilities(&self, capabilities: Box<RawValue>) {
        let _ = self.missing_capabilities.set(capabilities);
        self.cancel();
    }

    /// The capabilities that the client lacks.
    #[must_use]
    pub fn missing_capabilities(&self) -> Option<&RawValue> {
        self.missing_capabilities.get().map(|missing| &**missing)
    }

    /// Marks the request as answered.
    pub fn finish(&self) {
        self.ended.raise();
    }

    /// Resolves when the request has its answer.
    pub async fn wait_until_ended(&self) {
        self.ended.wait_until_raised().await;
    }

    /// Cancels the request: no more messages are sent for it.
    pub fn cancel(&self) {
        self.lock_state().cancel();
        self.cancelled.raise();
    }

    /// Cancels the request, with the client's reason.
    pub fn cancel_with_reason(&self, reason: Option<String>) {
        if let Some(reason) = reason {
            let _ = self.cancel_reason.set(reason);
        }
        self.cancel();
    }

    /// The client's reason for cancelling, if it gave one.
    #[must_use]
    pub fn cancel_reason(&self) -> Option<&str> {
        self.cancel_reason.get().map(String::as_str)
    }

    /// Marks the call as waiting for its client, until the returned value is dropped.
    pub fn suspend(&self) -> Suspension<'_> {
        self.lock_state().suspend();
        Suspension(self)
    }

    /// True while a callback to its client has no answer.
    #[must_use]
    pub fn has_open_callback(&self) -> bool {
        self.lock_state().has_question()
    }

    /// Records that the caller may know of the called tool or resource.
    pub fn admit(&self) {
        self.lock_state().admit();
    }

    /// True if the caller may know of the called tool or resource.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.lock_state().is_admitted()
    }

    /// Records that the checks of the call have passed.
    pub fn pass_checks(&self) {
        self.lock_state().pass_checks();
    }

    /// Starts an attempt. `continues`: it resumes a call whose first part had reached its server.
    pub fn start_attempt(&self, continues: bool) {
        self.lock_state().start_attempt(continues);
    }

    /// Marks a request of the call as about to be written to a server.
    ///
    /// # Errors
    /// [`Refusal::Cancelled`] when the call was cancelled; then nothing may be written.
    pub fn dispatch(&self) -> Result<(), Refusal> {
        let may_go = self.lock_state().dispatch();
        may_go.then_some(()).ok_or(Refusal::Cancelled)
    }

    /// Records the end of the request that was written last.
    pub fn end_request(&self, outcome: CallOutcome) {
        self.lock_state().end_request(outcome);
    }

    /// True if a server may have read a request of this attempt.
    #[must_use]
    pub fn has_reached_in_attempt(&self) -> bool {
        self.lock_state().has_reached_in_attempt()
    }

    /// True if a server may have read any request of the call.
    #[must_use]
    pub fn has_reached(&self) -> bool {
        self.lock_state().has_reached()
    }

    /// The outcome of a call that ended with this refusal: whether it took effect.
    #[must_use]
    pub fn outcome_after(&self, refusal: &Refusal) -> CallOutcome {
        self.lock_state().outcome_after(refusal)
    }

    /// Starts another call for the same request, with a state of its own, until the returned value is
    /// dropped.
    pub fn start_nested(&self) -> NestedCall<'_> {
        let outer = self.lock_state().start_nested();
        NestedCall { call: self, outer }
    }

    fn lock_state(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a fallback tool has taken over: there is no second fallback.
    #[must_use]
    pub fn has_fallen_back(&self) -> bool {
        self.lock_state().is_nested()
    }

    /// True once the agent cancelled it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_raised()
    }

    /// Resolves when the agent cancels the request.
    pub async fn wait_until_cancelled(&self) {
        self.cancelled.wait_until_raised().await;
    }
}

/// A callback of the server to the client without an answer.
#[derive(Debug)]
pub struct Suspension<'a>(&'a InFlightCall);

impl Drop for Suspension<'_> {
    fn drop(&mut self) {
        self.0.lock_state().resume();
    }
}

/// A call made on behalf of another call's request.
#[derive(Debug)]
pub struct NestedCall<'a> {
    call: &'a InFlightCall,
    outer: CallState,
}

impl Drop for NestedCall<'_> {
    fn drop(&mut self) {
        self.call.lock_state().end_nested(&self.outer);
    }
}
