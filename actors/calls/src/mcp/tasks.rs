//! `tasks/*`: tasks of servers, under sealed names that only their clients can use, and the kernel's own
//! tasks, made of calls to servers that make none.

pub mod legacy;

use mgp_engine::callers::tasks::{Maker, TaskHandle, TaskRef};
use mgp_engine::tools::catalog::CatalogTool;
use mgp_json::{Splice, member, quote};
use mgp_protocol::mcp::extensions::with_extensions;
use mgp_protocol::mcp::{self, tasks as words};
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use crate::Context;
use crate::answer::{parse_string, require_params};
use crate::checks::access::{self, Admission};
use crate::mcp::apps::visible_app_uris;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_servers::upstream::{
    TASKS_CAPABILITY, TaskRequest, Upstream, check_tasks_declared, unknown_task,
};

/// The longest task id of a server, in bytes, that can be sealed into a name.
pub(crate) const MAX_ID: usize = 1024;

/// The answer that only acknowledges.
const ACKNOWLEDGED: &[u8] = br#"{"resultType":"complete"}"#;

/// `tasks/get` of the extension.
///
/// # Errors
/// [`Refusal::BadParams`] when the task is unknown, is another client's, or is forgotten.
pub async fn get(cx: &Context, request: &Request) -> Outcome {
    let words::Get(about) = mcp::parse_params(Some(require_params(request)?))?;
    let named = resolve_task(cx, request, about.task_id)?;
    match named.task.maker {
        Maker::Kernel { boot, number } => {
            let shown = cx.tasks.get((boot, number));
            shown.ok_or_else(|| unknown_task(about.task_id))
        }
        Maker::Modern { .. } | Maker::Legacy { .. } => {
            forward_task_request(cx, request, &named, about.task_id).await
        }
    }
}

/// `tasks/update` of the extension.
///
/// # Errors
/// As [`get`].
pub async fn update(cx: &Context, request: &Request) -> Outcome {
    let update: words::Update<'_> = mcp::parse_params(Some(require_params(request)?))?;
    let named = resolve_task(cx, request, update.task_id)?;
    match named.task.maker {
        Maker::Kernel { boot, number } => {
            let responses = update.input_responses.map_or("{}", RawValue::get);
            if cx.tasks.update((boot, number), responses) {
                Ok(ACKNOWLEDGED.into())
            } else {
                Err(unknown_task(update.task_id))
            }
        }
        Maker::Modern { .. } | Maker::Legacy { .. } => {
            forward_task_request(cx, request, &named, update.task_id).await
        }
    }
}

/// `tasks/cancel` of the extension.
///
/// # Errors
/// As [`get`].
pub async fn cancel(cx: &Context, request: &Request) -> Outcome {
    let words::Cancel(about) = mcp::parse_params(Some(require_params(request)?))?;
    let named = resolve_task(cx, request, about.task_id)?;
    match named.task.maker {
        Maker::Kernel { boot, number } => {
            if cx.tasks.cancel((boot, number)).await {
                Ok(ACKNOWLEDGED.into())
            } else {
                Err(unknown_task(about.task_id))
            }
        }
        Maker::Modern { .. } | Maker::Legacy { .. } => {
            forward_task_request(cx, request, &named, about.task_id).await
        }
    }
}

/// The task that a stateless client names.
fn resolve_task(cx: &Context, request: &Request, id: &RawValue) -> Result<TaskHandle, Refusal> {
    check_tasks_declared(request)?;
    find_task(cx, &request.caller, &parse_string(id, "taskId")?).ok_or_else(|| unknown_task(id))
}

/// The task with this name, if it was given to this client and its tool is still open to it.
pub(crate) fn find_task(cx: &Context, caller: &Caller, id: &str) -> Option<TaskHandle> {
    let known = cx.tasks.find(caller, id);
    known.filter(|named| admit_task_request(cx, caller, named, Refusal::Cancelled).is_ok())
}

/// The right to ask a server about a task: that of calling the tool.
pub(crate) fn admit_task_request<'a>(
    cx: &'a Context,
    caller: &Caller,
    named: &'a TaskHandle,
    unknown: Refusal,
) -> Result<Admission<'a>, Refusal> {
    access::admit(cx, caller, &named.task.server, Some(&named.tool), unknown)
}

/// Asks the server that made a task, by its own id for it.
async fn forward_task_request(
    cx: &Context,
    request: &Request,
    named: &TaskHandle,
    id: &RawValue,
) -> Outcome {
    let final_check = admit_task_request(cx, &request.caller, named, unknown_task(id))?;
    let about = TaskRequest {
        maker: &named.task.maker,
        id,
        name: &parse_string(id, "taskId")?,
        params: require_params(request)?,
        final_check: &final_check,
    };
    let server = &named.task.server;
    let answer = cx
        .upstream(server)
        .send_task_request(request, about)
        .await?;
    Ok(visible_app_uris(&request.caller, server, answer))
}

/// The answer to a call that became a task at its server, with the name the client can use; `None` for
/// every other answer.
///
/// # Errors
/// [`Refusal::Internal`] when the server's own name for it is too long.
pub(crate) fn rename_created_task(
    cx: &Context,
    request: &Request,
    tool: &CatalogTool,
    result: &[u8],
) -> Result<Option<bytes::Bytes>, Refusal> {
    if request.caller.version.is_legacy() {
        let result = std::str::from_utf8(result).unwrap_or_default();
        return Ok(legacy::rename_created_task(cx, request, tool, result)?.map(Into::into));
    }
    let Some((result, own)) = std::str::from_utf8(result)
        .ok()
        .and_then(parse_created_task)
    else {
        return Ok(None);
    };
    let server = &tool.server;
    let task = serde_json::from_str::<String>(own).unwrap_or_default();
    if task.len() > MAX_ID {
        return Err(Refusal::Internal(format!(
            "server {server} names a task with more than {MAX_ID} bytes"
        )));
    }
    let task = to_named_task(tool, Maker::Modern { task });
    let mut splice = Splice::new(result);
    splice.replace(own, quote(&cx.tasks.name(&request.caller, &task)));
    Ok(Some(splice.finish().into_owned().into()))
}

/// True when a client may be given tasks.
pub(crate) fn can_offer_tasks(cx: &Context, caller: &Caller) -> bool {
    cx.upstreams(caller).iter().any(Upstream::can_create_tasks)
}

/// A result that announces a task: its text, and the server's own id in it.
pub(crate) fn parse_created_task(result: &str) -> Option<(&str, &str)> {
    let kind = serde_json::from_str::<String>(member(result, "resultType")?);
    let announces = kind.is_ok_and(|kind| kind == "task");
    let own = member(result, "taskId").filter(|_| announces)?;
    Some((result, own))
}

/// The record of a task that a server made of a tool call.
pub(crate) fn to_named_task(tool: &CatalogTool, maker: Maker) -> TaskHandle {
    TaskHandle {
        task: TaskRef {
            server: tool.server.clone(),
            maker,
        },
        tool: (*tool.own_name).into(),
    }
}

/// Adds what `server/discover` says about tasks.
pub(crate) fn add_tasks_capability(capabilities: &str, offered: bool) -> String {
    let tasks = member(TASKS_CAPABILITY, "extensions").filter(|_| offered);
    with_extensions(capabilities, tasks.unwrap_or("{}"))
}
