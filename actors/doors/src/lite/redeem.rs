//! `redeem` (§3.6): returns the state of a promised call. Waits for the end as long as its caller does;
//! with `action: "cancel"` it cancels the call (A-36), and with answers the call continues.

use std::sync::Arc;
use std::time::Duration;

use mgp_callers::request::Outcome;
use mgp_callers::{ForwardedHeaders, TaskWait};
use mgp_engine::callers::tasks::Maker;
use mgp_json::{member, members, quote};
use mgp_protocol::lite::ResponseType;
use mgp_protocol::lite::elicitation::LiteElicitation;
use mgp_protocol::lite::error::{LiteError, LiteErrorKind};
use mgp_protocol::refusal::Refusal;
use mgp_runtime::task;
use tokio::time::Instant;

use super::call::{
    LiteArrival, LiteCall, LiteOutcome, LiteWait, answer_with_meta, elicitation_answer,
    json_string, promise_answer,
};
use super::promise::PromiseRecord;
use super::request::LiteRequest;
use super::{Lite, LiteCaller, continuation};

/// The default wait if promises are never given by default.
const DEFAULT_WAIT: Duration = Duration::from_secs(25);
/// The bounds of the poll interval for a server's task, whatever the server requests.
const POLL_MS: (u64, u64) = (100, 5_000);
/// The default poll interval.
const POLL_DEFAULT_MS: u64 = 1_000;
/// The most times a call may become another task in one request: servers do it once.
const HOPS_MAX: usize = 8;

/// A task of a server whose caller has no promise of it yet: cancelled with the call.
struct UnreadTask {
    lite: Arc<Lite>,
    caller: LiteCaller,
    task: Option<String>,
}

impl Drop for UnreadTask {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            let (lite, caller) = (self.lite.clone(), self.caller.clone());
            task::spawn_detached("lite.cancel", async move {
                let params = format!(r#"{{"taskId":{}}}"#, quote(&task));
                // A disconnected caller gets no answer.
                drop(lite.request(&caller, "tasks/cancel", &params, None).await);
            });
        }
    }
}

/// A promise that its caller may redeem.
pub(super) struct Redemption<'a> {
    caller: &'a LiteCaller,
    request: &'a LiteRequest,
    token: String,
    record: PromiseRecord,
    arrived: LiteArrival,
    forwarded: Option<&'a ForwardedHeaders>,
}

impl Lite {
    pub(super) async fn redeem(
        &self,
        caller: &LiteCaller,
        request: &LiteRequest,
        call: &LiteCall,
        arrived: LiteArrival,
    ) -> LiteOutcome {
        let arguments = members(&request.arguments).unwrap_or_default();
        let text = |name: &str| {
            let given = arguments.iter().find(|(n, _)| n == name)?;
            Some(json_string(given.1.get()).ok_or(given.0.clone().into_owned()))
        };
        let token = match text("promise") {
            Some(Ok(token)) => token,
            Some(Err(_)) | None => {
                return Err(invalid_params(
                    "`promise` must be a string, the token of a promise",
                ));
            }
        };
        let cancels = match text("action") {
            None => false,
            Some(Ok(action)) if action == "cancel" => true,
            Some(_) => return Err(invalid_params("`action` can only be \"cancel\"")),
        };
        let redeeming = self.open_redemption(caller, request, call, arrived, &token);
        let mut redeeming = redeeming.ok_or_else(LiteError::unknown_promise)?;
        if cancels {
            return self.cancel_task(&mut redeeming).await;
        }
        let extra = arguments.iter().any(|(name, _)| name != "promise");
        self.wait_for_promise(&mut redeeming, call, extra).await
    }

    /// Opens the promise in a continuation, if it contains one; the request answers its callback. A promise
    /// of another tool's call is an error.
    pub(super) fn find_redemption<'a>(
        &self,
        caller: &'a LiteCaller,
        request: &'a LiteRequest,
        call: &'a LiteCall,
        arrived: LiteArrival,
    ) -> Option<Result<Redemption<'a>, LiteError>> {
        let (token, _) = continuation::split(request.continuation.as_deref()?);
        let redeeming = self.open_redemption(caller, request, call, arrived, token)?;
        Some(if redeeming.record.tool == request.name {
            Ok(redeeming)
        } else {
            Err(continuation::wrong_tool_error())
        })
    }

    fn open_redemption<'a>(
        &self,
        caller: &'a LiteCaller,
        request: &'a LiteRequest,
        call: &'a LiteCall,
        arrived: LiteArrival,
        token: &str,
    ) -> Option<Redemption<'a>> {
        let record = PromiseRecord::open(&self.stateless.seal, &caller.principal(), token)?;
        Some(Redemption {
            caller,
            request,
            token: token.to_owned(),
            record,
            arrived,
            forwarded: call.forwarded.as_ref(),
        })
    }

    /// Returns the state of the promised call, after passing on this request's answers; `extra`: the
    /// request has arguments that may be answers.
    pub(super) async fn wait_for_promise(
        &self,
        redeeming: &mut Redemption<'_>,
        call: &LiteCall,
        extra: bool,
    ) -> LiteOutcome {
        let request = redeeming.request;
        let answers = extra || request.continuation.is_some() || request.elicitation.is_some();
        let answered = if answers {
            self.pass_answers(redeeming).await?
        } else {
            None
        };
        self.wait_while_running(redeeming, self.deadline(call), answered.as_deref())
            .await
    }

    /// Waits for the end of a call that its server made a task, like for any other call: after the wait its
    /// caller gets a promise; a caller that refuses promises gets an error, and the task is cancelled.
    pub(super) async fn follow_task(
        self: &Arc<Self>,
        (caller, request, call): (&LiteCaller, &LiteRequest, &LiteCall),
        arrived: LiteArrival,
        task: &str,
    ) -> LiteOutcome {
        let (record, token) = self.promise_record(caller, task, &request.name);
        let mut redeeming = Redemption {
            caller,
            request,
            token,
            record,
            arrived,
            forwarded: call.forwarded.as_ref(),
        };
        let mut unread = UnreadTask {
            lite: self.clone(),
            caller: caller.clone(),
            task: Some(redeeming.record.task.clone()),
        };
        let until = match self.task_wait(call) {
            TaskWait::For(wait) => Some(Instant::now() + wait),
            TaskWait::Forever => call.deadline,
        };
        let outcome = self.wait_while_running(&mut redeeming, until, None).await?;
        if outcome.response_type == ResponseType::Promise && call.wait == LiteWait::Forever {
            // Dropping an unread task cancels it.
            return Err(LiteError::deadline_exceeded(arrived.elapsed_ms()));
        }
        unread.task = None;
        Ok(outcome)
    }

    /// The time until which the end is awaited.
    fn deadline(&self, call: &LiteCall) -> Option<Instant> {
        let own = match call.wait {
            LiteWait::Default => self.settings.promise_after.unwrap_or(DEFAULT_WAIT),
            LiteWait::After(wait) => wait,
            LiteWait::Forever => return call.deadline,
        };
        let own = Instant::now() + own;
        let early = call
            .deadline
            .map(|at| at.checked_sub(Duration::from_millis(50)).unwrap_or(at));
        Some(early.map_or(own, |early| early.min(own)))
    }

    async fn request_task(
        &self,
        redeeming: &Redemption<'_>,
        method: &'static str,
        members: &str,
    ) -> Outcome {
        let task = quote(&redeeming.record.task);
        let params = format!(r#"{{"taskId":{task}{members}}}"#);
        self.request(redeeming.caller, method, &params, redeeming.forwarded)
            .await
    }

    /// The state of the task, as JSON text. A call that was promised before its server made a task of it
    /// continues as that task, under the same promise.
    async fn get_task(&self, redeeming: &mut Redemption<'_>) -> Result<String, LiteError> {
        let mut hops = 0;
        loop {
            let got = self.request_task(redeeming, "tasks/get", "").await;
            let got = got.map_err(|refusal| unknown_promise(&refusal))?;
            let got = String::from_utf8_lossy(&got).into_owned();
            let result = member(&got, "result").unwrap_or("{}");
            let becomes = (member(result, "resultType") == Some(r#""task""#))
                .then(|| member(result, "taskId").and_then(json_string))
                .flatten();
            match becomes {
                Some(task) if hops < HOPS_MAX => redeeming.record.task = task,
                Some(_) | None => return Ok(got),
            }
            hops += 1;
        }
    }

    async fn cancel_task(&self, redeeming: &mut Redemption<'_>) -> LiteOutcome {
        self.get_task(redeeming).await?;
        let mut got = String::new();
        for _ in 0..HOPS_MAX {
            let task = redeeming.record.task.clone();
            let cancelled = self.request_task(redeeming, "tasks/cancel", "").await;
            cancelled.map_err(|refusal| unknown_promise(&refusal))?;
            got = self.get_task(redeeming).await?;
            // If its server made a task of it meanwhile, that task is to be cancelled.
            if redeeming.record.task == task {
                break;
            }
        }
        let message = match member(&got, "status") {
            Some(r#""completed""# | r#""failed""#) => return self.render_task(redeeming, &got),
            Some(r#""cancelled""#) => "The call was cancelled",
            Some(_) | None => "The call is being cancelled",
        };
        let text = format!(r#"{{"content":[{{"type":"text","text":"{message}"}}]}}"#);
        Ok(answer_with_meta(
            redeeming.arrived,
            ResponseType::Answer,
            &text,
            &[],
        ))
    }

    /// Passes on this request's answer; returns the name of the callback.
    async fn pass_answers(
        &self,
        redeeming: &mut Redemption<'_>,
    ) -> Result<Option<String>, LiteError> {
        let got = self.get_task(redeeming).await?;
        let input_requests = member(&got, "inputRequests").unwrap_or("{}");
        let request = redeeming.request;
        let (_, key) = request
            .continuation
            .as_deref()
            .map_or(("", None), continuation::split);
        let Some(question) = LiteElicitation::find(input_requests, key) else {
            return Ok(None);
        };
        let answers = question.render_response(&request.arguments, request.elicitation.as_deref());
        let Some(answers) = answers else {
            return Ok(None);
        };
        let members = format!(r#","inputResponses":{answers}"#);
        let updated = self.request_task(redeeming, "tasks/update", &members).await;
        updated.map_err(|refusal| unknown_promise(&refusal))?;
        Ok(Some(question.key))
    }

    /// Waits while the call is in flight; `answered` is a callback whose answer its server may not have
    /// read.
    async fn wait_while_running(
        &self,
        redeeming: &mut Redemption<'_>,
        until: Option<Instant>,
        answered: Option<&str>,
    ) -> LiteOutcome {
        loop {
            let got = self.get_task(redeeming).await?;
            let waits = match member(&got, "status") {
                Some(r#""working""#) => true,
                Some(r#""input_required""#) => {
                    let input_requests = member(&got, "inputRequests").unwrap_or("{}");
                    let first =
                        LiteElicitation::find(input_requests, None).map(|question| question.key);
                    first.is_none() || first.as_deref() == answered
                }
                Some(_) | None => false,
            };
            let late = until.is_some_and(|until| Instant::now() >= until);
            if !waits || late {
                return self.render_task(redeeming, &got);
            }
            let changed = self.wait_for_change(redeeming, &got);
            match until {
                Some(until) => {
                    let _ = tokio::time::timeout_at(until, changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// Resolves when the task may have changed.
    async fn wait_for_change(&self, redeeming: &Redemption<'_>, got: &str) {
        let tasks = &self.stateless.tasks;
        let named = tasks.find_for(&redeeming.caller.principal(), &redeeming.record.task);
        if let Some(Maker::Kernel { boot, number }) = named.map(|named| named.task.maker)
            && member(got, "status") == Some(r#""working""#)
        {
            tasks.wait_until_settled((boot, number)).await;
            return;
        }
        let poll_ms = member(got, "pollIntervalMs").and_then(|ms| ms.parse().ok());
        let ms = poll_ms
            .unwrap_or(POLL_DEFAULT_MS)
            .clamp(POLL_MS.0, POLL_MS.1);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// Renders a task as an answer: the call's own result or error, the promise again, or a callback.
    fn render_task(&self, redeeming: &Redemption<'_>, got: &str) -> LiteOutcome {
        let Redemption {
            caller,
            token,
            record,
            arrived,
            ..
        } = redeeming;
        let status = member(got, "status")
            .and_then(json_string)
            .unwrap_or_default();
        match &*status {
            "completed" => {
                let result = member(got, "result").unwrap_or("{}");
                self.render_answer(caller, *arrived, result.as_bytes(), &record.tool)
            }
            "failed" => Err(LiteError::parse(member(got, "error").unwrap_or("{}"))),
            "cancelled" => {
                let text = r#"{"content":[{"type":"text","text":"The call was cancelled"}],"isError":true}"#;
                Ok(answer_with_meta(*arrived, ResponseType::Failure, text, &[]))
            }
            "input_required" => {
                let input_requests = member(got, "inputRequests").unwrap_or("{}");
                elicitation_answer(*arrived, input_requests, token, Some(token))
            }
            _ => Ok(promise_answer(*arrived, record, token.clone())),
        }
    }
}

fn invalid_params(message: &str) -> LiteError {
    LiteError::new(LiteErrorKind::InvalidParams, message)
}

/// The error for a promise that is not known, in place of the error for an unknown task.
fn unknown_promise(refusal: &Refusal) -> LiteError {
    use mgp_protocol::lite::error::LiteRefusal;
    match LiteRefusal::from_refusal(refusal) {
        LiteRefusal::Error(error) if error.kind != LiteErrorKind::InvalidParams => error,
        LiteRefusal::Error(_) | LiteRefusal::Failure(_) => LiteError::unknown_promise(),
    }
}
