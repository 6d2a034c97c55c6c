//! Requests about a task of a server: of stateless clients, as the extension has them, and of clients of
//! 2025-11-25, as that version had them.

use std::sync::Arc;

use mgp_engine::callers::tasks::Maker;
use mgp_protocol::dialect::Era;
use mgp_protocol::mcp::meta::{RELATED_TASK, progress_token};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{Splice, member, quoted};
use serde_json::value::RawValue;

use super::bridged_tasks::{self, Bridged};
use super::trace::may_be_of_mgp;
use super::{Mirrored, Outgoing, Upstream, along, is_untaken};
use crate::link::{FinalCheck, Link};
use mgp_callers::request::{Outcome, Request};

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

/// The task that a request is about.
#[derive(Clone, Copy, Debug)]
pub struct TaskRequest<'a> {
    /// Who made it, with the server's own id for it.
    pub maker: &'a Maker,
    /// The client's name for it, as it stands in `params`.
    pub id: &'a RawValue,
    /// The same name, read.
    pub name: &'a str,
    /// The params as the client sent them.
    pub params: &'a str,
    /// Right of the caller, asked again right before the request is sent.
    pub final_check: &'a dyn FinalCheck,
}

impl Upstream<'_> {
    /// A stateless client's request about a task, which is passed on; over the next connection, when this
    /// one is just being closed.
    ///
    /// # Errors
    /// [`unknown_task`] where the server does not speak the extension; else as [`Self::send`].
    pub async fn task(&self, request: &Request, about: TaskRequest<'_>) -> Outcome {
        match self.task_once(request, about).await {
            Err(refusal) if is_untaken(&refusal) => self.task_once(request, about).await,
            outcome => outcome,
        }
    }

    async fn task_once(&self, request: &Request, about: TaskRequest<'_>) -> Outcome {
        let (Maker::Modern { task: own } | Maker::Legacy { task: own }) = about.maker else {
            return Err(unknown_task(about.id));
        };
        let link = self.link_of_task(request, own).await?;
        if link.peer_in(Era::Modern).is_none() {
            return Err(unknown_task(about.id));
        }
        link.may_answer(own, about.params)?;
        let own_json = quoted(own);
        let mirrored = Mirrored::named(own);
        let outgoing = about.outgoing(request, &own_json, mirrored);
        let outcome = along(request, &link, outgoing, Era::Modern).await;
        link.told_of_task(own, &outcome, &*request.method == "tasks/get");
        let result = outcome?;
        let shown = std::str::from_utf8(&result).ok().and_then(|result| {
            let named = member(result, "taskId")?;
            let mut splice = Splice::new(result);
            splice.replace(named, about.id.get());
            Some(splice.finish().into_owned())
        });
        Ok(shown.map_or(result, Into::into))
    }

    /// The same for a client of 2025-11-25: passed on, or answered by requests of the extension where the
    /// server made the task so.
    ///
    /// # Errors
    /// As [`Self::task`].
    pub async fn legacy_task(
        &self,
        request: &Request,
        about: TaskRequest<'_>,
        asked: LegacyTask,
    ) -> Outcome {
        match self.legacy_task_once(request, about, asked).await {
            Err(refusal) if is_untaken(&refusal) => {
                self.legacy_task_once(request, about, asked).await
            }
            outcome => outcome,
        }
    }

    async fn legacy_task_once(
        &self,
        request: &Request,
        about: TaskRequest<'_>,
        asked: LegacyTask,
    ) -> Outcome {
        let missing = || unknown_task(about.id);
        let (era, own) = match about.maker {
            Maker::Legacy { task: own } => (Era::Legacy, own),
            Maker::Modern { task: own } => (Era::Modern, own),
            Maker::Kernel { .. } => return Err(missing()),
        };
        let link = self.link_of_task(request, own).await?;
        link.peer_in(era).ok_or_else(missing)?;
        let outcome = match era {
            Era::Modern => bridged(request, &link, about, own, asked).await,
            Era::Legacy => passed(request, &link, about, own, asked).await,
        };
        // What a task came to is fetched by `tasks/result`, after `tasks/get` said that it has ended.
        link.told_of_task(own, &outcome, asked == LegacyTask::Result);
        outcome
    }
}

impl<'a> TaskRequest<'a> {
    /// The request with the server's own id of the task.
    fn outgoing(
        self,
        request: &'a Request,
        own_json: &'a str,
        mirrored: Mirrored<'a>,
    ) -> Outgoing<'a> {
        Outgoing {
            tool: None,
            final_check: Some(self.final_check),
            method: &request.method,
            params: self.params,
            of_mgp: may_be_of_mgp(self.params),
            mcpl: None,
            edit: (self.id.get(), own_json),
            token: None,
            wish: None,
            mirrored,
        }
    }
}

async fn bridged(
    request: &Request,
    link: &Arc<Link>,
    about: TaskRequest<'_>,
    own: &str,
    asked: LegacyTask,
) -> Outcome {
    let task = Bridged {
        request,
        link,
        final_check: about.final_check,
        own,
        id: about.name,
    };
    match asked {
        LegacyTask::Get => bridged_tasks::get(&task).await,
        LegacyTask::Result => bridged_tasks::result(&task).await,
        LegacyTask::Cancel => bridged_tasks::cancel(&task).await,
    }
}

async fn passed(
    request: &Request,
    link: &Arc<Link>,
    about: TaskRequest<'_>,
    own: &str,
    asked: LegacyTask,
) -> Outcome {
    if asked == LegacyTask::Result {
        request.exchange.take_time();
        request.exchange.is_about(own, about.name);
    }
    let own_json = quoted(own);
    let outgoing = Outgoing {
        token: progress_token(about.params)?,
        wish: None,
        ..about.outgoing(request, &own_json, Mirrored::default())
    };
    let result = along(request, link, outgoing, Era::Legacy).await?;
    Ok(renamed(&result, about.name).map_or(result, Into::into))
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

/// The same refusal in all cases, so that guessing ids reveals nothing.
#[must_use]
pub fn unknown_task(id: &RawValue) -> Refusal {
    let id = serde_json::from_str::<String>(id.get()).unwrap_or_default();
    let id: String = id.chars().take(64).collect();
    Refusal::BadParams(format!(
        "unknown task {id:?}: it was not given to this client, or is forgotten"
    ))
}
