//! Requests about a server's task: those of stateless clients (the extension) and those of 2025-11-25 clients.

use std::sync::Arc;

use mgp_engine::callers::tasks::Maker;
use mgp_json::{Splice, member, quote};
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::mcp::meta::{RELATED_TASK, progress_token};
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use super::task_bridge::{self, BridgedTask};
use super::trace::may_hold_mgp;
use super::{HeaderParams, Outgoing, Upstream, is_unsent, passthrough};
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

/// A request about a task.
#[derive(Clone, Copy, Debug)]
pub struct TaskRequest<'a> {
    /// The server that created the task, with its own id.
    pub maker: &'a Maker,
    /// The client's id for it, as written in `params`.
    pub id: &'a RawValue,
    /// The client's id, parsed.
    pub name: &'a str,
    /// The params as the client sent them.
    pub params: &'a str,
    /// The caller's policy check, run again right before sending.
    pub final_check: &'a dyn FinalCheck,
}

impl Upstream<'_> {
    /// Forwards a stateless client's request about a task; over the next connection if the current one is
    /// closing.
    ///
    /// # Errors
    /// [`unknown_task`] if the server does not speak the extension; else as [`Self::send`].
    pub async fn send_task_request(&self, request: &Request, about: TaskRequest<'_>) -> Outcome {
        match self.send_task_request_once(request, about).await {
            Err(refusal) if is_unsent(&refusal) => {
                self.send_task_request_once(request, about).await
            }
            outcome => outcome,
        }
    }

    async fn send_task_request_once(&self, request: &Request, about: TaskRequest<'_>) -> Outcome {
        let (Maker::Modern { task: own } | Maker::Legacy { task: own }) = about.maker else {
            return Err(unknown_task(about.id));
        };
        let link = self.link_for_task(request, own).await?;
        if link.peer_for(ProtocolFamily::Stateless).is_none() {
            return Err(unknown_task(about.id));
        }
        link.check_task_answer(own, about.params)?;
        let own_json = quote(own);
        let mirrored = HeaderParams::with_name(own);
        let outgoing = about.outgoing(request, &own_json, mirrored);
        let outcome = passthrough(request, &link, outgoing, ProtocolFamily::Stateless).await;
        link.record_task_answer(own, &outcome, &*request.method == "tasks/get");
        let result = outcome?;
        let renamed = std::str::from_utf8(&result).ok().and_then(|result| {
            let named = member(result, "taskId")?;
            let mut splice = Splice::new(result);
            splice.replace(named, about.id.get());
            Some(splice.finish().into_owned())
        });
        Ok(renamed.map_or(result, Into::into))
    }

    /// Handles such a request of a 2025-11-25 client: forwards it, or bridges it to the extension if the server
    /// created the task that way.
    ///
    /// # Errors
    /// As [`Self::send_task_request`].
    pub async fn send_legacy_task_request(
        &self,
        request: &Request,
        about: TaskRequest<'_>,
        method: LegacyTask,
    ) -> Outcome {
        match self
            .send_legacy_task_request_once(request, about, method)
            .await
        {
            Err(refusal) if is_unsent(&refusal) => {
                self.send_legacy_task_request_once(request, about, method)
                    .await
            }
            outcome => outcome,
        }
    }

    async fn send_legacy_task_request_once(
        &self,
        request: &Request,
        about: TaskRequest<'_>,
        method: LegacyTask,
    ) -> Outcome {
        let missing = || unknown_task(about.id);
        let (family, own) = match about.maker {
            Maker::Legacy { task: own } => (ProtocolFamily::Legacy, own),
            Maker::Modern { task: own } => (ProtocolFamily::Stateless, own),
            Maker::Kernel { .. } => return Err(missing()),
        };
        let link = self.link_for_task(request, own).await?;
        link.peer_for(family).ok_or_else(missing)?;
        let outcome = match family {
            ProtocolFamily::Stateless => bridge(request, &link, about, own, method).await,
            ProtocolFamily::Legacy => pass_through(request, &link, about, own, method).await,
        };
        // The client has fetched the outcome with `tasks/result`, after `tasks/get` reported the end.
        link.record_task_answer(own, &outcome, method == LegacyTask::Result);
        outcome
    }
}

impl<'a> TaskRequest<'a> {
    /// The request with the server's own task id.
    fn outgoing(
        self,
        request: &'a Request,
        own_json: &'a str,
        mirrored: HeaderParams<'a>,
    ) -> Outgoing<'a> {
        Outgoing {
            tool: None,
            final_check: Some(self.final_check),
            method: &request.method,
            params: self.params,
            may_hold_mgp: may_hold_mgp(self.params),
            mcpl: None,
            edit: (self.id.get(), own_json),
            token: None,
            stream_options: None,
            header_params: mirrored,
        }
    }
}

async fn bridge(
    request: &Request,
    link: &Arc<Link>,
    about: TaskRequest<'_>,
    own: &str,
    method: LegacyTask,
) -> Outcome {
    let task = BridgedTask {
        request,
        link,
        final_check: about.final_check,
        server_task_id: own,
        client_task_id: about.name,
    };
    match method {
        LegacyTask::Get => task_bridge::get_task(&task).await,
        LegacyTask::Result => task_bridge::wait_for_result(&task).await,
        LegacyTask::Cancel => task_bridge::cancel_task(&task).await,
    }
}

async fn pass_through(
    request: &Request,
    link: &Arc<Link>,
    about: TaskRequest<'_>,
    own: &str,
    method: LegacyTask,
) -> Outcome {
    if method == LegacyTask::Result {
        request.call.disable_timeout();
        request.call.set_task(own, about.name);
    }
    let own_json = quote(own);
    let outgoing = Outgoing {
        token: progress_token(about.params)?,
        stream_options: None,
        ..about.outgoing(request, &own_json, HeaderParams::default())
    };
    let result = passthrough(request, link, outgoing, ProtocolFamily::Legacy).await?;
    Ok(rename_task(&result, about.name).map_or(result, Into::into))
}

/// A result with the client's task id instead of the server's own.
fn rename_task(result: &[u8], id: &str) -> Option<String> {
    let result = std::str::from_utf8(result).ok()?;
    let related = member(result, "_meta").and_then(|meta| member(meta, RELATED_TASK));
    let ids = [
        member(result, "taskId"),
        related.and_then(|related| member(related, "taskId")),
    ];
    let mut splice = Splice::new(result);
    for own in ids.into_iter().flatten() {
        splice.replace(own, quote(id));
    }
    Some(splice.finish().into_owned())
}

/// The refusal for unknown and foreign tasks alike, so that guessing ids reveals nothing.
#[must_use]
pub fn unknown_task(id: &RawValue) -> Refusal {
    let id = serde_json::from_str::<String>(id.get()).unwrap_or_default();
    let id: String = id.chars().take(64).collect();
    Refusal::BadParams(format!(
        "unknown task {id:?}: it was not given to this client, or is forgotten"
    ))
}
