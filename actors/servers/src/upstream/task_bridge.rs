//! Bridges tasks of the extension to clients of 2025-11-25, which request a task and fetch its result with one
//! blocking request.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mgp_engine::callers::tasks::{TaskStatus, to_legacy};
use mgp_json::{lookalike, member, quote, unquote};
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::jsonrpc::{ErrorObject, INTERNAL_ERROR};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::versions;
use serde_json::value::RawValue;

use super::tasks::add_related_task;
use super::to_stateless::{self, ask_client};
use super::{HeaderParams, Outgoing, send_translated, translate_refusal};
use crate::link::{FinalCheck, Link};
use mgp_callers::request::server_input_required::InputRequired;
use mgp_callers::request::{Outcome, Request};

/// Limits of the poll interval of a task whose result a client waits for; the server suggests the interval, or
/// it is one second.
const POLL_INTERVAL_BOUNDS: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_secs(5));

const POLL_INTERVAL_DEFAULT: Duration = Duration::from_secs(1);

/// How long a cancellation waits for the task to end, because 2025-11-25 expects a final state.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// The most callbacks of one task that one wait sends to its client, so that endless callbacks end.
const MAX_CALLBACKS: usize = 1024;

/// A task of a stateless server, with the client's id and the server's.
pub(super) struct BridgedTask<'a> {
    pub(super) request: &'a Request,
    pub(super) link: &'a Arc<Link>,
    /// Checked again before each request to the server.
    pub(super) final_check: &'a dyn FinalCheck,
    pub(super) server_task_id: &'a str,
    pub(super) client_task_id: &'a str,
}

/// `tasks/get` of 2025-11-25.
pub(super) async fn get_task(task: &BridgedTask<'_>) -> Outcome {
    task.to_legacy_task(&fetch_task(task).await?)
}

/// The task as its server describes it.
async fn fetch_task(task: &BridgedTask<'_>) -> Result<String, Refusal> {
    let result = send_task_request(task, "tasks/get", None).await?;
    Ok(String::from_utf8_lossy(&result).into_owned())
}

/// Sends the server a request about the task.
async fn send_task_request(
    task: &BridgedTask<'_>,
    method: &str,
    more: Option<(&str, &str)>,
) -> Outcome {
    let mut params = format!(r#"{{"taskId":{}"#, quote(task.server_task_id));
    if let Some((name, json)) = more {
        params.push_str(&format!(",{}:{json}", quote(name)));
    }
    params.push('}');
    let params = to_stateless::to_stateless_params(task.request, task.link, &params, true);
    let outgoing = Outgoing {
        tool: None,
        final_check: Some(task.final_check),
        method,
        params: &params,
        may_hold_mgp: false,
        mcpl: None,
        edit: ("", ""),
        token: None,
        stream_options: None,
        header_params: HeaderParams::with_name(task.server_task_id),
    };
    let outcome = send_translated(
        task.request,
        task.link,
        outgoing,
        ProtocolFamily::Stateless,
        &params,
    )
    .await;
    outcome.map_err(|refusal| task.translate_refusal(refusal, method))
}

/// `tasks/result` of 2025-11-25: waits for the task to end, sends its callbacks to the client meanwhile, and
/// answers as the call would have.
pub(super) async fn wait_for_result(task: &BridgedTask<'_>) -> Outcome {
    task.request
        .call
        .set_task(task.server_task_id, task.client_task_id);
    let mut answered_keys = BTreeSet::new();
    loop {
        let task_json = fetch_task(task).await?;
        match task.status(&task_json)? {
            TaskStatus::Completed => return task.to_call_result(&task_json),
            TaskStatus::Failed => return Err(task.failure_refusal(&task_json)),
            TaskStatus::Cancelled => return Err(call_failure("the task was cancelled")),
            TaskStatus::InputRequired => {
                answer_callbacks(task, &task_json, &mut answered_keys).await?
            }
            TaskStatus::Working => {}
        }
        tokio::select! {
            () = tokio::time::sleep(poll_interval(&task_json)) => {}
            () = task.request.call.wait_until_cancelled() => return Err(Refusal::Cancelled),
        }
    }
}

/// Sends new callbacks to the client. A key identifies one callback for the whole task, and the server may still
/// list it after it was answered.
async fn answer_callbacks(
    task: &BridgedTask<'_>,
    task_json: &str,
    answered_keys: &mut BTreeSet<String>,
) -> Result<(), Refusal> {
    let Ok(mut needs) = lookalike::from_object::<InputRequired<'_>>(task_json) else {
        return Err(task.invalid_task_refusal("needs input, but lists no input requests"));
    };
    needs
        .input_requests
        .retain(|key, _| !answered_keys.contains(key));
    if needs.input_requests.is_empty() {
        return Ok(());
    }
    if answered_keys.len() >= MAX_CALLBACKS {
        return Err(task.invalid_task_refusal(&format!("asks more than {MAX_CALLBACKS} questions")));
    }
    let (responses, new_keys) = ask_client(task.request, task.link, &needs).await?;
    // A client that stopped waiting has not answered: the next waiting client gets the callback again.
    if task.request.call.is_cancelled() {
        return Err(Refusal::Cancelled);
    }
    let responses_member = Some(("inputResponses", &*responses));
    send_task_request(task, "tasks/update", responses_member).await?;
    answered_keys.extend(new_keys);
    Ok(())
}

/// `tasks/cancel` of 2025-11-25; the answer is the task's state afterwards.
pub(super) async fn cancel_task(task: &BridgedTask<'_>) -> Outcome {
    let before = task.status(&fetch_task(task).await?)?;
    if before.is_final() {
        return Err(Refusal::BadParams(format!(
            "the task is already {}",
            before.as_str()
        )));
    }
    send_task_request(task, "tasks/cancel", None).await?;
    let started = Instant::now();
    loop {
        let task_json = fetch_task(task).await?;
        if task.status(&task_json)?.is_final() || started.elapsed() >= CANCEL_TIMEOUT {
            return task.to_legacy_task(&task_json);
        }
        tokio::time::sleep(POLL_INTERVAL_BOUNDS.0).await;
    }
}

impl BridgedTask<'_> {
    fn status(&self, task_json: &str) -> Result<TaskStatus, Refusal> {
        let word = member(task_json, "status").and_then(unquote);
        let status = word.and_then(|word| TaskStatus::parse(&word));
        status.ok_or_else(|| self.invalid_task_refusal("shows a task without a status"))
    }

    /// The task in the format of 2025-11-25.
    fn to_legacy_task(&self, task_json: &str) -> Outcome {
        let task = to_legacy(task_json, self.client_task_id);
        let task =
            task.ok_or_else(|| self.invalid_task_refusal("shows a task without a status"))?;
        let version = self.request.caller.version;
        Ok(versions::to_legacy_result(&task, version)
            .into_owned()
            .into())
    }

    /// The result of the call, with the task's id in `_meta`.
    fn to_call_result(&self, task_json: &str) -> Outcome {
        let result = member(task_json, "result").filter(|json| json.starts_with('{'));
        let result = result
            .ok_or_else(|| self.invalid_task_refusal("shows a completed task without a result"))?;
        let result = versions::to_legacy_result(result, self.request.caller.version);
        Ok(add_related_task(&result, self.client_task_id).into())
    }

    fn failure_refusal(&self, task_json: &str) -> Refusal {
        let error = member(task_json, "error").map(|json| RawValue::from_string(json.to_owned()));
        match error {
            Some(Ok(error)) => self.translate_refusal(Refusal::Peer(error), "tools/call"),
            Some(Err(_)) | None => call_failure("the task failed"),
        }
    }

    /// The server's error, converted for the client.
    fn translate_refusal(&self, refusal: Refusal, method: &str) -> Refusal {
        translate_refusal(refusal, self.request.caller.version, method)
    }

    fn invalid_task_refusal(&self, why: &str) -> Refusal {
        Refusal::Internal(format!("server {} {why}", self.link.server))
    }
}

fn poll_interval(task_json: &str) -> Duration {
    let interval = member(task_json, "pollIntervalMs").and_then(|json| json.parse().ok());
    interval
        .map_or(POLL_INTERVAL_DEFAULT, Duration::from_millis)
        .clamp(POLL_INTERVAL_BOUNDS.0, POLL_INTERVAL_BOUNDS.1)
}

fn call_failure(message: &str) -> Refusal {
    let error = ErrorObject::new(INTERNAL_ERROR, message);
    let error = serde_json::value::to_raw_value(&error).expect("an error object is always JSON");
    Refusal::Peer(error)
}
