//! Retries of a call: if its server reports that it can be retried and that was negotiated with the server (MGP
//! §14.6), or if it was lost and the operator marked its tool as idempotent.

use std::time::Duration;

use bytestring::ByteString;
use mgp_engine::calls::outcome::{self, IdempotentRetries};
use mgp_engine::calls::retries::{Retries, RetryDecision};
use mgp_engine::tools::catalog::CatalogView;
use mgp_json::{Splice, quote};
use mgp_protocol::mgp::audit::{EventType, Outcome as Ending, Target};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::refusal::mgp::PeerError;
use serde_json::{Value, json};

use crate::Context;
use crate::mcp::tools;
use crate::mgp::kernel_tool::{self, KernelTool};
use mgp_callers::request::{Outcome, Request};
use mgp_runtime::randomness;
use mgp_runtime::time::monotonic_now;
use mgp_servers::upstream::{Outgoing, Upstream};
use mgp_store::audit::{agent_actor, new_event, operator_actor};

/// What to do after an answer.
pub(super) enum NextStep {
    /// Try again.
    Retry,
    /// This is the final answer.
    Done(Outcome),
}

/// The tries of one call.
#[derive(Debug, Default)]
pub(super) struct RetryState {
    server_retries: Option<Retries>,
    idempotent: IdempotentRetries,
}

/// Evaluates an answer, and waits if the call is to be retried later. `tries` counts the attempts of this call.
pub(super) async fn decide_next_step(
    cx: &Context,
    request: &Request,
    upstream: &Upstream<'_>,
    outgoing: &Outgoing<'_>,
    tries: &mut RetryState,
    outcome: Outcome,
) -> NextStep {
    if let Err(refusal) = &outcome
        && outgoing
            .tool
            .is_some_and(|tool| tool.requirements.idempotent)
        && let Some(wait) = tries.idempotent.next_delay(refusal, monotonic_now())
    {
        let details = json!({
            "attempt": tries.idempotent.count(),
            "wait_ms": millis(wait),
            "reason": refusal.to_string(),
            outcome::OUTCOME: outcome::for_refusal(refusal),
        });
        audit_retry(cx, request, upstream, outgoing, details);
        return wait_to_retry(cx, request, wait, outcome).await;
    }
    let Err(Refusal::Peer(error)) = &outcome else {
        return NextStep::Done(outcome);
    };
    let Some((told, time)) = retry_advice(upstream, PeerError::parse(error)) else {
        return NextStep::Done(outcome);
    };
    let tries = tries
        .server_retries
        .get_or_insert_with(|| start_retries(request, outgoing, time));
    // Spreads the retries of many callers over time.
    let [chance] = randomness::random_bytes();
    match tries.handle_failure(&told, chance, monotonic_now()) {
        RetryDecision::GiveUp(_) => NextStep::Done(outcome),
        RetryDecision::Retry(attempt) => {
            audit_retry(cx, request, upstream, outgoing, attempt.details().into());
            wait_to_retry(
                cx,
                request,
                attempt.due_at.duration_since(monotonic_now()),
                outcome,
            )
            .await
        }
        RetryDecision::Fallback(own) => {
            let instead = call_fallback(cx, request, upstream, outgoing, &own).await;
            NextStep::Done(instead.unwrap_or(outcome))
        }
    }
}

/// Tries again after this wait, unless the caller or the kernel goes first.
async fn wait_to_retry(
    cx: &Context,
    request: &Request,
    wait: Duration,
    outcome: Outcome,
) -> NextStep {
    tokio::select! {
        () = tokio::time::sleep(wait) => NextStep::Retry,
        () = request.call.wait_until_cancelled() => NextStep::Done(Err(Refusal::Cancelled)),
        () = cx.shutdown.cancelled() => NextStep::Done(outcome),
    }
}

/// Calls the fallback tool. `None` when that fails too: then the error of the first tool is returned
/// unchanged, and nothing is revealed of a tool the caller may not call.
async fn call_fallback(
    cx: &Context,
    request: &Request,
    upstream: &Upstream<'_>,
    outgoing: &Outgoing<'_>,
    own: &str,
) -> Option<Outcome> {
    let other = build_fallback(cx, request, upstream, outgoing, own)?;
    let nested = request.call.start_nested();
    let outcome = Box::pin(tools::call(cx, &other)).await;
    drop(nested);
    matches!(outcome, Ok(_) | Err(Refusal::Cancelled)).then_some(outcome)
}

/// The server's retry hints, if negotiated, and how long retries may take; plain MCP has no such hints.
fn retry_advice(
    upstream: &Upstream<'_>,
    error: Option<PeerError>,
) -> Option<(PeerError, Duration)> {
    let time = upstream.retry_time_limit()?;
    Some((error?, time))
}

/// MGP-212: one audit event for each try after the first.
fn audit_retry(
    cx: &Context,
    request: &Request,
    upstream: &Upstream<'_>,
    outgoing: &Outgoing<'_>,
    details: Value,
) {
    let caller = &request.caller;
    let actor = if caller.operator {
        operator_actor()
    } else {
        agent_actor(caller.agent.as_str())
    };
    let target = Target {
        server_id: Some(upstream.id().to_string()),
        tool_name: outgoing.tool.map(|tool| tool.own_name.to_string()),
        agent_id: None,
    };
    let kind = EventType::TOOL_RETRIED;
    cx.audit.record(new_event(
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
fn build_fallback(
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
        || KernelTool::from_name(cx, &request.caller, &name).is_some();
    if own || tool.server != *upstream.id() || request.call.has_fallen_back() {
        return None;
    }
    let mut splice = Splice::new(outgoing.params);
    splice.replace(outgoing.edit.0, quote(&name));
    Some(Request {
        caller: request.caller.clone(),
        call: request.call.clone(),
        method: request.method.clone(),
        params: Some(ByteString::from(splice.finish().into_owned())),
        trace: request.trace.clone(),
    })
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

fn start_retries(request: &Request, outgoing: &Outgoing<'_>, time: Duration) -> Retries {
    let own = outgoing.tool.map_or("", |tool| &tool.own_name);
    let retries = Retries::new(own, monotonic_now() + time);
    if request.call.has_fallen_back() {
        retries.into_fallback()
    } else {
        retries
    }
}
