//! The experimental tasks of 2025-11-25: of clients and servers of that version, and, where a server
//! takes some calls only as tasks, of stateless clients too.

use futures_util::future::join_all;
use mgp_engine::callers::tasks::{Maker, TaskRef, to_legacy};
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_json::{Splice, member, quote};
use mgp_protocol::dialect::Version;
use mgp_protocol::mcp::{self, tasks as words};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::versions;
use serde_json::value::RawValue;

use crate::Context;
use crate::answer::{parse_string, require_params};
use crate::mcp::apps::visible_app_uris;
use crate::mcp::tasks::{self, MAX_ID, parse_created_task, to_named_task};
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_servers::upstream::{LegacyTask, TaskRequest, Upstream, unknown_task};

/// The text for clients that see all servers when one of them makes tasks.
const ALL_TASKS_CAPABILITY: &str = r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;

/// What `initialize` says where tasks are those of the extension, which has no list.
const EXTENSION_TASKS_CAPABILITY: &str = r#"{"cancel":{},"requests":{"tools":{"call":{}}}}"#;

/// `tasks/get`, `tasks/result` and `tasks/cancel` of 2025-11-25.
///
/// # Errors
/// [`Refusal::BadParams`] when the task is unknown or another client's.
pub async fn handle_task_request(cx: &Context, request: &Request, asked: LegacyTask) -> Outcome {
    check_tasks_declared(request)?;
    let params = require_params(request)?;
    let about: words::TaskParams<'_> = mcp::parse_params(Some(params))?;
    let name = parse_string(about.task_id, "taskId")?;
    let missing = || unknown_task(about.task_id);
    let named = tasks::find_task(cx, &request.caller, &name).ok_or_else(missing)?;
    let final_check = tasks::admit_task_request(cx, &request.caller, &named, missing())?;
    let about = TaskRequest {
        maker: &named.task.maker,
        id: about.task_id,
        name: &name,
        params,
        final_check: &final_check,
    };
    let upstream = cx.upstream(&named.task.server);
    let answer = upstream
        .send_legacy_task_request(request, about, asked)
        .await?;
    let server = &named.task.server;
    Ok(visible_app_uris(&request.caller, server, answer))
}

/// `tasks/list` of 2025-11-25: the tasks given to this client since the kernel started.
///
/// # Errors
/// [`Refusal::UnknownMethod`] where no server lists its tasks.
pub async fn list(cx: &Context, request: &Request) -> Outcome {
    check_tasks_declared(request)?;
    let upstreams = cx.upstreams(&request.caller);
    let lists =
        |upstream: &Upstream<'_>| upstream.legacy_tasks().is_some_and(|tasks| tasks.can_list);
    if !upstreams.iter().any(lists) {
        return Err(Refusal::UnknownMethod("tasks/list".into()));
    }
    let listed = upstreams
        .iter()
        .map(|it| list_server_tasks(cx, it, &request.caller));
    let tasks: Vec<String> = join_all(listed).await.into_iter().flatten().collect();
    Ok(format!(r#"{{"tasks":[{}]}}"#, tasks.join(",")).into())
}

/// A server's tasks that were given to this client.
async fn list_server_tasks(cx: &Context, upstream: &Upstream<'_>, caller: &Caller) -> Vec<String> {
    let (principal, mut tasks) = (caller.principal(), Vec::new());
    let show = |task: &RawValue| {
        let own = member(task.get(), "taskId").unwrap_or("\"\"");
        let task_ref = TaskRef {
            server: upstream.id().clone(),
            maker: Maker::Legacy {
                task: serde_json::from_str(own).unwrap_or_default(),
            },
        };
        if let Some((named, id)) = cx.directory.issued_tasks.find(&task_ref, &principal)
            && tasks::admit_task_request(cx, caller, &named, Refusal::Cancelled).is_ok()
        {
            let mut splice = Splice::new(task.get());
            splice.replace(own, quote(&id));
            tasks.push(splice.finish().into_owned());
        }
    };
    upstream.list_legacy_tasks(caller, show).await;
    tasks
}

/// The answer to a call that became a task at its server, with the name its client of 2025-11-25
/// can use; `None` for every other answer.
///
/// # Errors
/// [`Refusal::Internal`] for a task that cannot be named or shown.
pub(crate) fn rename_created_task(
    cx: &Context,
    request: &Request,
    tool: &CatalogTool,
    result: &str,
) -> Result<Option<String>, Refusal> {
    let caller = &request.caller;
    let wanted = request.params.as_deref().and_then(|p| member(p, "task"));
    if caller.version != Version::V2025_11_25 || wanted.is_none() {
        return Ok(None);
    }
    match member(result, "task") {
        Some(task) => Ok(rename_legacy_task(cx, caller, tool, result, task)),
        None => bridge_created_task(cx, caller, tool, result),
    }
}

fn rename_legacy_task(
    cx: &Context,
    caller: &Caller,
    tool: &CatalogTool,
    result: &str,
    task: &str,
) -> Option<String> {
    let own = member(task, "taskId")?;
    let maker = Maker::Legacy {
        task: serde_json::from_str(own).ok()?,
    };
    let task = to_named_task(tool, maker);
    let id = cx.tasks.name(caller, &task);
    let mut splice = Splice::new(result);
    splice.replace(own, quote(&id));
    cx.directory
        .issued_tasks
        .record(task, caller.principal(), id);
    Some(splice.finish().into_owned())
}

/// The answer to a call that became a task of the extension for a client of 2025-11-25.
///
/// # Errors
/// [`Refusal::Internal`] when the server's own name for it is too long, or it is no task.
fn bridge_created_task(
    cx: &Context,
    caller: &Caller,
    tool: &CatalogTool,
    result: &str,
) -> Result<Option<String>, Refusal> {
    let Some((result, own)) = parse_created_task(result) else {
        return Ok(None);
    };
    let own = serde_json::from_str::<String>(own).unwrap_or_default();
    let broken = |why: &str| Refusal::Internal(format!("server {} {why}", tool.server));
    if own.len() > MAX_ID {
        return Err(broken(&format!(
            "names a task with more than {MAX_ID} bytes"
        )));
    }
    let task = to_named_task(tool, Maker::Modern { task: own });
    let shown = to_legacy(result, &cx.tasks.name(caller, &task));
    let shown = shown.ok_or_else(|| broken("announces a task without a status"))?;
    let shown = versions::to_legacy_result(&shown, caller.version);
    Ok(Some(format!(r#"{{"task":{shown}}}"#)))
}

/// Adds what `initialize` says about tasks, as far as they work through the kernel.
pub(crate) fn add_tasks_capability(cx: &Context, capabilities: &str, caller: &Caller) -> String {
    let upstreams = cx.upstreams(caller);
    let first = upstreams.iter().find_map(Upstream::legacy_tasks);
    let said = match (caller.version, &caller.view, &first) {
        (Version::V2025_11_25, CatalogView::All | CatalogView::Set(_), Some(_)) => {
            Some(ALL_TASKS_CAPABILITY)
        }
        (Version::V2025_11_25, CatalogView::One(_), Some(tasks)) => tasks.capability.as_deref(),
        (Version::V2025_11_25, _, None) => {
            let bridged = upstreams.iter().any(Upstream::should_bridge_tasks);
            bridged.then_some(EXTENSION_TASKS_CAPABILITY)
        }
        (_, _, _) => None,
    };
    let mut splice = Splice::new(capabilities);
    if let Some(said) = said {
        splice.insert_member(capabilities, "tasks", said);
    }
    splice.finish().into_owned()
}

fn check_tasks_declared(request: &Request) -> Result<(), Refusal> {
    if request.caller.version == Version::V2025_11_25 {
        Ok(())
    } else {
        Err(Refusal::UnknownMethod(request.method.to_string()))
    }
}
