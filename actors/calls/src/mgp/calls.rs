//! `mgp/calls/show`: what became of a call, from the audit log. The operator asks about any, an agent about
//! its own.

use mgp_protocol::mcp;
use mgp_protocol::mgp::audit::TraceId;
use mgp_protocol::mgp::calls::Show;
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::json;
use mgp_callers::request::{Outcome, Request};

/// `mgp/calls/show`. The call of another agent is one that does not exist.
///
/// # Errors
/// [`Refusal::BadParams`] for what is no id; [`Refusal::Gone`] where nothing can be said, with why.
pub async fn show(cx: &Context, request: &Request) -> Outcome {
    let asked: Show = mcp::read(request.params.as_deref())?;
    let id = TraceId::parse(&asked.call_id).map_err(|_| no_id(&asked.call_id))?;
    let agent = &request.caller.agent;
    let own = !request.caller.operator;
    if own {
        // It reads the whole log: it counts as a call.
        cx.policies.rates.call(agent)?;
    }
    let whose = own.then(|| agent.to_string());
    let found = cx.audit.calls_of(&id, whose).await?;
    let told = found.told(id.as_str(), own);
    json(&told.map_err(|none| Refusal::Gone(none.to_string()))?)
}

fn no_id(said: &str) -> Refusal {
    let said: String = said.chars().take(60).collect();
    Refusal::BadParams(format!(
        "`{said}` is no id of a call: that is a UUID such as 550e8400-e29b-41d4-a716-446655440000; the error of \
         the call names it, and `mgp audit tail --json` as `trace_id`"
    ))
}
