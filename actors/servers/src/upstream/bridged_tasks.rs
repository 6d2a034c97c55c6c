//! Tasks of the extension for clients of 2025-11-25, which ask for a task and fetch its result with one
//! request that waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mgp_engine::callers::tasks::{TaskStatus, to_legacy};
use mgp_protocol::dialect::Era;
use mgp_protocol::jsonrpc::{ErrorObject, INTERNAL_ERROR};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{member, quoted};
use mgp_protocol::{era, lookalike};
use serde_json::value::RawValue;

use super::tasks::with_related;
use super::to_modern::{self, ask};
use super::{Mirrored, Outgoing, in_words_of, translated};
use crate::link::{FinalCheck, Link};
use mgp_callers::request::input_required::Needs;
use mgp_callers::request::{Outcome, Request};

/// Bounds of the time between two polls of a task whose result a client waits for; the server names the
/// time, or it is one second.
const POLL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

const UNSAID: Duration = Duration::from_secs(1);

/// How long a request to cancel waits for the task to end, because 2025-11-25 wants to see it ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// Questions of one task that one wait puts to its client, so that endless questions end.
const MAX_ASKED: usize = 1024;

/// A task of a modern server: the client's name for it and the server's.
pub(super) struct Bridged<'a> {
    pub(super) request: &'a Request,
    pub(super) link: &'a Arc<Link>,
    /// Asked again before each thing that is said to the server.
    pub(super) final_check: &'a dyn FinalCheck,
    pub(super) own: &'a str,
    pub(super) id: &'a str,
}

/// `tasks/get` of 2025-11-25.
pub(super) async fn get(task: &Bridged<'_>) -> Outcome {
    task.shown(&seen(task).await?)
}

/// The task as its server describes it.
async fn seen(task: &Bridged<'_>) -> Result<String, Refusal> {
    let result = say(task, "tasks/get", None).await?;
    Ok(String::from_utf8_lossy(&result).into_owned())
}

/// Sends the server a request about the task.
async fn say(task: &Bridged<'_>, method: &str, more: Option<(&str, &str)>) -> Outcome {
    let mut params = format!(r#"{{"taskId":{}"#, quoted(task.own));
    if let Some((name, json)) = more {
        params.push_str(&format!(",{}:{json}", quoted(name)));
    }
    params.push('}');
    let params = to_modern::stamped(task.request, task.link, &params, true);
    let outgoing = Outgoing {
        tool: None,
        final_check: Some(task.final_check),
        method,
        params: &params,
        of_mgp: false,
        mcpl: None,
        edit: ("", ""),
        token: None,
        wish: None,
        mirrored: Mirrored::named(task.own),
    };
    let outcome = translated(task.request, task.link, outgoing, Era::Modern, &params).await;
    outcome.map_err(|refusal| task.refused(refusal, method))
}

/// `tasks/result` of 2025-11-25: waits for the task to end, puts its questions to the client meanwhile,
/// and answers as the call would have.
pub(super) async fn result(task: &Bridged<'_>) -> Outcome {
    task.request.exchange.is_about(task.own, task.id);
    let mut asked = BTreeSet::new();
    loop {
        let seen = seen(task).await?;
        match task.status(&seen)? {
            TaskStatus::Completed => return task.result(&seen),
            TaskStatus::Failed => return Err(task.failure(&seen)),
            TaskStatus::Cancelled => return Err(failed("the task was cancelled")),
            TaskStatus::InputRequired => answer(task, &seen, &mut asked).await?,
            TaskStatus::Working => {}
        }
        tokio::select! {
            () = tokio::time::sleep(interval(&seen)) => {}
            () = task.request.exchange.cancelled() => return Err(Refusal::Cancelled),
        }
    }
}

/// Puts new questions to the client. A key means one question for the whole life of the task, and the
/// server may still show it after it was answered.
async fn answer(
    task: &Bridged<'_>,
    seen: &str,
    asked: &mut BTreeSet<String>,
) -> Result<(), Refusal> {
    let Ok(mut needs) = lookalike::from_object::<Needs<'_>>(seen) else {
        return Err(task.broken("needs input and does not say which"));
    };
    needs.input_requests.retain(|key, _| !asked.contains(key));
    if needs.input_requests.is_empty() {
        return Ok(());
    }
    if asked.len() >= MAX_ASKED {
        return Err(task.broken(&format!("asks more than {MAX_ASKED} questions")));
    }
    let (responses, put) = ask(task.request, task.link, &needs).await?;
    // A client that stopped waiting has not answered: the next one that waits is asked again.
    if task.request.exchange.is_cancelled() {
        return Err(Refusal::Cancelled);
    }
    let said = Some(("inputResponses", &*responses));
    say(task, "tasks/update", said).await?;
    asked.extend(put);
    Ok(())
}

/// `tasks/cancel` of 2025-11-25; the answer shows the task as it stands then.
pub(super) async fn cancel(task: &Bridged<'_>) -> Outcome {
    let before = task.status(&seen(task).await?)?;
    if before.is_final() {
        return Err(Refusal::BadParams(format!(
            "the task is already {}",
            before.as_str()
        )));
    }
    say(task, "tasks/cancel", None).await?;
    let started = Instant::now();
    loop {
        let seen = seen(task).await?;
        if task.status(&seen)?.is_final() || started.elapsed() >= FAREWELL {
            return task.shown(&seen);
        }
        tokio::time::sleep(POLL.0).await;
    }
}

impl Bridged<'_> {
    fn status(&self, seen: &str) -> Result<TaskStatus, Refusal> {
        let word =
            member(seen, "status").and_then(|json| serde_json::from_str::<String>(json).ok());
        let status = word.and_then(|word| TaskStatus::parse(&word));
        status.ok_or_else(|| self.broken("shows a task without a status"))
    }

    /// The task in the words of 2025-11-25.
    fn shown(&self, seen: &str) -> Outcome {
        let task = to_legacy(seen, self.id);
        let task = task.ok_or_else(|| self.broken("shows a task without a status"))?;
        let version = self.request.caller.version;
        Ok(era::to_legacy_result(&task, version).into_owned().into())
    }

    /// What the call would have answered, with the name of the task beside it.
    fn result(&self, seen: &str) -> Outcome {
        let result = member(seen, "result").filter(|json| json.starts_with('{'));
        let result =
            result.ok_or_else(|| self.broken("shows a completed task without a result"))?;
        let result = era::to_legacy_result(result, self.request.caller.version);
        Ok(with_related(&result, self.id).into())
    }

    fn failure(&self, seen: &str) -> Refusal {
        let error = member(seen, "error").map(|json| RawValue::from_string(json.to_owned()));
        match error {
            Some(Ok(error)) => self.refused(Refusal::Peer(error), "tools/call"),
            Some(Err(_)) | None => failed("the task failed"),
        }
    }

    /// The server's error, as the client reads it.
    fn refused(&self, refusal: Refusal, method: &str) -> Refusal {
        in_words_of(refusal, self.request.caller.version, method)
    }

    fn broken(&self, why: &str) -> Refusal {
        Refusal::Broken(format!("server {} {why}", self.link.server))
    }
}

fn interval(seen: &str) -> Duration {
    let said = member(seen, "pollIntervalMs").and_then(|json| json.parse().ok());
    said.map_or(UNSAID, Duration::from_millis)
        .clamp(POLL.0, POLL.1)
}

fn failed(message: &str) -> Refusal {
    let error = ErrorObject::new(INTERNAL_ERROR, message);
    let error = serde_json::value::to_raw_value(&error).expect("an error object is always JSON");
    Refusal::Peer(error)
}
