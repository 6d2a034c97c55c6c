//! Retries of a call: where its server says that it may be tried again and that was negotiated with the
//! server (MGP §14.6), and where it was lost and the operator marked its tool as idempotent.

use std::time::Duration;

use bytestring::ByteString;
use mgp_engine::calls::outcome::{self, IdempotentTries};
use mgp_engine::calls::retries::{Retries, RetryDecision};
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::mgp::audit::{EventType, Outcome as Ending, Target};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::refusal::mgp::PeerError;
use mgp_protocol::splice::{Splice, quoted};
use serde_json::{Value, json};

use crate::Context;
use crate::mcp::tools;
use crate::mgp::kernel_tool::{self, KernelTool};
use mgp_callers::request::{Outcome, Request};
use mgp_runtime::randomness;
use mgp_runtime::time::moment;
use mgp_servers::upstream::{Outgoing, Upstream};
use mgp_store::audit::{by_agent, by_operator, event};

/// What to do after an answer.
pub(super) enum Next {
    /// Try again.
    Again,
    /// This is the final answer.
    Done(Outcome),
}

/// The tries of one call.
#[derive(Debug, Default)]
pub(super) struct Tries {
    told: Option<Retries>,
    idempotent: IdempotentTries,
}

/// Judges an answer, and waits where the call is to be retried later. `tries` counts those of this call.
pub(super) async fn next(
    cx: &Context,
    request: &Request,
    upstream: &Upstream<'_>,
    outgoing: &Outgoing<'_>,
    tries: &mut Tries,
    outcome: Outcome,
) -> Next {
    if let Err(refusal) = &outcome
        && outgoing
            .tool
            .is_some_and(|tool| tool.requirements.idempotent)
        && let Some(wait) = tries.idempotent.failed(refusal, moment())
    {
        let details = json!({
            "attempt": tries.idempotent.done(),
            "wait_ms": millis(wait),
            "reason": refusal.to_string(),
            outcome::OUTCOME: outcome::of_refusal(refusal),
        });
        tell_of(cx, request, upstream, outgoing, details);
        return waited(cx, request, wait, outcome).await;
    }
    let Err(Refusal::Peer(error)) = &outcome else {
        return Next::Done(outcome);
    };
    let Some((told, time)) = told(upstream, PeerError::read(error)) else {
        return Next::Done(outcome);
    };
    let tries = tries
        .told
        .get_or_insert_with(|| begun(request, outgoing, time));
    // Spreads the retries of many callers over time.
    let [chance] = randomness::bytes();
    match tries.failed(&told, chance, moment()) {
        RetryDecision::GiveUp(_) => Next::Done(outcome),
        RetryDecision::Retry(attempt) => {
            tell_of(cx, request, upstream, outgoing, attempt.details().into());
            waited(cx, request, attempt.at.since(moment()), outcome).await
        }
        RetryDecision::Fallback(own) => {
            let instead = fall_back(cx, request, upstream, outgoing, &own).await;
            Next::Done(instead.unwrap_or(outcome))
        }
    }
}

/// Tries again after this wait, unless the caller or the kernel goes first.
async fn waited(cx: &Context, request: &Request, wait: Duration, outcome: Outcome) -> Next {
    tokio::select! {
        () = tokio::time::sleep(wait) => Next::Again,
        () = request.exchange.cancelled() => Next::Done(Err(Refusal::Cancelled)),
        () = cx.closing.cancelled() => Next::Done(outcome),
    }
}

/// Calls the fallback tool. `None` when that fails too: then the error of the first tool is returned
/// unchanged, and nothing is revealed of a tool the caller may not call.
async fn fall_back(
    cx: &Context,
    request: &Request,
    upstream: &Upstream<'_>,
    outgoing: &Outgoing<'_>,
    own: &str,
) -> Option<Outcome> {
    let other = fallback(cx, request, upstream, outgoing, own)?;
    let outcome = Box::pin(tools::call(cx, &other)).await;
    matches!(outcome, Ok(_) | Err(Refusal::Cancelled)).then_some(outcome)
}

/// What the server says about retries, if it negotiated that, and how long they may take; plain MCP has
/// nothing of the kind.
fn told(upstream: &Upstream<'_>, error: Option<PeerError>) -> Option<(PeerError, Duration)> {
    let time = upstream.retry_time()?;
    Some((error?, time))
}

/// MGP-212: one audit event for each try after the first.
fn tell_of(
    cx: &Context,
    request: &Request,
    upstream: &Upstream<'_>,
    outgoing: &Outgoing<'_>,
    details: Value,
) {
    let caller = &request.caller;
    let actor = match caller.operator {
        true => by_operator(),
        false => by_agent(caller.agent.as_str()),
    };
    let target = Target {
        server_id: Some(upstream.id().to_string()),
        tool_name: outgoing.tool.map(|tool| tool.own_name.to_string()),
        agent_id: None,
    };
    let kind = EventType::TOOL_RETRIED;
    cx.audit.tell(event(
        kind,
        actor,
        target,
        &request.trace.id,
        Ending::Failure,
        details,
    ));
}

/// The same call of another tool of the same server, which the caller must be able to see; it passes all
/// checks.
fn fallback(
    cx: &Context,
    request: &Request,
    upstream: &Upstream<'_>,
    outgoing: &Outgoing<'_>,
    own: &str,
) -> Option<Request> {
    let view = &request.caller.view;
    let name = match view {
        CatalogView::All | CatalogView::Set(_) => format!("{}:{own}", upstream.id()),
        CatalogView::One(_) => own.to_owned(),
    };
    let tool = cx.tool(view, &name)?;
    // A server must not redirect a call to one of the kernel's own tools.
    let own = kernel_tool::meta_tool(&request.caller, &name).is_some()
        || KernelTool::named(cx, &request.caller, &name).is_some();
    if own || tool.server != *upstream.id() || !request.exchange.falls_back() {
        return None;
    }
    let mut splice = Splice::new(outgoing.params);
    splice.replace(outgoing.edit.0, quoted(&name));
    Some(Request {
        caller: request.caller.clone(),
        exchange: request.exchange.clone(),
        method: request.method.clone(),
        params: Some(ByteString::from(splice.finish().into_owned())),
        trace: request.trace.clone(),
    })
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

fn begun(request: &Request, outgoing: &Outgoing<'_>, time: Duration) -> Retries {
    let own = outgoing.tool.map_or("", |tool| &tool.own_name);
    let retries = Retries::new(own, moment() + time);
    match request.exchange.has_fallen_back() {
        true => retries.of_fallback(),
        false => retries,
    }
}
