//! `mgp/calls/show`: the outcome of a call, from the audit log. The operator may query any call, an agent its own.

use futures_util::future::join_all;
use mgp_engine::callers::tasks::{Maker, TaskStatus};
use mgp_engine::calls::outcome;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp;
use mgp_protocol::mgp::audit::TraceId;
use mgp_protocol::mgp::calls::{CallRecord, Show};
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::json_outcome;
use mgp_callers::request::{Outcome, Request};

/// Records whose tasks are looked up: one call has one, and a caller may give any number of calls its trace.
const TASK_LOOKUPS_MAX: usize = 16;

/// `mgp/calls/show`. The call of another agent is one that does not exist.
///
/// # Errors
/// [`Refusal::BadParams`] for what is no id; [`Refusal::UnknownId`] where nothing can be said, with why.
pub async fn show(cx: &Context, request: &Request) -> Outcome {
    let asked: Show = mcp::parse_params(request.params.as_deref())?;
    let id = TraceId::parse(&asked.call_id).map_err(|_| invalid_id_refusal(&asked.call_id))?;
    let agent = &request.caller.agent;
    let own = !request.caller.operator;
    if own {
        // It reads the whole log: it counts as a call.
        cx.policies.count_call(&request.caller)?;
    }
    let whose = own.then(|| agent.to_string());
    let found = cx.audit.find_calls(&id, whose).await?;
    let told = found.into_history(id.as_str(), own);
    let told = told.map_err(|none| Refusal::UnknownId(none.to_string()))?;
    let records = told.records.iter().take(TASK_LOOKUPS_MAX);
    let tasks = join_all(records.map(|record| task_status(cx, record))).await;
    json_outcome(&outcome::apply_task_statuses(told, &tasks))
}

/// The state of the task that a call became; `None` if it is unknown.
async fn task_status(cx: &Context, record: &CallRecord) -> Option<TaskStatus> {
    let server = ServerId::new(record.server_id.as_deref()?);
    let task = record.task_id.as_deref()?;
    let table = cx.policies.access.table();
    let sets = table.sets().by_name.keys().cloned().map(CatalogView::Set);
    let mut views = [CatalogView::All, CatalogView::One(server.clone())]
        .into_iter()
        .chain(sets);
    let named = views.find_map(|view| {
        let who = format!("{}@{view}", record.actor);
        cx.tasks.find_for(&who, task)
    })?;
    match named.task.maker {
        Maker::Kernel { boot, number } => cx.tasks.status((boot, number)),
        Maker::Modern { .. } | Maker::Legacy { .. } => {
            cx.upstream(&server).task_status(&named.task.maker).await
        }
    }
}

fn invalid_id_refusal(said: &str) -> Refusal {
    let said: String = said.chars().take(60).collect();
    Refusal::BadParams(format!(
        "`{said}` is no id of a call: that is a UUID such as 550e8400-e29b-41d4-a716-446655440000; the error of \
         the call names it, and `mgp audit tail --json` as `trace_id`"
    ))
}
