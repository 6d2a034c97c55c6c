//! An upstream server as seen by calls: a request is written in the server's protocol version, and its answer in
//! the caller's.

mod links;
mod outgoing;
mod replay;
mod server_tasks;
mod start_reports;
mod streams;
mod task_bridge;
mod task_requests;
mod tasks;
mod to_legacy;
mod to_stateless;
mod trace;

pub use self::outgoing::{HeaderParams, McplMembers, Outgoing};
pub use self::replay::ReplayedRequest;
pub use self::server_tasks::FollowedTask;
pub use self::streams::StreamOptions;
pub use self::task_requests::{LegacyTask, TaskRequest, unknown_task};
pub use self::tasks::{TASKS_CAPABILITY, check_tasks_declared};
pub use self::trace::may_hold_mgp;

use std::borrow::Cow;
use std::sync::Arc;

use mgp_engine::callers::request_ids::WireId;
use mgp_engine::calls::outcome::mark_dispatched;
use mgp_json::{Splice, can_contain_string, member};
use mgp_protocol::dialect::{ProtocolFamily, Version};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::meta::progress_token;
use mgp_protocol::refusal::owner_refusal::OwnerAnswer;
use mgp_protocol::refusal::{Refusal, RefusalReason};
use mgp_protocol::versions;
use serde_json::value::RawValue;

use self::outgoing::render_frame;
use self::tasks::{allow_promotion, call_through_task, is_task_only};
use self::to_legacy::send_to_legacy;
use self::to_stateless::send_to_stateless;
use self::trace::add_trace;
use crate::link::{Call, Link};
use crate::negotiation;
use crate::server::ServerTable;
use mgp_callers::request::{Outcome, Request};
use mgp_runtime::trace::ChildSpan;

/// A server, by its id. Its connection is looked up for each request, because it may be restarted or removed in
/// between.
#[derive(Debug, Clone)]
pub struct Upstream<'a> {
    servers: &'a ServerTable,
    id: ServerId,
}

impl<'a> Upstream<'a> {
    /// Creates an upstream for this id, which need not exist.
    #[must_use]
    pub fn new(servers: &'a ServerTable, id: &ServerId) -> Self {
        let id = id.clone();
        Self { servers, id }
    }

    /// Sends a request; retries over a new connection if the first one was lost before the server had read the
    /// request.
    ///
    /// # Errors
    /// The reason why there is no answer, or the server's own error.
    pub async fn send(&self, request: &Request, outgoing: Outgoing<'_>) -> Outcome {
        request
            .call
            .start_attempt(is_continuation(request, outgoing));
        let outcome = self.send_over_link(request, outgoing).await;
        // Even if a later part was not sent, the call was made with the first part.
        outcome.map_err(|refusal| {
            if request.call.has_reached_in_attempt() {
                mark_dispatched(refusal, &self.id)
            } else {
                refusal
            }
        })
    }

    async fn send_over_link(&self, request: &Request, outgoing: Outgoing<'_>) -> Outcome {
        let mut first = true;
        loop {
            let link = self.link(request).await?;
            let caller = request.caller.version.family();
            let as_task = outgoing.tool.is_some_and(|tool| is_task_only(&link, tool));
            if !as_task {
                allow_promotion(request, &link, outgoing.tool);
            }
            let outcome = match (caller, link.choose_family(caller)) {
                (ProtocolFamily::Stateless, ProtocolFamily::Legacy) if as_task => {
                    Box::pin(call_through_task(request, &link, outgoing)).await
                }
                (ProtocolFamily::Legacy, ProtocolFamily::Stateless) => {
                    send_to_stateless(request, &link, outgoing).await
                }
                (ProtocolFamily::Stateless, ProtocolFamily::Legacy) => {
                    send_to_legacy(request, &link, outgoing).await
                }
                (ProtocolFamily::Legacy, ProtocolFamily::Legacy)
                | (ProtocolFamily::Stateless, ProtocolFamily::Stateless) => {
                    passthrough(request, &link, outgoing, caller).await
                }
            };
            match outcome {
                Err(refusal)
                    if first && is_unsent(&refusal) && may_begin_anew(request, outgoing) =>
                {
                    first = false;
                }
                outcome => {
                    link.record_created_task(&outcome);
                    return outcome;
                }
            }
        }
    }

    /// The connection for this request; waits a short time for a starting server.
    async fn link(&self, request: &Request) -> Result<Arc<Link>, Refusal> {
        let servers = self.servers.load();
        let handle = servers
            .get(&self.id)
            .ok_or_else(|| absence_refusal(&self.id))?;
        let (caller, in_flight) = (&request.caller, &request.call);
        let connecting = handle.connection_for(caller, in_flight);
        if handle.link().is_some() || !handle.starts_for_calls() {
            return connecting.await;
        }
        Box::pin(start_reports::with_progress(request, handle, connecting)).await
    }

    /// The connection for a request about a task: that of the generation that created it, which may have been
    /// replaced.
    async fn link_for_task(&self, request: &Request, own: &str) -> Result<Arc<Link>, Refusal> {
        match self.draining_link(own) {
            Some(link) => Ok(link),
            None => self.link(request).await,
        }
    }

    /// The connection of a replaced generation that still has this task.
    fn draining_link(&self, own: &str) -> Option<Arc<Link>> {
        let link = self.servers.load().get(&self.id)?.draining_link()?;
        link.has_task(own).then_some(link)
    }
}

/// The refusal if a server is no longer in the table: it was removed, or its node is unlinked.
fn absence_refusal(id: &ServerId) -> Refusal {
    match ServerId::parse(id.as_str()) {
        Ok(_) => Refusal::UnknownServer(id.to_string()),
        // The id of a server on another node.
        Err(_) => Refusal::NotReady {
            server: id.clone(),
            state: "disconnected",
            reason: Some("its node is away".into()),
            retry_after_ms: None,
            unreachable: true,
        },
    }
}

/// True for a later round of a call: its client returns the state that the server sent with its callback.
fn is_continuation(request: &Request, outgoing: Outgoing<'_>) -> bool {
    let params = outgoing.params;
    request.caller.version.family() == ProtocolFamily::Stateless
        && can_contain_string(params.as_bytes(), "requestState")
        && member(params, "requestState").is_some()
}

/// True if the lost server holds no part of the call: the request is the first part, or continues one whose
/// state the caller holds.
fn may_begin_anew(request: &Request, outgoing: Outgoing<'_>) -> bool {
    is_continuation(request, outgoing) || !request.call.has_reached_in_attempt()
}

/// True if the connection was lost before the server had read the request.
fn is_unsent(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NotReady {
            retry_after_ms: Some(0),
            ..
        }
    )
}

/// Sends the payload unchanged: caller and server speak the same protocol family.
async fn passthrough(
    request: &Request,
    link: &Arc<Link>,
    outgoing: Outgoing<'_>,
    family: ProtocolFamily,
) -> Outcome {
    let redeclared = match family {
        ProtocolFamily::Legacy => None,
        ProtocolFamily::Stateless => {
            let (client, server) = (&request.caller.mgp, link.mgp_for(family));
            let consents = link.limits.consents;
            negotiation::rewrite_declaration(outgoing.params, client, server, consents)
        }
    };
    let begun = |id| {
        let mut splice = outgoing.splice_params(Some(id));
        if let Some((declared, instead)) = redeclared {
            splice.replace(declared, instead);
        }
        splice
    };
    send_spliced((request, link), outgoing, family, outgoing.token, begun).await
}

/// Sends params that were already converted for the server.
async fn send_translated(
    request: &Request,
    link: &Arc<Link>,
    outgoing: Outgoing<'_>,
    family: ProtocolFamily,
    params: &str,
) -> Outcome {
    let outgoing = Outgoing { params, ..outgoing };
    let token = progress_token(params)?;
    let begun = |id: WireId| {
        let mut splice = Splice::new(params);
        if let Some(token) = token {
            splice.replace(token.get(), id.to_string());
        }
        splice
    };
    send_spliced((request, link), outgoing, family, token, begun).await
}

/// Sends a request: the params with the edits in `begun`, and what the kernel adds for this server.
async fn send_spliced<'a>(
    (request, link): (&Request, &Arc<Link>),
    outgoing: Outgoing<'a>,
    family: ProtocolFamily,
    token: Option<&RawValue>,
    begun: impl FnOnce(WireId) -> Splice<'a>,
) -> Outcome {
    let headers = outgoing.argument_headers(family);
    let requested = outgoing.requested_stream(request, link, family);
    let mut span = start_span(request, link, outgoing);
    let call = Call {
        caller: Some(&request.caller),
        in_flight: &request.call,
        token: token.map(RawValue::get),
        stream: requested.stream,
        mgp_progress: requested.wants_mgp_progress,
        family,
        final_check: outgoing.final_check,
        metadata_headers: outgoing.metadata_headers(&headers),
        span: span.as_ref(),
        trace: Some(&request.trace),
    };
    let outcome = link.call(call, |id| {
        let mut splice = begun(id);
        let part = (requested, id, span.as_ref());
        add_trace(request, link, family, outgoing, part, &mut splice);
        render_frame(id, outgoing.method, splice)
    });
    let outcome = outcome.await;
    finish_span(&mut span, &outcome);
    outcome
}

/// The span of a request to a server, if the caller's is sampled: with names, without content.
fn start_span(request: &Request, link: &Link, outgoing: Outgoing<'_>) -> Option<ChildSpan> {
    let tool = outgoing.tool.map(|tool| &*tool.own_name);
    let mut span = request.trace.start_client_span(outgoing.method, tool)?;
    if let Some(tool) = tool {
        span.set_attribute("gen_ai.operation.name", "execute_tool");
        span.set_attribute("gen_ai.tool.name", tool);
    }
    // The status until there is an answer; the caller may leave.
    span.set_error(Some(RefusalReason::Cancelled.as_str()));
    span.set_attribute("mgp.server.id", link.server.as_str());
    span.set_attribute(
        "network.transport",
        match link.transport() {
            "stdio" => "pipe",
            "node" => "quic",
            _ => "tcp",
        },
    );
    Some(span)
}

fn finish_span(span: &mut Option<ChildSpan>, outcome: &Outcome) {
    if let Some(span) = span {
        let refusal = outcome.as_ref().err();
        span.set_error(refusal.map(|refusal| refusal.spec().reason.as_str()));
    }
}

/// Converts the error of a stateless server for the caller; the kernel's own refusals stay unchanged.
fn translate_refusal(refusal: Refusal, version: Version, method: &str) -> Refusal {
    let translate = |error: &RawValue| {
        versions::convert_error(error, ProtocolFamily::Stateless, version, method).into_owned()
    };
    if let Refusal::Peer(error) = &refusal {
        return translate_server_error(translate(error).into());
    }
    if let Refusal::Unattributed(error) = &refusal
        && let Ok(translated) = RawValue::from_string(translate(error))
    {
        return Refusal::Unattributed(translated);
    }
    let Refusal::Owner(mut owner) = refusal else {
        return refusal;
    };
    owner.answer = match owner.answer {
        OwnerAnswer::Error(error) => {
            let raw = serde_json::from_str::<&RawValue>(&error).ok();
            OwnerAnswer::Error(raw.map(translate).unwrap_or(error))
        }
        OwnerAnswer::Result(result) => {
            OwnerAnswer::Result(versions::to_legacy_result(&result, version).into_owned())
        }
    };
    Refusal::Owner(owner)
}

/// Converts a server's error to the caller's protocol family.
fn translate_server_error(error: Cow<'_, str>) -> Refusal {
    match RawValue::from_string(error.into_owned()) {
        Ok(error) => Refusal::Peer(error),
        Err(error) => Refusal::Internal(format!("an error that is no JSON: {error}")),
    }
}
