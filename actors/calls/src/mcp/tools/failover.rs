//! Where a call of one of several tools goes that are alike, and where it goes next when that place is away.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mgp_engine::calls::outcome::OUTCOME;
use mgp_engine::cluster::routes::{CallAttempts, CallChoice, TryFailure};
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::audit::{EventType, Outcome as Ending, Target};
use mgp_protocol::refusal::Refusal;
use serde_json::json;

use super::{WantedCall, call_at};
use crate::Context;
use crate::audit::CallFacts;
use crate::replicas::{CallerHomes, place, places};
use mgp_callers::request::{Outcome, Request};
use mgp_store::audit::{by_agent, by_operator, event};

/// A call of a tool that may be called at several places. Each asks its own owner, so all checks are made for
/// each; a place that is closed to the caller is left for one that may be open.
pub(super) async fn call(
    cx: &Context,
    request: &Request,
    facts: &CallFacts,
    admitted: &AtomicBool,
    wanted: &WantedCall<'_>,
    named: &Arc<CatalogTool>,
) -> Outcome {
    let (agent, who) = (&request.caller.agent, request.caller.identity());
    if let Some(server) = round_place(cx, agent, wanted.params, named)? {
        // Its place may be gone, and no other one takes it: the call was made there.
        let Some(tool) = place(cx, named, &server) else {
            facts.is_of(named);
            let reason = "it asked what this answers, and is not there any more".into();
            return Err(Refusal::Lost { server, reason });
        };
        facts.goes_to(&tool, &CallChoice::of_round(server));
        let answer = call_at(cx, request, facts, admitted, wanted, &tool, false).await?;
        cx.homes.asks(agent, &tool.server, &answer);
        return Ok(answer);
    }
    let mut attempts = CallAttempts::default();
    loop {
        let (places, mut candidates) = places(cx, &who, named);
        cx.homes.leave_out_closed(agent, &mut candidates);
        let home = cx.homes.of(agent, named);
        let Some(choice) = attempts.next(&candidates, home.as_ref()) else {
            return match attempts.told() {
                Some(refusal) => Err(refusal),
                // All are away, or closed: as if it stood alone.
                None => call_at(cx, request, facts, admitted, wanted, named, false).await,
            };
        };
        let chosen = places.iter().find(|tool| tool.server == choice.server);
        let tool = chosen.unwrap_or(named);
        facts.goes_to(tool, &choice);
        // Calls that come meanwhile go there, too.
        cx.homes.went(agent, tool);
        let moves = attempts.goes_on(&candidates);
        let refusal = match call_at(cx, request, facts, admitted, wanted, tool, moves).await {
            Ok(answer) => {
                cx.homes.asks(agent, &tool.server, &answer);
                return Ok(answer);
            }
            Err(refusal) => refusal,
        };
        cx.homes.refused(agent, &tool.server, &refusal);
        let idempotent = tool.requirements.idempotent;
        let failure = attempts.failed(&refusal, idempotent, &candidates, home.as_ref())?;
        tell_of(cx, request, tool, failure, &refusal);
    }
}

/// The place that the call goes on at, where it answers a question: the one that asked, or the only one there is.
///
/// # Errors
/// It is not known any more which of several that was.
fn round_place(
    cx: &Context,
    agent: &AgentId,
    params: &str,
    named: &CatalogTool,
) -> Result<Option<ServerId>, Refusal> {
    if !CallerHomes::is_continuation(params) {
        return Ok(None);
    }
    if let Some(server) = cx.homes.asked(agent, params) {
        return Ok(Some(server));
    }
    let shown = cx.shown.load();
    match shown.catalog.replicas(named) {
        [] => Ok(None),
        [only] => Ok(Some(only.server.clone())),
        _ => Err(Refusal::Expired(
            "which of several servers asked is not known any more".into(),
        )),
    }
}

/// One audit event for each place that is left for another.
fn tell_of(
    cx: &Context,
    request: &Request,
    tool: &CatalogTool,
    failure: TryFailure,
    why: &Refusal,
) {
    let caller = &request.caller;
    let actor = match caller.operator {
        true => by_operator(),
        false => by_agent(caller.agent.as_str()),
    };
    let target = Target {
        server_id: Some(tool.server.to_string()),
        tool_name: Some(tool.own_name.to_string()),
        agent_id: None,
    };
    let details = json!({
        "elsewhere": true,
        "reason": why.to_string(),
        OUTCOME: failure.outcome(),
    });
    let (kind, trace) = (EventType::TOOL_RETRIED, &request.trace.id);
    let told = event(kind, actor, target, trace, Ending::Failure, details);
    cx.audit.tell(told);
}
