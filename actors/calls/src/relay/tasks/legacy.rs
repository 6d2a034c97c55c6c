//! The experimental tasks of 2025-11-25: from a client to a server of that version, and, where a
//! server takes some calls only as tasks, for stateless clients too.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mgp_engine::callers::tasks::{Maker, TaskRef};
use mgp_engine::tools::catalog::{CatalogTool, CatalogView};
use mgp_protocol::dialect::{Era, Version};
use mgp_protocol::era;
use mgp_protocol::mcp::meta::RELATED_TASK;
use mgp_protocol::mcp::meta::progress_token;
use mgp_protocol::mcp::{self, tasks as words};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{Splice, member, quoted};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::forward::{Mirrored, Outgoing, along, is_untaken, send, shown};
use super::super::tracing::may_be_of_mgp;
use super::super::{Relay, required, text};
use super::bridged::UNLISTED;
use super::{knows_tasks, named, unknown};
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_callers::tasks::LongCall;
use mgp_servers::link::Link;

/// Pages of one server's list of tasks; a server that goes on for ever ends here.
const MAX_PAGES: usize = 16;

/// What clients of all servers are told when one of them makes tasks.
const ALL: &str = r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    #[serde(borrow)]
    tasks: Vec<&'a RawValue>,
    #[serde(default)]
    next_cursor: Option<String>,
}

impl Relay {
    /// `tasks/get`, `tasks/result` and `tasks/cancel` of 2025-11-25.
    ///
    /// # Errors
    /// [`Refusal::BadParams`] when the task is unknown or another client's.
    pub async fn legacy_task(&self, request: &Request) -> Outcome {
        match self.legacy_task_once(request).await {
            Err(refusal) if is_untaken(&refusal) => self.legacy_task_once(request).await,
            outcome => outcome,
        }
    }

    async fn legacy_task_once(&self, request: &Request) -> Outcome {
        self.knows_experiment(request)?;
        let params = required(request)?;
        let about: words::About<'_> = mcp::read(Some(params))?;
        let id = text(about.task_id, "taskId")?;
        let missing = || unknown(about.task_id);
        let named = self.task(&request.caller, &id).ok_or_else(missing)?;
        let leave = self.about(&request.caller, &named, missing())?;
        let task = &named.task;
        let (era, own) = match &task.maker {
            Maker::Legacy { task: own } => (Era::Legacy, own),
            Maker::Modern { task: own } => (Era::Modern, own),
            Maker::Kernel { .. } => return Err(missing()),
        };
        let link = self.link(request, &task.server).await?;
        link.peer_in(era).ok_or_else(missing)?;
        if era == Era::Modern {
            return self.bridged_task(request, &link, &leave, (own, &id)).await;
        }
        if &*request.method == "tasks/result" {
            request.exchange.take_time();
            request.exchange.is_about(own, &id);
        }
        let own_json = quoted(own);
        let outgoing = Outgoing {
            tool: None,
            leave: Some(&leave),
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

    /// `tasks/list` of 2025-11-25: what this client was given since the kernel began.
    ///
    /// # Errors
    /// [`Refusal::UnknownMethod`] where no server lists its tasks.
    pub async fn list_tasks(&self, request: &Request) -> Outcome {
        self.knows_experiment(request)?;
        let offers =
            |link: &Arc<Link>| experiment(link).is_some_and(|peer| peer.capabilities.tasks_list);
        if !self.links(&request.caller).iter().any(offers) {
            return Err(Refusal::UnknownMethod("tasks/list".into()));
        }
        let mut links = self.links_of(&request.caller);
        links.retain(offers);
        let caller = &request.caller;
        let lists = links.iter().map(|link| self.tasks_of(link, caller));
        let tasks: Vec<String> = join_all(lists).await.into_iter().flatten().collect();
        Ok(format!(r#"{{"tasks":[{}]}}"#, tasks.join(",")).into())
    }

    /// The tasks of a server that were given to a client. What cannot be had is left out.
    async fn tasks_of(&self, link: &Arc<Link>, caller: &Caller) -> Vec<String> {
        let principal = caller.principal();
        let (mut tasks, mut params) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let asked = link.ask_in(Era::Legacy, "tasks/list", params.as_deref());
            let Ok(result) = asked.await else {
                return tasks;
            };
            let Ok(page) = serde_json::from_slice::<Page<'_>>(&result) else {
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
                if let Some((named, id)) = self.directory.issued_tasks.name(&task_ref, &principal)
                    && self.about(caller, &named, Refusal::Cancelled).is_ok()
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

    /// The answer to a call that became a task at its server, under the name its client of 2025-11-25
    /// can use; `None` for every other answer.
    ///
    /// # Errors
    /// [`Refusal::Broken`] for a task that cannot be named or shown.
    pub(super) fn created(
        &self,
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
            Some(task) => Ok(self.created_there(caller, tool, result, task)),
            None => self.created_here(caller, tool, result),
        }
    }

    fn created_there(
        &self,
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
        let id = self.tasks.name(caller, &task);
        let mut splice = Splice::new(result);
        splice.replace(own, quoted(&id));
        self.directory
            .issued_tasks
            .note(task, caller.principal(), id);
        Some(splice.finish().into_owned())
    }

    /// What `initialize` says of tasks, as far as they work through the kernel.
    pub(in crate::relay) fn with_experiment(&self, capabilities: &str, caller: &Caller) -> String {
        let links = self.links(caller);
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

    fn knows_experiment(&self, request: &Request) -> Result<(), Refusal> {
        match request.caller.version == Version::V2025_11_25 {
            true => Ok(()),
            false => Err(Refusal::UnknownMethod(request.method.to_string())),
        }
    }
}

/// A stateless client calls a tool of a server of 2025-11-25 that takes such calls only as tasks:
/// for the client it is a task of the kernel, from its beginning.
pub(in crate::relay) async fn through_task(
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
    let created = send(request, link, outgoing, Era::Legacy, &params).await;
    let text = created.as_ref().ok().map(|c| String::from_utf8_lossy(c));
    let own = text.as_deref().and_then(|text| member(text, "task"));
    let Some(own) = own
        .and_then(|task| member(task, "taskId"))
        .map(str::to_owned)
    else {
        return shown(request, link, outgoing.method, created);
    };
    if let Some((rounds, tool)) = request.exchange.rounds().zip(outgoing.tool) {
        rounds.may_take_long(LongCall {
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
        ..outgoing
    };
    let outcome = send(request, link, fetching, Era::Legacy, &params).await;
    if matches!(outcome, Ok(_) | Err(Refusal::Peer(_))) {
        working.done();
    }
    shown(request, link, outgoing.method, outcome)
}

/// A task at a server, taken back when nobody waits for it any more.
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
            tokio::spawn(async move {
                let cancelled = link.ask_in(Era::Legacy, "tasks/cancel", Some(&params));
                let _ = cancelled.await;
            });
        }
    }
}

/// What a server said that takes part in the experiment.
fn experiment(link: &Arc<Link>) -> Option<&mgp_servers::link::Peer> {
    let peer = link.peer_in(Era::Legacy)?;
    peer.capabilities.tasks_call.then_some(peer)
}

/// True for a tool that a server of 2025-11-25 only takes as a task.
pub(in crate::relay) fn only_as_task(link: &Arc<Link>, tool: &CatalogTool) -> bool {
    let execution = member(&tool.raw, "execution");
    experiment(link).is_some()
        && execution.and_then(|said| member(said, "taskSupport")) == Some("\"required\"")
}

/// A result with the client's name of the task in the place of the server's own.
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
