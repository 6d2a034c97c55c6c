//! A call that its server says may be tried again is tried again, where the server negotiated that with
//! the kernel (MGP §14.6).

use std::sync::Arc;

use bytestring::ByteString;
use mgp_engine::calls::retries::{CallAttempt, Retries, RetryDecision};
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::mgp::audit::{EventType, Outcome as Ending, Target};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::refusal::mgp::PeerError;
use mgp_protocol::splice::{Splice, quoted};

use crate::forward::Outgoing;
use crate::mcp::tools;
use crate::{Context, mgp};
use mgp_callers::request::{Outcome, Request};
use mgp_runtime::randomness;
use mgp_runtime::time::moment;
use mgp_servers::link::Link;
use mgp_store::audit::{by_agent, by_operator, event};

/// What becomes of a call that was answered.
pub(super) enum Next {
    /// It is tried again.
    Again,
    /// That was the answer.
    Done(Outcome),
}

/// Looks at an answer, and waits where the call is to be tried again later. `tries` are those of this call.
pub(super) async fn next(
    cx: &Context,
    request: &Request,
    outgoing: &Outgoing<'_>,
    tries: &mut Option<Retries>,
    outcome: Outcome,
) -> Next {
    let Err(Refusal::Peer(error)) = &outcome else {
        return Next::Done(outcome);
    };
    let Some((told, link)) = told(cx, outgoing, PeerError::read(error)) else {
        return Next::Done(outcome);
    };
    let tries = tries.get_or_insert_with(|| begun(request, outgoing, &link));
    // Spreads the waits of many callers.
    let [chance] = randomness::bytes();
    match tries.failed(&told, chance, moment()) {
        RetryDecision::GiveUp(_) => Next::Done(outcome),
        RetryDecision::Retry(attempt) => {
            tell_of(cx, request, outgoing, &attempt);
            tokio::select! {
                () = tokio::time::sleep(attempt.at.since(moment())) => Next::Again,
                () = request.exchange.cancelled() => Next::Done(Err(Refusal::Cancelled)),
                () = cx.closing.cancelled() => Next::Done(outcome),
            }
        }
        RetryDecision::Fallback(own) => {
            let instead = fall_back(cx, request, outgoing, &own).await;
            Next::Done(instead.unwrap_or(outcome))
        }
    }
}

/// Calls the other tool. `None` when that did not do either: the error of the tool that was asked
/// for is then reported as it came, and nothing is told of one the caller may not call.
async fn fall_back(
    cx: &Context,
    request: &Request,
    outgoing: &Outgoing<'_>,
    own: &str,
) -> Option<Outcome> {
    let other = fallback(cx, request, outgoing, own)?;
    let outcome = Box::pin(tools::call(cx, &other)).await;
    matches!(outcome, Ok(_) | Err(Refusal::Cancelled)).then_some(outcome)
}

/// What the server says about trying again, when it may say so: plain MCP knows no such thing.
fn told(
    cx: &Context,
    outgoing: &Outgoing<'_>,
    error: Option<PeerError>,
) -> Option<(PeerError, Arc<Link>)> {
    let link = cx.servers.load().get(outgoing.server)?.link()?;
    link.mgp().says_codes().then_some((error?, link))
}

/// MGP-212: one event for each try after the first.
fn tell_of(cx: &Context, request: &Request, outgoing: &Outgoing<'_>, attempt: &CallAttempt) {
    let caller = &request.caller;
    let actor = match caller.operator {
        true => by_operator(),
        false => by_agent(caller.agent.as_str()),
    };
    let target = Target {
        server_id: Some(outgoing.server.to_string()),
        tool_name: outgoing.tool.map(|tool| tool.own_name.to_string()),
        agent_id: None,
    };
    let details = attempt.details().into();
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

/// The same call of another tool of the same server, which the caller must see; it passes all the
/// checks of any call.
fn fallback(
    cx: &Context,
    request: &Request,
    outgoing: &Outgoing<'_>,
    own: &str,
) -> Option<Request> {
    let view = &request.caller.view;
    let name = match view {
        CatalogView::All => format!("{}:{own}", outgoing.server),
        CatalogView::One(_) => own.to_owned(),
    };
    let tool = cx.tool(view, &name)?;
    // What the kernel itself would do under that name is no server's to ask for.
    let own = mgp::access::tool(&request.caller, &name).is_some();
    if own || tool.server != *outgoing.server || !request.exchange.falls_back() {
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

fn begun(request: &Request, outgoing: &Outgoing<'_>, link: &Link) -> Retries {
    let own = outgoing.tool.map_or("", |tool| &tool.own_name);
    let retries = Retries::new(own, moment() + link.limits.call_timeout_max);
    match request.exchange.has_fallen_back() {
        true => retries.of_fallback(),
        false => retries,
    }
}
