//! The experimental tasks of 2025-11-25: of clients and servers of that version, and, where a server
//! takes some calls only as tasks, of stateless clients too.

use std::sync::Arc;

use futures_util::future::join_all;
use mgp_engine::callers::tasks::{Maker, TaskRef};
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_protocol::dialect::{Era, Version};
use mgp_protocol::mcp::meta::{RELATED_TASK, progress_token};
use mgp_protocol::mcp::{self, tasks as words};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{Splice, member, quoted};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::Context;
use crate::answer::{required, text};
use crate::forward::tasks::experiment;
use crate::forward::trace::may_be_of_mgp;
use crate::forward::{Mirrored, Outgoing, along, is_untaken};
use crate::mcp::tasks::bridged::{self, Bridged, UNLISTED};
use crate::mcp::tasks::{self, named, unknown};
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_servers::link::Link;

/// Pages fetched of one server's list of tasks, so that an endless list ends.
const MAX_PAGES: usize = 16;

/// What clients that see all servers are told when one of them makes tasks.
const ALL: &str = r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskPage<'a> {
    #[serde(borrow)]
    tasks: Vec<&'a RawValue>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// The three requests of 2025-11-25 about one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegacyTask {
    /// `tasks/get`.
    Get,
    /// `tasks/result`.
    Result,
    /// `tasks/cancel`.
    Cancel,
}

/// `tasks/get`, `tasks/result` and `tasks/cancel` of 2025-11-25.
///
/// # Errors
/// [`Refusal::BadParams`] when the task is unknown or another client's.
pub async fn about(cx: &Context, request: &Request, asked: LegacyTask) -> Outcome {
    match about_once(cx, request, asked).await {
        Err(refusal) if is_untaken(&refusal) => about_once(cx, request, asked).await,
        outcome => outcome,
    }
}

async fn about_once(cx: &Context, request: &Request, asked: LegacyTask) -> Outcome {
    knows_experiment(request)?;
    let params = required(request)?;
    let about: words::About<'_> = mcp::read(Some(params))?;
    let id = text(about.task_id, "taskId")?;
    let missing = || unknown(about.task_id);
    let named = tasks::task(cx, &request.caller, &id).ok_or_else(missing)?;
    let final_check = tasks::about(cx, &request.caller, &named, missing())?;
    let task = &named.task;
    let (era, own) = match &task.maker {
        Maker::Legacy { task: own } => (Era::Legacy, own),
        Maker::Modern { task: own } => (Era::Modern, own),
        Maker::Kernel { .. } => return Err(missing()),
    };
    let link = cx.link(request, &task.server).await?;
    link.peer_in(era).ok_or_else(missing)?;
    if era == Era::Modern {
        let task = Bridged {
            request,
            link: &link,
            final_check: &final_check,
            own,
            id: &id,
        };
        return match asked {
            LegacyTask::Get => bridged::get(&task).await,
            LegacyTask::Result => bridged::result(&task).await,
            LegacyTask::Cancel => bridged::cancel(&task).await,
        };
    }
    if asked == LegacyTask::Result {
        request.exchange.take_time();
        request.exchange.is_about(own, &id);
    }
    let own_json = quoted(own);
    let outgoing = Outgoing {
        tool: None,
        final_check: Some(&final_check),
        server: &task.server,
        method: &request.method,
        params,
        of_mgp: may_be_of_mgp(params),
        edit: (about.task_id.get(), &own_json),
        token: progress_token(params)?,
        mirrored: Mirrored::default(),
    };
    let result = along(request, &link, outgoing, Era::Legacy).await?;
    Ok(renamed(&result, &id).map_or(result, Into::into))
}

/// `tasks/list` of 2025-11-25: the tasks given to this client since the kernel started.
///
/// # Errors
/// [`Refusal::UnknownMethod`] where no server lists its tasks.
pub async fn list(cx: &Context, request: &Request) -> Outcome {
    knows_experiment(request)?;
    let offers =
        |link: &Arc<Link>| experiment(link).is_some_and(|peer| peer.capabilities.tasks_list);
    if !cx.links(&request.caller).iter().any(offers) {
        return Err(Refusal::UnknownMethod("tasks/list".into()));
    }
    let mut links = cx.links_of(&request.caller);
    links.retain(offers);
    let caller = &request.caller;
    let lists = links.iter().map(|link| tasks_of(cx, link, caller));
    let tasks: Vec<String> = join_all(lists).await.into_iter().flatten().collect();
    Ok(format!(r#"{{"tasks":[{}]}}"#, tasks.join(",")).into())
}

/// A server's tasks that were given to this client. What cannot be fetched is left out.
async fn tasks_of(cx: &Context, link: &Arc<Link>, caller: &Caller) -> Vec<String> {
    let principal = caller.principal();
    let (mut tasks, mut params) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let asked = link.ask_in(Era::Legacy, "tasks/list", params.as_deref());
        let Ok(result) = asked.await else {
            return tasks;
        };
        let Ok(page) = serde_json::from_slice::<TaskPage<'_>>(&result) else {
            return tasks;
        };
        for task in page.tasks {
            let own = member(task.get(), "taskId").unwrap_or("\"\"");
            let task_ref = TaskRef {
                server: link.server.clone(),
                maker: Maker::Legacy {
                    task: serde_json::from_str(own).unwrap_or_default(),
                },
            };
            if let Some((named, id)) = cx.directory.issued_tasks.name(&task_ref, &principal)
                && tasks::about(cx, caller, &named, Refusal::Cancelled).is_ok()
            {
                let mut splice = Splice::new(task.get());
                splice.replace(own, quoted(&id));
                tasks.push(splice.finish().into_owned());
            }
        }
        match page.next_cursor {
            Some(cursor) => params = Some(format!(r#"{{"cursor":{}}}"#, quoted(&cursor))),
            None => return tasks,
        }
    }
    tasks
}

/// The answer to a call that became a task at its server, with the name its client of 2025-11-25
/// can use; `None` for every other answer.
///
/// # Errors
/// [`Refusal::Broken`] for a task that cannot be named or shown.
pub(crate) fn created(
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
        Some(task) => Ok(created_there(cx, caller, tool, result, task)),
        None => bridged::created_here(cx, caller, tool, result),
    }
}

fn created_there(
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
    let task = named(tool, maker);
    let id = cx.tasks.name(caller, &task);
    let mut splice = Splice::new(result);
    splice.replace(own, quoted(&id));
    cx.directory.issued_tasks.note(task, caller.principal(), id);
    Some(splice.finish().into_owned())
}

/// Adds what `initialize` says about tasks, as far as they work through the kernel.
pub(crate) fn with_experiment(cx: &Context, capabilities: &str, caller: &Caller) -> String {
    let links = cx.links(caller);
    let mut peers = links.iter().filter_map(experiment);
    let said = match (caller.version, &caller.view, peers.next()) {
        (Version::V2025_11_25, CatalogView::All, Some(_)) => Some(ALL),
        (Version::V2025_11_25, CatalogView::One(_), Some(peer)) => {
            member(&peer.raw_capabilities, "tasks")
        }
        (Version::V2025_11_25, _, None) => {
            let bridged = links.iter().any(|link| link.bridges_tasks());
            bridged.then_some(UNLISTED)
        }
        (_, _, _) => None,
    };
    let mut splice = Splice::new(capabilities);
    if let Some(said) = said {
        splice.insert_member(capabilities, "tasks", said);
    }
    splice.finish().into_owned()
}

fn knows_experiment(request: &Request) -> Result<(), Refusal> {
    match request.caller.version == Version::V2025_11_25 {
        true => Ok(()),
        false => Err(Refusal::UnknownMethod(request.method.to_string())),
    }
}

/// A result with the client's name of the task instead of the server's own.
fn renamed(result: &[u8], id: &str) -> Option<String> {
    let result = std::str::from_utf8(result).ok()?;
    let related = member(result, "_meta").and_then(|meta| member(meta, RELATED_TASK));
    let places = [
        member(result, "taskId"),
        related.and_then(|related| member(related, "taskId")),
    ];
    let mut splice = Splice::new(result);
    for own in places.into_iter().flatten() {
        splice.replace(own, quoted(id));
    }
    Some(splice.finish().into_owned())
}
