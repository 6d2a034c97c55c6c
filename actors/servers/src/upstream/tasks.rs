//! Calls that become tasks: because the server takes them only so, or because the client wants it.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::calls::outcome::after_dispatch;
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::dialect::{Era, Version};
use mgp_protocol::era;
use mgp_protocol::mcp::meta::RELATED_TASK;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{Splice, member, members, quoted};
use serde_json::value::RawValue;

use super::to_legacy::shown;
use super::{Outgoing, translated};
use crate::link::Link;
use mgp_callers::request::{Outcome, Request};
use mgp_callers::tasks::LongCall;
use mgp_runtime::task::detached;

/// The capability a client must declare to be given tasks.
pub const EXTENSION: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// A tool call may become one of the kernel's own tasks when the client knows tasks and the server
/// makes none.
pub(super) fn may_take_long(request: &Request, link: &Link, tool: Option<&CatalogTool>) {
    let (Some(attempts), Some(tool)) = (request.exchange.rounds(), tool) else {
        return;
    };
    let limits = &link.limits;
    if attempts.capabilities().tasks && !limits.task_after.is_zero() && !link.makes_tasks() {
        attempts.may_take_long(LongCall {
            server: link.server.clone(),
            tool: (*tool.own_name).into(),
            after: limits.task_after,
            ttl: limits.task_ttl,
        });
    }
}

/// Tasks are only for clients that declare the extension.
///
/// # Errors
/// [`Refusal::MissingCapability`].
pub fn knows_tasks(request: &Request) -> Result<(), Refusal> {
    if request.caller.capabilities.tasks {
        return Ok(());
    }
    let required = RawValue::from_string(EXTENSION.into()).expect("a literal is JSON");
    Err(Refusal::MissingCapability { required })
}

/// True for a call whose client of 2025-11-25 wants it as a task, where its server makes tasks.
pub(super) fn wants_task(request: &Request, link: &Link, params: &str) -> bool {
    request.caller.version == Version::V2025_11_25
        && &*request.method == "tools/call"
        && member(params, "task").is_some()
        && link.bridges_tasks()
}

/// The params without `task`: in the extension it is the server that decides what becomes a task.
pub(super) fn without_task(params: &str) -> String {
    let members = members(params).unwrap_or_default();
    let kept = members.iter().filter(|(name, _)| name != "task");
    let kept: Vec<String> = kept
        .map(|(name, value)| format!("{}:{}", quoted(name), value.get()))
        .collect();
    format!("{{{}}}", kept.join(","))
}

/// The message with the id of its task in `_meta` (2025-11-25, related-task).
pub(super) fn with_related(message: &str, id: &str) -> String {
    let task = format!(r#"{{"taskId":{}}}"#, quoted(id));
    let mut splice = Splice::new(message);
    let meta = member(message, "_meta").filter(|json| json.starts_with('{'));
    match (meta, meta.and_then(|meta| member(meta, RELATED_TASK))) {
        (_, Some(said)) => splice.replace(said, task),
        (Some(meta), None) => splice.insert_member(meta, RELATED_TASK, &task),
        (None, None) => {
            let meta = format!("{{{}:{task}}}", quoted(RELATED_TASK));
            splice.insert_member(message, "_meta", &meta);
        }
    }
    splice.finish().into_owned()
}

/// A stateless client calls a tool that a 2025-11-25 server takes only as a task: to the client it is a
/// task of the kernel from the start.
pub(super) async fn through_task(
    request: &Request,
    link: &Arc<Link>,
    outgoing: Outgoing<'_>,
) -> Outcome {
    knows_tasks(request)?;
    let own = outgoing.spliced(None).finish();
    let params = era::to_legacy_params(&own);
    let ttl = link.limits.task_ttl;
    let mut splice = Splice::new(&params);
    splice.insert_member(
        &params,
        "task",
        &format!(r#"{{"ttl":{}}}"#, ttl.as_millis()),
    );
    let params = splice.finish();
    let created = translated(request, link, outgoing, Era::Legacy, &params).await;
    link.learn_task(&created);
    let text = created.as_ref().ok().map(|c| String::from_utf8_lossy(c));
    let own = text.as_deref().and_then(|text| member(text, "task"));
    let Some(own) = own
        .and_then(|task| member(task, "taskId"))
        .map(str::to_owned)
    else {
        return shown(request, link, outgoing.method, created);
    };
    if let Some((attempts, tool)) = request.exchange.rounds().zip(outgoing.tool) {
        attempts.may_take_long(LongCall {
            server: link.server.clone(),
            tool: (*tool.own_name).into(),
            after: Duration::ZERO,
            ttl,
        });
    }
    request.exchange.take_time();
    let params = format!(r#"{{"taskId":{own}}}"#);
    let working = Working {
        link,
        params: Some(params.clone()),
    };
    let fetching = Outgoing {
        method: "tasks/result",
        params: &params,
        edit: ("", ""),
        token: None,
        wish: None,
        ..outgoing
    };
    let outcome = translated(request, link, fetching, Era::Legacy, &params).await;
    // The server has the task, whatever keeps its result from being fetched.
    let outcome = outcome.map_err(|refusal| after_dispatch(refusal, &link.server));
    if matches!(outcome, Ok(_) | Err(Refusal::Peer(_))) {
        working.done();
    }
    let named = serde_json::from_str::<String>(&own).unwrap_or_default();
    link.told_of_task(&named, &outcome, true);
    shown(request, link, outgoing.method, outcome)
}

/// A task at a server; cancelled when nobody waits for it any more.
struct Working<'a> {
    link: &'a Arc<Link>,
    params: Option<String>,
}

impl Working<'_> {
    fn done(mut self) {
        self.params = None;
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        if let Some(params) = self.params.take() {
            let link = self.link.clone();
            detached("tasks.cancel", async move {
                let cancelled = link.ask_in(Era::Legacy, "tasks/cancel", Some(&params));
                let _ = cancelled.await;
            });
        }
    }
}

/// True for a tool that a server of 2025-11-25 only takes as a task.
pub(super) fn only_as_task(link: &Arc<Link>, tool: &CatalogTool) -> bool {
    let execution = member(&tool.raw, "execution");
    link.experiment().is_some()
        && execution.and_then(|said| member(said, "taskSupport")) == Some("\"required\"")
}
