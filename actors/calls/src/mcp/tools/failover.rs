//! Routes a call to one of several replicas of a tool, and to the next when that one is unavailable.

use std::sync::Arc;

use mgp_engine::calls::outcome::OUTCOME;
use mgp_engine::cluster::routes::{AttemptFailure, CallRoute, RouteAttempts};
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::ids::{AgentId, ServerId};
use mgp_protocol::mgp::audit::{EventType, Outcome as Ending, Target};
use mgp_protocol::refusal::Refusal;
use serde_json::json;

use super::{RequestedCall, call_at};
use crate::Context;
use crate::audit::PendingCallRecord;
use crate::replicas::{CallAffinity, find_replicas, replica_at};
use mgp_callers::request::{Outcome, Request};
use mgp_store::audit::{agent_actor, new_event, operator_actor};

/// A call of a tool with several replicas. Each replica has its own owner, so all checks run for each; a replica that
/// is closed to the caller is skipped for one that may be open.
pub(super) async fn call_with_failover(
    cx: &Context,
    request: &Request,
    facts: &PendingCallRecord,
    wanted: &RequestedCall<'_>,
    named: &Arc<CatalogTool>,
) -> Outcome {
    let (agent, who) = (&request.caller.agent, request.caller.identity());
    if let Some(server) = continuation_route(cx, agent, wanted.params, named)? {
        // Its replica may be unavailable, and no other one takes the call: it was made there.
        let Some(tool) = replica_at(cx, named, &server) else {
            facts.set_tool(named);
            let reason = "it asked what this answers, and is not there any more".into();
            return Err(Refusal::ServerLost { server, reason });
        };
        facts.set_destination(&tool, &CallRoute::for_continuation(server));
        let answer = call_at(cx, request, facts, wanted, &tool, false).await?;
        cx.affinity
            .record_continuation(agent, &tool.server, &answer);
        return Ok(answer);
    }
    let mut attempts = RouteAttempts::default();
    loop {
        let (places, mut candidates) = find_replicas(cx, &who, named);
        cx.affinity.remove_closed(agent, &mut candidates);
        let home = cx.affinity.affine_server(agent, named);
        let Some(choice) = attempts.next_route(&candidates, home.as_ref()) else {
            return match attempts.into_refusal() {
                Some(refusal) => Err(refusal),
                // All are unavailable or closed: treated as a tool without replicas.
                None => call_at(cx, request, facts, wanted, named, false).await,
            };
        };
        let chosen = places.iter().find(|tool| tool.server == choice.server);
        let tool = chosen.unwrap_or(named);
        facts.set_destination(tool, &choice);
        // Calls that come meanwhile go there, too.
        cx.affinity.record_route(agent, tool);
        let moves = attempts.can_fail_over(&candidates);
        let refusal = match call_at(cx, request, facts, wanted, tool, moves).await {
            Ok(answer) => {
                cx.affinity
                    .record_continuation(agent, &tool.server, &answer);
                return Ok(answer);
            }
            Err(refusal) => refusal,
        };
        cx.affinity.record_refusal(agent, &tool.server, &refusal);
        let idempotent = tool.requirements.idempotent;
        let failure = attempts.handle_failure(&refusal, idempotent, &candidates, home.as_ref())?;
        audit_failover(cx, request, tool, failure, &refusal);
    }
}

/// The replica that continues the call it answers a callback of: the one that asked, or the only one.
///
/// # Errors
/// It is not known any more which of several that was.
fn continuation_route(
    cx: &Context,
    agent: &AgentId,
    params: &str,
    named: &CatalogTool,
) -> Result<Option<ServerId>, Refusal> {
    if !CallAffinity::is_continuation(params) {
        return Ok(None);
    }
    if let Some(server) = cx.affinity.continuation_server(agent, params) {
        return Ok(Some(server));
    }
    let shown = cx.catalog.load();
    match shown.catalog.replicas(named) {
        [] => Ok(None),
        [only] => Ok(Some(only.server.clone())),
        _ => Err(Refusal::Expired(
            "which of several servers asked is not known any more".into(),
        )),
    }
}

/// One audit event for each replica that is left for another.
fn audit_failover(
    cx: &Context,
    request: &Request,
    tool: &CatalogTool,
    failure: AttemptFailure,
    why: &Refusal,
) {
    let caller = &request.caller;
    let actor = if caller.operator {
        operator_actor()
    } else {
        agent_actor(caller.agent.as_str())
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
    let told = new_event(kind, actor, target, trace, Ending::Failure, details);
    cx.audit.record(told);
}
