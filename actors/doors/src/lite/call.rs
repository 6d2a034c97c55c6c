//! One call of a lite caller: its request, its partial messages, and its answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use mgp_callers::request::{Outcome, identity};
use mgp_callers::{ForwardedHeaders, LongCall, STREAM_QUEUE, TaskWait};
use mgp_engine::callers::tasks::Maker;
use mgp_engine::timestamps::render_rfc3339_ms;
use mgp_json::{can_contain_string, member, quote};
use mgp_protocol::jsonrpc::{self, Message};
use mgp_protocol::lite::answer::{AnswerMeta, with_meta};
use mgp_protocol::lite::elicitation::LiteElicitation;
use mgp_protocol::lite::error::{LiteError, LiteErrorKind, LiteRefusal};
use mgp_protocol::lite::{REDEEM, ResponseType};
use mgp_protocol::mcp::Method as _;
use mgp_protocol::mgp::stream::{self, Chunk};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::time::unix_ms;
use mgp_runtime::trace::Trace;
use tokio::sync::mpsc;
use tokio::time::Instant;

pub(crate) use super::answer::{LiteAnswer, LiteOutcome};
use super::promise::PromiseRecord;
use super::request::LiteRequest;
use super::resumptions::{self, Resume};
use super::{Lite, LiteCaller, continuation};

/// The part of a caller's deadline reserved for delivering the promise: a tenth of the remaining time,
/// within these bounds.
const DEADLINE_MARGIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// A call as parsed by a binding.
#[derive(Debug)]
pub(crate) struct LiteCall {
    /// The caller, as authenticated by the endpoint.
    pub(crate) caller: LiteCaller,
    /// The params of a `tools/call`, as JSON text: `name`, `arguments`, `_meta`.
    pub(crate) params: ByteString,
    /// True if it reads partial messages.
    pub(crate) stream: bool,
    /// How long it waits for the answer before it takes a promise.
    pub(crate) wait: LiteWait,
    /// When the caller disconnects: the call is cancelled then, if there was no promise before.
    pub(crate) deadline: Option<Instant>,
    /// The trace.
    pub(crate) trace: Trace,
    /// Its headers that may be forwarded ([`Lite::forwarded_headers`]).
    pub(crate) forwarded: Option<ForwardedHeaders>,
}

/// When a call is answered with a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LiteWait {
    /// After the configured time, and in time before the deadline.
    Default,
    /// After this long, and in time before the deadline.
    After(Duration),
    /// Never: the caller refuses promises.
    Forever,
}

/// An event of a call.
#[derive(Debug)]
pub(crate) enum LiteEvent {
    /// A part of the result, a JSON value as text: a string for text, else the content block.
    Partial(Bytes),
    /// The final outcome.
    Done(LiteOutcome),
}

/// An in-flight call. Dropping it cancels it, unless it has become a promise.
pub(crate) struct RunningLiteCall {
    answer: Pin<Box<dyn Future<Output = LiteOutcome> + Send>>,
    messages: mpsc::Receiver<Bytes>,
    stream: bool,
    outcome: Option<LiteOutcome>,
}

impl std::fmt::Debug for RunningLiteCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningLiteCall").finish_non_exhaustive()
    }
}

impl RunningLiteCall {
    pub(super) fn start(lite: &Arc<Lite>, call: LiteCall) -> Self {
        let (outlet, messages) = mpsc::channel(STREAM_QUEUE);
        let (lite, stream) = (lite.clone(), call.stream);
        Self {
            answer: Box::pin(async move { lite.run_call(call, outlet).await }),
            messages,
            stream,
            outcome: None,
        }
    }

    /// The next event. Not to be called after [`LiteEvent::Done`]. Cancel-safe.
    pub(crate) async fn next(&mut self) -> LiteEvent {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polls for the next event.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<LiteEvent> {
        loop {
            // Messages go before the answer, also those that were queued while it was created.
            while let Poll::Ready(Some(message)) = self.messages.poll_recv(cx) {
                if let Some(partial) = self.to_partial(&message) {
                    return Poll::Ready(LiteEvent::Partial(partial));
                }
            }
            if let Some(outcome) = self.outcome.take() {
                return Poll::Ready(LiteEvent::Done(outcome));
            }
            let outcome = std::task::ready!(self.answer.as_mut().poll(cx));
            self.outcome = Some(outcome);
        }
    }

    /// Extracts the content of a chunk; other messages are not for lite callers.
    fn to_partial(&self, message: &Bytes) -> Option<Bytes> {
        if !self.stream {
            return None;
        }
        let Ok(Message::Notification {
            method,
            params: Some(params),
        }) = jsonrpc::parse(message)
        else {
            return None;
        };
        if method != Chunk::METHOD {
            return None;
        }
        let content = member(params.get(), "content")?;
        Some(match stream::chunk_text(content) {
            Some(text) => quote(&text).into(),
            None => content.to_owned().into(),
        })
    }
}

/// When a request arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiteArrival(Instant);

impl LiteArrival {
    pub(super) fn elapsed_ms(self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Lite {
    async fn run_call(
        self: &Arc<Self>,
        call: LiteCall,
        outlet: mpsc::Sender<Bytes>,
    ) -> LiteOutcome {
        let arrived = LiteArrival(Instant::now());
        let caller = call.caller.clone();
        let request = match LiteRequest::parse(&call.params, call.stream) {
            Ok(request) => request,
            Err(refusal) => return Box::pin(self.render_refusal(&caller, arrived, &refusal)).await,
        };
        if request.name == REDEEM {
            return Box::pin(self.redeem(&caller, &request, &call, arrived)).await;
        }
        if call.deadline.is_some_and(|at| Instant::now() >= at) {
            return Err(LiteError::deadline_exceeded(arrived.elapsed_ms()));
        }
        if let Some(promised) = self.find_redemption(&caller, &request, &call, arrived) {
            return Box::pin(self.wait_for_promise(&mut promised?, &call, true)).await;
        }
        let asking = (&caller, &request, &call);
        match self.find_resumption(&caller, &request) {
            None => self.make_call(asking, arrived, outlet).await,
            Some(Resume::New(resumed)) => {
                let outcome = self.make_call(asking, arrived, outlet).await;
                resumed.finish(&outcome);
                outcome
            }
            Some(Resume::Earlier(standing)) => {
                with_deadline(call.deadline, resumptions::wait_for_outcome(standing)).await?
            }
        }
    }

    /// Makes the call, or resumes the suspended one, and renders its outcome.
    async fn make_call(
        self: &Arc<Self>,
        asking: (&LiteCaller, &LiteRequest, &LiteCall),
        arrived: LiteArrival,
        outlet: mpsc::Sender<Bytes>,
    ) -> LiteOutcome {
        let (caller, request, call) = asking;
        match self.run_tool_call(caller, request, call, outlet).await? {
            // A task of the kernel was announced when its caller had waited.
            Ok(task) if self.is_server_task(caller, &task) => {
                let task = String::from_utf8_lossy(&task);
                Box::pin(self.follow_task(asking, arrived, &task)).await
            }
            Ok(result) => self.render_answer(caller, arrived, &result, &request.name),
            Err(refusal) => Box::pin(self.render_refusal(caller, arrived, &refusal)).await,
        }
    }

    /// True if the result announces a task that is not the kernel's.
    fn is_server_task(&self, caller: &LiteCaller, result: &[u8]) -> bool {
        if !can_contain_string(result, "taskId") {
            return false;
        }
        let Ok(text) = std::str::from_utf8(result) else {
            return false;
        };
        let id = (member(text, "resultType") == Some(r#""task""#))
            .then(|| member(text, "taskId").and_then(json_string))
            .flatten();
        let named = id.and_then(|id| self.stateless.tasks.find_for(&caller.principal(), &id));
        named.is_some_and(|named| !matches!(named.task.maker, Maker::Kernel { .. }))
    }

    /// Makes the call, or resumes the suspended one.
    async fn run_tool_call(
        &self,
        caller: &LiteCaller,
        request: &LiteRequest,
        call: &LiteCall,
        outlet: mpsc::Sender<Bytes>,
    ) -> Result<Outcome, LiteError> {
        let params = match &request.continuation {
            Some(continuation) => self.resume_params(caller, request, continuation)?,
            None => request.params.as_str().into(),
        };
        let how = (call.stream, call.trace.clone());
        let running = match self.open_request(caller, ("tools/call", &params), outlet, how) {
            Ok(running) => running,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let exchange = running.call();
        exchange.set_forwarded_headers(
            call.forwarded
                .as_ref()
                .map(ForwardedHeaders::for_next_request),
        );
        let wait = self.task_wait(call);
        let rounds = exchange.rounds().expect("a stateless call has them");
        rounds.set_task_wait(wait);
        let principal = identity(&caller.agent, false, &caller.view, &caller.groups);
        if let Some(tool) = self
            .stateless
            .routes
            .find_tool(&caller.view, &request.name, &principal)
        {
            // Also while the call waits for a person, before any server receives it.
            rounds.allow_promotion(LongCall {
                server: tool.server.clone(),
                tool: (*tool.own_name).into(),
                threshold: Duration::ZERO,
                ttl: self.settings.promise_ttl,
            });
        }
        with_deadline(call.deadline, running.into_answer()).await
    }

    /// How long the call may take before it becomes a promise.
    pub(super) fn task_wait(&self, call: &LiteCall) -> TaskWait {
        let own = match (call.wait, self.settings.promise_after) {
            (LiteWait::Default, Some(after)) | (LiteWait::After(after), _) => after,
            (LiteWait::Default, None) | (LiteWait::Forever, _) => return TaskWait::Forever,
        };
        let remaining = call.deadline.map(|deadline| {
            let remaining = deadline.saturating_duration_since(Instant::now());
            remaining.saturating_sub((remaining / 10).clamp(DEADLINE_MARGIN.0, DEADLINE_MARGIN.1))
        });
        TaskWait::For(remaining.map_or(own, |remaining| remaining.min(own)))
    }

    /// Renders the answer for this result: final, a promise, or a callback.
    pub(super) fn render_answer(
        &self,
        caller: &LiteCaller,
        arrived: LiteArrival,
        result: &[u8],
        tool: &str,
    ) -> LiteOutcome {
        let Ok(text) = std::str::from_utf8(result) else {
            let message = "the result is not UTF-8";
            return Err(LiteError::new(LiteErrorKind::Internal, message));
        };
        let kind = can_contain_string(result, "resultType")
            .then(|| member(text, "resultType"))
            .flatten();
        match kind {
            Some(r#""task""#) => Ok(self.promise_for(caller, arrived, text, tool)),
            Some(r#""input_required""#) => {
                let back = member(text, "requestState")
                    .and_then(json_string)
                    .unwrap_or_default();
                let input_requests = member(text, "inputRequests").unwrap_or("{}");
                elicitation_answer(arrived, input_requests, &back, None)
            }
            Some(_) | None => {
                let failed = can_contain_string(result, "isError")
                    && member(text, "isError") == Some("true");
                let kind = if failed {
                    ResponseType::Failure
                } else {
                    ResponseType::Answer
                };
                Ok(answer_with_meta(arrived, kind, text, &[]))
            }
        }
    }

    /// Renders the error of a refused call.
    pub(super) async fn render_refusal(
        &self,
        caller: &LiteCaller,
        arrived: LiteArrival,
        refusal: &Refusal,
    ) -> LiteOutcome {
        if let Refusal::UnknownTool(name) = refusal {
            return Err(self.unknown_tool_error(caller, name).await);
        }
        match LiteRefusal::from_refusal(refusal) {
            LiteRefusal::Error(error) => Err(error),
            LiteRefusal::Failure(result) => Ok(answer_with_meta(
                arrived,
                ResponseType::Failure,
                &result,
                &[],
            )),
        }
    }

    /// The promise for the call of a tool that became this task.
    fn promise_for(
        &self,
        caller: &LiteCaller,
        arrived: LiteArrival,
        task: &str,
        tool: &str,
    ) -> LiteAnswer {
        let (record, token) = self.promise_record(caller, task, tool);
        promise_answer(arrived, &record, token)
    }

    /// The record of the promise for this task, and its token.
    pub(super) fn promise_record(
        &self,
        caller: &LiteCaller,
        task: &str,
        tool: &str,
    ) -> (PromiseRecord, String) {
        let own = u64::try_from(self.settings.promise_ttl.as_millis()).unwrap_or(u64::MAX);
        let declared_ttl = member(task, "ttlMs").and_then(|ttl| ttl.parse().ok());
        let record = PromiseRecord {
            task: member(task, "taskId")
                .and_then(json_string)
                .unwrap_or_default(),
            tool: tool.to_owned(),
            expires_ms: unix_ms().saturating_add(
                declared_ttl.map_or(own, |declared_ttl: u64| declared_ttl.min(own)),
            ),
        };
        let token = record.seal(&self.stateless.seal, &caller.principal());
        (record, token)
    }
}

/// Waits for the outcome, unless the caller's deadline passes first; then the call is cancelled.
async fn with_deadline<T>(
    deadline: Option<Instant>,
    answering: impl Future<Output = T>,
) -> Result<T, LiteError> {
    let began = Instant::now();
    let Some(deadline) = deadline else {
        return Ok(answering.await);
    };
    match tokio::time::timeout_at(deadline, answering).await {
        Ok(outcome) => Ok(outcome),
        Err(_) => {
            let waited = began.elapsed().as_millis();
            Err(LiteError::deadline_exceeded(
                u64::try_from(waited).unwrap_or(u64::MAX),
            ))
        }
    }
}

/// The answer with a promise under this token.
pub(super) fn promise_answer(
    arrived: LiteArrival,
    record: &PromiseRecord,
    token: String,
) -> LiteAnswer {
    // The time is unknown: the duration of this request once more, and at least a second.
    let retry_at_ms = unix_ms().saturating_add(arrived.elapsed_ms().max(1000));
    let members = [
        ("promise_token", quote(&token)),
        (
            "estimated_completion",
            quote(&render_rfc3339_ms(retry_at_ms.min(record.expires_ms))),
        ),
        ("expires_at", quote(&render_rfc3339_ms(record.expires_ms))),
    ];
    LiteAnswer {
        promise: Some(token),
        ..answer_with_meta(arrived, ResponseType::Promise, "{}", &members)
    }
}

/// The answer with the first of these callbacks. `back` is the reference for resuming the call; a promise
/// is one itself.
pub(super) fn elicitation_answer(
    arrived: LiteArrival,
    input_requests: &str,
    back: &str,
    promise: Option<&str>,
) -> LiteOutcome {
    let Some(question) = LiteElicitation::find(input_requests, None) else {
        let message = "the tool sent a callback that MCP-lite does not support";
        return Err(LiteError::new(LiteErrorKind::Internal, message));
    };
    let continuation = continuation::join(back, &question.key);
    let mut members = vec![
        ("elicitation", question.to_json()),
        ("continuation", quote(&continuation)),
    ];
    members.extend(promise.map(|token| ("promise_token", quote(token))));
    let content = format!(
        r#"{{"content":[{{"type":"text","text":{}}}]}}"#,
        quote(&question.message)
    );
    Ok(LiteAnswer {
        promise: promise.map(str::to_owned),
        ..answer_with_meta(arrived, ResponseType::Elicitation, &content, &members)
    })
}

/// Renders an answer with its `_meta`.
pub(super) fn answer_with_meta(
    arrived: LiteArrival,
    response_type: ResponseType,
    result: &str,
    members: &[(&str, String)],
) -> LiteAnswer {
    let (timestamp_ms, processing_time_ms) = (unix_ms(), arrived.elapsed_ms());
    let meta = AnswerMeta {
        response_type,
        timestamp: &render_rfc3339_ms(timestamp_ms),
        processing_time_ms,
        server_version: env!("CARGO_PKG_VERSION"),
        extra: members,
    };
    LiteAnswer {
        response_type,
        result: with_meta(result, &meta).into(),
        promise: None,
        timestamp_ms,
        processing_time_ms,
    }
}

pub(super) fn json_string(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}
