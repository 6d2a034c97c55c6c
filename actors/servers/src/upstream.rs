//! A server as calls see it: a request to it is written as the server speaks, and its answer as the caller
//! does.

mod bridged_tasks;
mod outgoing;
mod played;
mod standing;
mod streams;
mod task_requests;
mod tasks;
mod to_legacy;
mod to_modern;
mod trace;

pub use self::outgoing::{McplMembers, Mirrored, Outgoing};
pub use self::played::PlayedRequest;
pub use self::standing::{FollowedTask, LegacyTasks};
pub use self::streams::StreamWish;
pub use self::task_requests::{LegacyTask, TaskRequest, unknown_task};
pub use self::tasks::{EXTENSION, knows_tasks};
pub use self::trace::may_be_of_mgp;

use std::borrow::Cow;
use std::sync::Arc;

use mgp_engine::callers::request_ids::WireId;
use mgp_engine::calls::outcome::after_dispatch;
use mgp_engine::calls::telemetry::refusal_reasons::RefusalReason;
use mgp_protocol::dialect::{Era, Version};
use mgp_protocol::era;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::meta::progress_token;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::refusal::owner_refusal::OwnerAnswer;
use mgp_protocol::splice::mention::may_mention;
use mgp_protocol::splice::{Splice, member};
use serde_json::value::RawValue;

use self::outgoing::frame;
use self::tasks::{may_take_long, only_as_task, through_task};
use self::to_legacy::down;
use self::to_modern::rounds;
use self::trace::traced;
use crate::link::{Call, Link};
use crate::negotiation;
use crate::server::ServerTable;
use mgp_callers::request::{Outcome, Request};
use mgp_runtime::trace::PartSpan;

/// A server, by its id. Its connection is looked up for each request, because it may be restarted or
/// taken away between two.
#[derive(Debug, Clone)]
pub struct Upstream<'a> {
    servers: &'a ServerTable,
    id: ServerId,
}

impl<'a> Upstream<'a> {
    /// The server of this id, which need not exist.
    #[must_use]
    pub fn new(servers: &'a ServerTable, id: &ServerId) -> Self {
        let id = id.clone();
        Self { servers, id }
    }

    /// Sends a request; once more over a new connection when the first one was lost before the server
    /// had read the request.
    ///
    /// # Errors
    /// Whatever kept the answer from coming, or the server's own error.
    pub async fn send(&self, request: &Request, outgoing: Outgoing<'_>) -> Outcome {
        let mut first = true;
        loop {
            let link = match self.link(request).await {
                Err(refusal) if is_continuation(request, outgoing) => {
                    return Err(after_dispatch(refusal, &self.id));
                }
                link => link?,
            };
            let caller = request.caller.version.era();
            let as_task = outgoing.tool.is_some_and(|tool| only_as_task(&link, tool));
            if !as_task {
                may_take_long(request, &link, outgoing.tool);
            }
            let outcome = match (caller, link.era(caller)) {
                (Era::Modern, Era::Legacy) if as_task => {
                    Box::pin(through_task(request, &link, outgoing)).await
                }
                (Era::Legacy, Era::Modern) => rounds(request, &link, outgoing).await,
                (Era::Modern, Era::Legacy) => down(request, &link, outgoing).await,
                (Era::Legacy, Era::Legacy) | (Era::Modern, Era::Modern) => {
                    along(request, &link, outgoing, caller).await
                }
            };
            match outcome {
                Err(refusal) if first && is_untaken(&refusal) => first = false,
                Err(refusal) if is_continuation(request, outgoing) => {
                    return Err(after_dispatch(refusal, &self.id));
                }
                outcome => {
                    link.learn_task(&outcome);
                    return outcome;
                }
            }
        }
    }

    /// The connection that this request goes over; waits a little for a server that is starting.
    async fn link(&self, request: &Request) -> Result<Arc<Link>, Refusal> {
        let servers = self.servers.load();
        let handle = servers.get(&self.id).ok_or_else(|| absence(&self.id))?;
        let (caller, exchange) = (&request.caller, &request.exchange);
        handle.connection_of(caller, exchange).await
    }

    /// The connection that a request about a task goes over: that of the life that made it, which may have
    /// been replaced.
    async fn link_of_task(&self, request: &Request, own: &str) -> Result<Arc<Link>, Refusal> {
        match self.leaving(own) {
            Some(link) => Ok(link),
            None => self.link(request).await,
        }
    }

    /// The connection of a replaced life that still has this task.
    fn leaving(&self, own: &str) -> Option<Arc<Link>> {
        let link = self.servers.load().get(&self.id)?.leaving()?;
        link.has_task(own).then_some(link)
    }
}

/// Why a server is not in the table that was there when its tool was looked up: it was removed, or its node is away.
fn absence(id: &ServerId) -> Refusal {
    match ServerId::parse(id.as_str()) {
        Ok(_) => Refusal::UnknownServer(id.to_string()),
        // The id of a server of another node.
        Err(_) => Refusal::NotReady {
            server: id.clone(),
            state: "disconnected",
            reason: Some("its node is away".into()),
            retry_after_ms: None,
            unreachable: true,
        },
    }
}

/// True for a later round of a call: its client brings back what the server gave it with its question.
fn is_continuation(request: &Request, outgoing: Outgoing<'_>) -> bool {
    let params = outgoing.params;
    request.caller.version.era() == Era::Modern
        && may_mention(params.as_bytes(), "requestState")
        && member(params, "requestState").is_some()
}

/// True when the connection was lost before the server had read the request.
fn is_untaken(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NotReady {
            retry_after_ms: Some(0),
            ..
        }
    )
}

/// Caller and server speak the same era: the payload is sent unchanged.
async fn along(request: &Request, link: &Arc<Link>, outgoing: Outgoing<'_>, era: Era) -> Outcome {
    let redeclared = match era {
        Era::Legacy => None,
        Era::Modern => {
            let (client, server) = (&request.caller.mgp, link.mgp_in(era));
            let consents = link.limits.consents;
            negotiation::redeclared(outgoing.params, client, server, consents)
        }
    };
    let begun = |id| {
        let mut splice = outgoing.spliced(Some(id));
        if let Some((said, instead)) = redeclared {
            splice.replace(said, instead);
        }
        splice
    };
    sent((request, link), outgoing, era, outgoing.token, begun).await
}

/// Sends params that are already in the server's own words.
async fn translated(
    request: &Request,
    link: &Arc<Link>,
    outgoing: Outgoing<'_>,
    era: Era,
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
    sent((request, link), outgoing, era, token, begun).await
}

/// Sends a request: the params as they were `begun`, with what the kernel adds for this server.
async fn sent<'a>(
    (request, link): (&Request, &Arc<Link>),
    outgoing: Outgoing<'a>,
    era: Era,
    token: Option<&RawValue>,
    begun: impl FnOnce(WireId) -> Splice<'a>,
) -> Outcome {
    let headers = outgoing.headers(era);
    let asked = outgoing.asked(request, link, era);
    let mut span = asking(request, link, outgoing);
    let call = Call {
        caller: Some(&request.caller),
        exchange: &request.exchange,
        token: token.map(RawValue::get),
        stream: asked.stream,
        reports: asked.reports,
        era,
        final_check: outgoing.final_check,
        mirror: outgoing.mirror(&headers),
        span: span.as_ref(),
        trace: Some(&request.trace),
    };
    let outcome = link.call(call, |id| {
        let mut splice = begun(id);
        let part = (asked, id, span.as_ref());
        traced(request, link, era, outgoing, part, &mut splice);
        frame(id, outgoing.method, splice)
    });
    let outcome = outcome.await;
    answered(&mut span, &outcome);
    outcome
}

/// The span of a request to a server, where the caller's is sampled: with names, and nothing of what is asked.
fn asking(request: &Request, link: &Link, outgoing: Outgoing<'_>) -> Option<PartSpan> {
    let tool = outgoing.tool.map(|tool| &*tool.own_name);
    let mut span = request.trace.asking(outgoing.method, tool)?;
    if let Some(tool) = tool {
        span.set("gen_ai.operation.name", "execute_tool");
        span.set("gen_ai.tool.name", tool);
    }
    // As long as there is no answer: who waits for it may go.
    span.failed(Some(RefusalReason::Cancelled.as_str()));
    span.set("mgp.server.id", link.server.as_str());
    span.set(
        "network.transport",
        match link.transport() {
            "stdio" => "pipe",
            "node" => "quic",
            _ => "tcp",
        },
    );
    Some(span)
}

fn answered(span: &mut Option<PartSpan>, outcome: &Outcome) {
    if let Some(span) = span {
        let refusal = outcome.as_ref().err();
        span.failed(refusal.map(|refusal| RefusalReason::of(refusal).as_str()));
    }
}

/// What the other end of a modern request answered with, in the words of the caller; the kernel's own refusals as they
/// are.
fn in_words_of(refusal: Refusal, version: Version, method: &str) -> Refusal {
    let translate =
        |error: &RawValue| era::error_for(error, Era::Modern, version, method).into_owned();
    if let Refusal::Peer(error) = &refusal {
        return of_peer(translate(error).into());
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
            OwnerAnswer::Result(era::to_legacy_result(&result, version).into_owned())
        }
    };
    Refusal::Owner(owner)
}

/// A server's error, in the words of the caller's era.
fn of_peer(error: Cow<'_, str>) -> Refusal {
    match RawValue::from_string(error.into_owned()) {
        Ok(error) => Refusal::Peer(error),
        Err(error) => Refusal::Broken(format!("an error that is no JSON: {error}")),
    }
}
