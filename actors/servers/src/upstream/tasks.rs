//! Calls that become tasks, because the server requires it or the client requests it.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::tools::catalog::CatalogTool;
use mgp_json::{Splice, member, quote, remove_members};
use mgp_protocol::dialect::{ProtocolFamily, Version};
use mgp_protocol::mcp::meta::RELATED_TASK;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::versions;
use serde_json::value::RawValue;

use super::to_legacy::to_stateless_answer;
use super::{Outgoing, send_translated};
use crate::link::Link;
use mgp_callers::request::{Outcome, Request};
use mgp_callers::tasks::LongCall;
use mgp_runtime::task::spawn_detached;

/// The capability a client must declare to receive tasks.
pub const TASKS_CAPABILITY: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// Allows a tool call to become a task of the kernel, if the client supports tasks and the server creates none.
pub(super) fn allow_promotion(request: &Request, link: &Link, tool: Option<&CatalogTool>) {
    let (Some(attempts), Some(tool)) = (request.call.rounds(), tool) else {
        return;
    };
    let limits = &link.limits;
    if attempts.capabilities().tasks
        && !limits.task_after.is_zero()
        && !link.has_server_directed_tasks()
    {
        attempts.allow_promotion(LongCall {
            server: link.server.clone(),
            tool: (*tool.own_name).into(),
            threshold: limits.task_after,
            ttl: limits.task_ttl,
        });
    }
}

/// Checks that the client declares the tasks extension.
///
/// # Errors
/// [`Refusal::MissingCapability`].
pub fn check_tasks_declared(request: &Request) -> Result<(), Refusal> {
    if request.caller.capabilities.tasks {
        return Ok(());
    }
    let required = RawValue::from_string(TASKS_CAPABILITY.into()).expect("a literal is JSON");
    Err(Refusal::MissingCapability { required })
}

/// True for a call that its 2025-11-25 client requests as a task, at a server that creates tasks.
pub(super) fn is_task_requested(request: &Request, link: &Link, params: &str) -> bool {
    request.caller.version == Version::V2025_11_25
        && &*request.method == "tools/call"
        && member(params, "task").is_some()
        && link.should_bridge_tasks()
}

/// The params without `task`: in the extension the server decides which calls become tasks.
pub(super) fn strip_task(params: &str) -> String {
    remove_members(params, &["task"]).into_owned()
}

/// The message with its task's id in `_meta` (2025-11-25, related-task).
pub(super) fn add_related_task(message: &str, id: &str) -> String {
    let task = format!(r#"{{"taskId":{}}}"#, quote(id));
    let mut splice = Splice::new(message);
    let meta = member(message, "_meta").filter(|json| json.starts_with('{'));
    match (meta, meta.and_then(|meta| member(meta, RELATED_TASK))) {
        (_, Some(existing)) => splice.replace(existing, task),
        (Some(meta), None) => splice.insert_member(meta, RELATED_TASK, &task),
        (None, None) => {
            let meta = format!("{{{}:{task}}}", quote(RELATED_TASK));
            splice.insert_member(message, "_meta", &meta);
        }
    }
    splice.finish().into_owned()
}

/// Calls a tool that a 2025-11-25 server offers only as a task, for a stateless client; the call becomes a task
/// of the kernel at once.
pub(super) async fn call_through_task(
    request: &Request,
    link: &Arc<Link>,
    outgoing: Outgoing<'_>,
) -> Outcome {
    check_tasks_declared(request)?;
    let own = outgoing.splice_params(None).finish();
    let params = versions::to_legacy_params(&own);
    let ttl = link.limits.task_ttl;
    let mut splice = Splice::new(&params);
    splice.insert_member(
        &params,
        "task",
        &format!(r#"{{"ttl":{}}}"#, ttl.as_millis()),
    );
    let params = splice.finish();
    let created = send_translated(request, link, outgoing, ProtocolFamily::Legacy, &params).await;
    link.record_created_task(&created);
    let text = created.as_ref().ok().map(|c| String::from_utf8_lossy(c));
    let own = text.as_deref().and_then(|text| member(text, "task"));
    let Some(own) = own
        .and_then(|task| member(task, "taskId"))
        .map(str::to_owned)
    else {
        return to_stateless_answer(request, link, outgoing.method, created);
    };
    if let Some((attempts, tool)) = request.call.rounds().zip(outgoing.tool) {
        attempts.allow_promotion(LongCall {
            server: link.server.clone(),
            tool: (*tool.own_name).into(),
            threshold: Duration::ZERO,
            ttl,
        });
    }
    request.call.disable_timeout();
    let params = format!(r#"{{"taskId":{own}}}"#);
    let working = ServerTaskGuard {
        link,
        params: Some(params.clone()),
    };
    let fetching = Outgoing {
        method: "tasks/result",
        params: &params,
        edit: ("", ""),
        token: None,
        stream_options: None,
        ..outgoing
    };
    let outcome = send_translated(request, link, fetching, ProtocolFamily::Legacy, &params).await;
    if matches!(outcome, Ok(_) | Err(Refusal::Peer(_))) {
        working.disarm();
    }
    let named = serde_json::from_str::<String>(&own).unwrap_or_default();
    link.record_task_answer(&named, &outcome, true);
    to_stateless_answer(request, link, outgoing.method, outcome)
}

/// A task at a server; cancelled on drop unless disarmed.
struct ServerTaskGuard<'a> {
    link: &'a Arc<Link>,
    params: Option<String>,
}

impl ServerTaskGuard<'_> {
    fn disarm(mut self) {
        self.params = None;
    }
}

impl Drop for ServerTaskGuard<'_> {
    fn drop(&mut self) {
        if let Some(params) = self.params.take() {
            let link = self.link.clone();
            spawn_detached("tasks.cancel", async move {
                let cancelled =
                    link.request_in(ProtocolFamily::Legacy, "tasks/cancel", Some(&params));
                let _ = cancelled.await;
            });
        }
    }
}

/// True for a tool that a 2025-11-25 server offers only as a task.
pub(super) fn is_task_only(link: &Arc<Link>, tool: &CatalogTool) -> bool {
    let required = || {
        let execution = member(&tool.raw, "execution")?;
        Some(member(execution, "taskSupport")? == "\"required\"")
    };
    link.experimental_tasks_peer().is_some() && required() == Some(true)
}
