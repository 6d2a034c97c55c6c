//! `context/*`, of agents that are MCPL hosts (MCPL §10): the kernel asks the servers behind it.

use mgp_mcpl::{AfterVerdict, HookOrigin};
use mgp_protocol::jsonrpc::INTERNAL_ERROR;
use mgp_protocol::mcpl::context::{AfterInference, BeforeInference};
use mgp_protocol::mcpl::inference::Lifecycle;
use mgp_protocol::mcpl::{HostCapabilities, McplError, McplVersion};
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::require_params;
use crate::mcpl::unhandled_method;
use mgp_callers::request::{Caller, Outcome, Request};

/// `context/beforeInference`: what all servers that take part add, in one answer (MCPL-152).
///
/// # Errors
/// Params that cannot be read.
pub async fn before_inference(cx: &Context, request: &Request) -> Outcome {
    let Some(origin) = origin(cx, &request.caller) else {
        return unhandled_method(request);
    };
    let asked = BeforeInference::read(require_params(request)?).map_err(Refusal::BadParams)?;
    let verdict = cx.hooks.before_inference(&origin, &asked).await;
    Ok(verdict.to_json().into())
}

/// `context/afterInference`, as a request: what is left of an answer when all servers that are waited for have seen it
/// (MCPL-153).
///
/// # Errors
/// Params that cannot be read; an answer that is withheld, in words for the user.
pub async fn after_inference(cx: &Context, request: &Request) -> Outcome {
    let Some(origin) = origin(cx, &request.caller) else {
        return unhandled_method(request);
    };
    let told = AfterInference::read(require_params(request)?).map_err(Refusal::BadParams)?;
    let chain = cx.hooks.after_inference(&origin, &told).await;
    match (chain.to_json(), chain.verdict) {
        (_, AfterVerdict::Withheld(why)) => {
            Err(McplError::new(INTERNAL_ERROR, why.to_string()).into())
        }
        (answer, _) => Ok(answer.unwrap_or_else(|| "{}".into()).into()),
    }
}

/// `context/afterInference`, as a notification: the servers are asked and told as of a request, and the agent, which
/// does not wait, hears nothing of it. What it sends out of this inference through the kernel waits all the same.
pub fn handle_inference_finished(cx: &Context, caller: &Caller, params: Option<&str>) {
    if let Some(origin) = origin(cx, caller) {
        cx.hooks
            .notify_after(origin, params.unwrap_or("{}").to_owned());
    }
}

/// `inference/lifecycle` of a host that speaks 0.5: passed to the servers of 0.5, without anything that was said.
pub fn handle_phase(cx: &Context, caller: &Caller, params: Option<&str>) {
    let speaks_0_5 = |mcpl: &HostCapabilities| mcpl.features.version == McplVersion::V0_5;
    if !caller.mcpl.as_deref().is_some_and(speaks_0_5) {
        return;
    }
    let Some(origin) = origin(cx, caller) else {
        return;
    };
    match Lifecycle::read(params.unwrap_or("{}")) {
        Ok(phase) => cx.hooks.notify_phase(&origin, &phase),
        Err(why) => tracing::debug!("inference/lifecycle cannot be read: {why}"),
    }
}

/// The agent as the origin of an inference; none when it is no host, or has gone.
fn origin(cx: &Context, caller: &Caller) -> Option<HookOrigin> {
    cx.mcpl_agents.get(caller.connection).map(HookOrigin::Agent)
}
