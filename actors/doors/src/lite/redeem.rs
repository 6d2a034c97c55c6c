//! `redeem` (§3.6): how a promised call stands. It waits for the end as long as its caller does; with
//! `action: "cancel"` it takes the call back (A-36), and with answers the call goes on.

use std::sync::Arc;
use std::time::Duration;

use mgp_callers::exchange::forwarded::ForwardedHeaders;
use mgp_callers::exchange::rounds::TaskWait;
use mgp_callers::request::Outcome;
use mgp_engine::callers::tasks::Maker;
use mgp_protocol::lite::ResponseType;
use mgp_protocol::lite::error::{LiteError, LiteErrorKind};
use mgp_protocol::lite::question::LiteQuestion;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{member, members, quoted};
use mgp_runtime::task;
use tokio::time::Instant;

use super::call::{
    LiteArrival, LiteCall, LiteOutcome, LiteWait, promise, question, string, written,
};
use super::promise::PromiseRecord;
use super::request::LiteRequest;
use super::{Lite, LiteCaller, continuation};

/// How long it waits where no promise is ever given by itself.
const PATIENCE: Duration = Duration::from_secs(25);
/// How often a task of a server is asked about, whatever the server says.
const POLL_MS: (u64, u64) = (100, 5_000);
/// How often where it says nothing.
const POLL_DEFAULT_MS: u64 = 1_000;
/// How often a call may become another task in one request: once is what servers do.
const HOPS_MAX: usize = 8;

/// A task of a server whose caller has no promise of it yet: it is cancelled with the call.
struct UnreadTask {
    lite: Arc<Lite>,
    who: LiteCaller,
    task: Option<String>,
}

impl Drop for UnreadTask {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            let (lite, who) = (self.lite.clone(), self.who.clone());
            task::detached("lite.cancel", async move {
                let params = format!(r#"{{"taskId":{}}}"#, quoted(&task));
                // Who is gone is told nothing.
                drop(lite.ask(&who, "tasks/cancel", &params, None).await);
            });
        }
    }
}

/// A promise that its caller may redeem.
pub(super) struct Redeeming<'a> {
    who: &'a LiteCaller,
    request: &'a LiteRequest,
    token: String,
    record: PromiseRecord,
    arrived: LiteArrival,
    forwarded: Option<&'a ForwardedHeaders>,
}

impl Lite {
    pub(super) async fn redeem(
        &self,
        who: &LiteCaller,
        request: &LiteRequest,
        call: &LiteCall,
        arrived: LiteArrival,
    ) -> LiteOutcome {
        let arguments = members(&request.arguments).unwrap_or_default();
        let text = |name: &str| {
            let given = arguments.iter().find(|(n, _)| n == name)?;
            Some(string(given.1.get()).ok_or(given.0.clone().into_owned()))
        };
        let token = match text("promise") {
            Some(Ok(token)) => token,
            Some(Err(_)) | None => {
                return Err(wrong("`promise` must be a string, the token of a promise"));
            }
        };
        let cancels = match text("action") {
            None => false,
            Some(Ok(action)) if action == "cancel" => true,
            Some(_) => return Err(wrong("`action` can only be \"cancel\"")),
        };
        let redeeming = self.redeeming(who, request, call, arrived, &token);
        let mut redeeming = redeeming.ok_or_else(LiteError::unknown_promise)?;
        if cancels {
            return self.cancel(&mut redeeming).await;
        }
        let extra = arguments.iter().any(|(name, _)| name != "promise");
        self.redeemed(&mut redeeming, call, extra).await
    }

    /// The promise that a continuation leads to, where it leads to one; the request answers what it asks. One of a call
    /// of another tool is an error.
    pub(super) fn continued<'a>(
        &self,
        who: &'a LiteCaller,
        request: &'a LiteRequest,
        call: &'a LiteCall,
        arrived: LiteArrival,
    ) -> Option<Result<Redeeming<'a>, LiteError>> {
        let (token, _) = continuation::parts(request.continuation.as_deref()?);
        let redeeming = self.redeeming(who, request, call, arrived, token)?;
        Some(match redeeming.record.tool == request.name {
            true => Ok(redeeming),
            false => Err(continuation::of_another_tool()),
        })
    }

    fn redeeming<'a>(
        &self,
        who: &'a LiteCaller,
        request: &'a LiteRequest,
        call: &'a LiteCall,
        arrived: LiteArrival,
        token: &str,
    ) -> Option<Redeeming<'a>> {
        let record = PromiseRecord::open(&self.stateless.seal, &who.principal(), token)?;
        Some(Redeeming {
            who,
            request,
            token: token.to_owned(),
            record,
            arrived,
            forwarded: call.forwarded.as_ref(),
        })
    }

    /// How the promised call stands, after what this request answers was passed on; `extra`: it has arguments that
    /// may answer.
    pub(super) async fn redeemed(
        &self,
        redeeming: &mut Redeeming<'_>,
        call: &LiteCall,
        extra: bool,
    ) -> LiteOutcome {
        let request = redeeming.request;
        let answers = extra || request.continuation.is_some() || request.elicitation.is_some();
        let answered = match answers {
            true => self.pass_answers(redeeming).await?,
            false => None,
        };
        self.stands(redeeming, self.until(call), answered.as_deref())
            .await
    }

    /// Waits for the end of a call that its server made a task of, as for one that it did not: its caller is given a
    /// promise when it has waited, and one that refuses promises an error, and the task is cancelled.
    pub(super) async fn followed(
        self: &Arc<Self>,
        (who, request, call): (&LiteCaller, &LiteRequest, &LiteCall),
        arrived: LiteArrival,
        task: &str,
    ) -> LiteOutcome {
        let (record, token) = self.record(who, task, &request.name);
        let mut redeeming = Redeeming {
            who,
            request,
            token,
            record,
            arrived,
            forwarded: call.forwarded.as_ref(),
        };
        let mut unread = UnreadTask {
            lite: self.clone(),
            who: who.clone(),
            task: Some(redeeming.record.task.clone()),
        };
        let until = match self.wait(call) {
            TaskWait::For(wait) => Some(Instant::now() + wait),
            TaskWait::Ever => call.deadline,
        };
        let outcome = self.stands(&mut redeeming, until, None).await?;
        if outcome.response_type == ResponseType::Promise && call.wait == LiteWait::Ever {
            // Dropping what nobody reads cancels it.
            return Err(LiteError::deadline(arrived.elapsed_ms()));
        }
        unread.task = None;
        Ok(outcome)
    }

    /// Until when the end is waited for.
    fn until(&self, call: &LiteCall) -> Option<Instant> {
        let own = match call.wait {
            LiteWait::Default => self.settings.promise_after.unwrap_or(PATIENCE),
            LiteWait::For(wait) => wait,
            LiteWait::Ever => return call.deadline,
        };
        let own = Instant::now() + own;
        let early = call
            .deadline
            .map(|at| at.checked_sub(Duration::from_millis(50)).unwrap_or(at));
        Some(early.map_or(own, |early| early.min(own)))
    }

    async fn about(&self, redeeming: &Redeeming<'_>, method: &'static str, more: &str) -> Outcome {
        let task = quoted(&redeeming.record.task);
        let params = format!(r#"{{"taskId":{task}{more}}}"#);
        self.ask(redeeming.who, method, &params, redeeming.forwarded)
            .await
    }

    /// How the task stands, as JSON text. A call that was promised before its server made a task of it goes on as that
    /// one, under the same promise.
    async fn got(&self, redeeming: &mut Redeeming<'_>) -> Result<String, LiteError> {
        let mut hops = 0;
        loop {
            let got = self.about(redeeming, "tasks/get", "").await;
            let got = got.map_err(|refusal| unknown(&refusal))?;
            let got = String::from_utf8_lossy(&got).into_owned();
            let result = member(&got, "result").unwrap_or("{}");
            let becomes = (member(result, "resultType") == Some(r#""task""#))
                .then(|| member(result, "taskId").and_then(string))
                .flatten();
            match becomes {
                Some(task) if hops < HOPS_MAX => redeeming.record.task = task,
                Some(_) | None => return Ok(got),
            }
            hops += 1;
        }
    }

    async fn cancel(&self, redeeming: &mut Redeeming<'_>) -> LiteOutcome {
        self.got(redeeming).await?;
        let mut got = String::new();
        for _ in 0..HOPS_MAX {
            let task = redeeming.record.task.clone();
            let cancelled = self.about(redeeming, "tasks/cancel", "").await;
            cancelled.map_err(|refusal| unknown(&refusal))?;
            got = self.got(redeeming).await?;
            // If its server made a task of it meanwhile, that one is to be cancelled.
            if redeeming.record.task == task {
                break;
            }
        }
        let words = match member(&got, "status") {
            Some(r#""completed""# | r#""failed""#) => return self.shown(redeeming, &got),
            Some(r#""cancelled""#) => "The call was cancelled",
            Some(_) | None => "The call is being cancelled",
        };
        let text = format!(r#"{{"content":[{{"type":"text","text":"{words}"}}]}}"#);
        Ok(written(redeeming.arrived, ResponseType::Answer, &text, &[]))
    }

    /// Passes on what this request answers; gives the name of the question.
    async fn pass_answers(
        &self,
        redeeming: &mut Redeeming<'_>,
    ) -> Result<Option<String>, LiteError> {
        let got = self.got(redeeming).await?;
        let asked = member(&got, "inputRequests").unwrap_or("{}");
        let request = redeeming.request;
        let (_, key) = request
            .continuation
            .as_deref()
            .map_or(("", None), continuation::parts);
        let Some(question) = LiteQuestion::of(asked, key) else {
            return Ok(None);
        };
        let answers = question.answered(&request.arguments, request.elicitation.as_deref());
        let Some(answers) = answers else {
            return Ok(None);
        };
        let more = format!(r#","inputResponses":{answers}"#);
        let taken = self.about(redeeming, "tasks/update", &more).await;
        taken.map_err(|refusal| unknown(&refusal))?;
        Ok(Some(question.key))
    }

    /// Waits while the call is under way; `answered` is a question that its server may not have read the answer to.
    async fn stands(
        &self,
        redeeming: &mut Redeeming<'_>,
        until: Option<Instant>,
        answered: Option<&str>,
    ) -> LiteOutcome {
        loop {
            let got = self.got(redeeming).await?;
            let waits = match member(&got, "status") {
                Some(r#""working""#) => true,
                Some(r#""input_required""#) => {
                    let asked = member(&got, "inputRequests").unwrap_or("{}");
                    let first = LiteQuestion::of(asked, None).map(|question| question.key);
                    first.is_none() || first.as_deref() == answered
                }
                Some(_) | None => false,
            };
            let late = until.is_some_and(|until| Instant::now() >= until);
            if !waits || late {
                return self.shown(redeeming, &got);
            }
            let changed = self.changed(redeeming, &got);
            match until {
                Some(until) => {
                    let _ = tokio::time::timeout_at(until, changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// Resolves when it is worth while to ask again.
    async fn changed(&self, redeeming: &Redeeming<'_>, got: &str) {
        let tasks = &self.stateless.tasks;
        let named = tasks.find_of(&redeeming.who.principal(), &redeeming.record.task);
        if let Some(Maker::Kernel { boot, number }) = named.map(|named| named.task.maker)
            && member(got, "status") == Some(r#""working""#)
        {
            tasks.settled((boot, number)).await;
            return;
        }
        let said = member(got, "pollIntervalMs").and_then(|ms| ms.parse().ok());
        let ms = said.unwrap_or(POLL_DEFAULT_MS).clamp(POLL_MS.0, POLL_MS.1);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// A task as an answer: the call's own result or error, the promise again, or what is asked.
    fn shown(&self, redeeming: &Redeeming<'_>, got: &str) -> LiteOutcome {
        let Redeeming {
            who,
            token,
            record,
            arrived,
            ..
        } = redeeming;
        let status = member(got, "status").and_then(string).unwrap_or_default();
        match &*status {
            "completed" => {
                let result = member(got, "result").unwrap_or("{}");
                self.rendered(who, *arrived, result.as_bytes(), &record.tool)
            }
            "failed" => Err(LiteError::read(member(got, "error").unwrap_or("{}"))),
            "cancelled" => {
                let text = r#"{"content":[{"type":"text","text":"The call was cancelled"}],"isError":true}"#;
                Ok(written(*arrived, ResponseType::Failure, text, &[]))
            }
            "input_required" => {
                let asked = member(got, "inputRequests").unwrap_or("{}");
                question(*arrived, asked, token, Some(token))
            }
            _ => Ok(promise(*arrived, record, token.clone())),
        }
    }
}

fn wrong(words: &str) -> LiteError {
    LiteError::new(LiteErrorKind::InvalidParams, words)
}

/// Whoever does not know the task says it in words of its own; to the caller it is a promise that is not known.
fn unknown(refusal: &Refusal) -> LiteError {
    use mgp_protocol::lite::error::LiteRefusal;
    match LiteRefusal::of(refusal) {
        LiteRefusal::Error(error) if error.kind != LiteErrorKind::InvalidParams => error,
        LiteRefusal::Error(_) | LiteRefusal::Failure(_) => LiteError::unknown_promise(),
    }
}
