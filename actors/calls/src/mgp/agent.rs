//! `mgp/agent/ask` (later drafts), as a method and as a kernel tool: an agent asks another connected agent that
//! supports callbacks and is configured to answer it.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::callers::agent_requests::AgentRequestError;
use mgp_engine::callers::callbacks::{
    CallbackAnswer, CallbackForm, CallbackTimeout, OpenCallback, OpenCallbackError,
};
use mgp_json::quote;
use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::agent::{Ask, AskResult};
use mgp_protocol::mgp::callback::{self, CallbackKind};
use mgp_protocol::mgp::matches_method;
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::refusal::{Denial, Refusal};

use crate::Context;
use crate::answer::json_outcome;
use crate::audit::{self, PendingCallRecord};
use crate::checks::access;
use mgp_callers::Delivery;
use mgp_callers::agent::Agent;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_runtime::time::{monotonic_now, sleep_with_grace};

/// Longest prompt with what goes with it, in bytes.
const PROMPT_MAX: usize = 256 << 10;

/// True when this tool is `mgp.agent.ask`, for who may ask.
pub(super) fn is_tool(caller: &Caller, name: &str) -> bool {
    let agreed = caller.mgp.features().contains(Features::CALLBACKS);
    (caller.operator || agreed) && matches_method(Ask::METHOD, name)
}

/// It is listed for who agreed to callbacks.
pub(super) fn tool_definition(caller: &Caller) -> Option<&'static str> {
    let agreed = caller.mgp.features().contains(Features::CALLBACKS);
    agreed.then_some(Ask::METHOD)
}

/// As a method; in the audit log like the call of the tool.
///
/// # Errors
/// Why the other agent is not asked, or does not answer.
pub async fn ask(cx: &Context, request: &Request) -> Outcome {
    cx.policies.count_call(&request.caller)?;
    let params = request.params.as_deref();
    let made = async |facts: Arc<PendingCallRecord>| {
        facts.set_request(Ask::METHOD, request, params);
        execute(cx, request, params).await
    };
    audit::run_audited(cx, request, made).await
}

/// What the method answers, whichever way it was called.
pub(super) async fn execute(cx: &Context, request: &Request, params: Option<&str>) -> Outcome {
    let ask: Ask = mcp::parse_params(params)?;
    let caller = &request.caller;
    let target = AgentId::parse(&ask.target_agent_id)
        .map_err(|why| Refusal::BadParams(format!("`target_agent_id`: {why}")))?;
    let prompt = match &ask.context {
        Some(context) => format!("{}\n\n{context}", ask.prompt),
        None => ask.prompt.clone(),
    };
    if prompt.len() > PROMPT_MAX {
        let words = format!("`prompt` and `context` are longer than {PROMPT_MAX} bytes");
        return Err(Refusal::BadParams(words));
    }
    // One error for all reasons: the caller must not learn who is connected.
    let unasked = || {
        Refusal::UnknownId(format!(
            "{target} cannot be asked: it is not connected, takes no callbacks, or does not answer you \
             (`answers` in [agents.*] of the configuration)"
        ))
    };
    let agreed = if caller.operator {
        cx.answering_agents.accepts_requests(&target)
    } else {
        cx.answering_agents
            .accepts_requests_from(&target, &caller.agent)
    };
    let _under_way = cx
        .directory
        .agent_requests
        .begin(&caller.agent, &target)
        .map_err(agent_request_refusal)?;
    // Another agent is no part of a set.
    let agreed = agreed && !access::is_restricted_by_set(cx, caller);
    let agent = cx.directory.callback_connection(&target).filter(|_| agreed);
    let agent = agent.ok_or_else(unasked)?;
    let patience = CallbackTimeout::from_timeout_ms(ask.timeout_ms).duration;
    tokio::select! {
        answer = send_callback(cx, request, &agent, &prompt, patience) => match answer? {
            CallbackAnswer::Response(response) => json_outcome(&AskResult {
                target_agent_id: target.to_string(),
                response: serde_json::from_str(&response).unwrap_or_default(),
            }),
            CallbackAnswer::Declined => Err(Refusal::Forbidden(format!("{target} declined to answer"))),
        },
        () = sleep_with_grace(patience) => Err(Refusal::WindowExpired(format!(
            "{target} did not answer within {} ms", patience.as_millis()
        ))),
        () = request.call.wait_until_cancelled() => Err(Refusal::Cancelled),
    }
}

/// Puts the question as a callback.
async fn send_callback(
    cx: &Context,
    request: &Request,
    agent: &Arc<Agent>,
    prompt: &str,
    patience: Duration,
) -> Result<CallbackAnswer, Refusal> {
    let form = CallbackForm::new(CallbackKind::Input, None);
    let form = form.map_err(|unfit| Refusal::BadParams(unfit.to_string()))?;
    let (asker, since) = (&request.caller, monotonic_now());
    let callback = OpenCallback {
        client: agent.connection,
        origin_call: (asker.connection, request.call.started_at()),
        form,
        cascades: true,
        requester: asker.agent.to_string(),
        request_id: None,
        message: prompt.to_owned(),
        opened_at: since,
        expires_at: since + patience,
    };
    let mut open = cx
        .directory
        .callbacks
        .open(callback)
        .map_err(|why| match why {
            OpenCallbackError::TooDeep => Refusal::Forbidden(why.to_string()),
            OpenCallbackError::TooMany => Refusal::Overloaded {
                what: "the list of callbacks that wait for that agent".into(),
            },
        })?;
    let params = format!(
        r#"{{"callback_id":{},"request_id":null,"agent_id":{},"type":"input","message":{},"timeout_ms":{}}}"#,
        quote(open.id()),
        quote(asker.agent.as_str()),
        quote(prompt),
        patience.as_millis()
    );
    let frame = jsonrpc::notification(callback::Request::METHOD, Some(&params));
    agent.send(frame.into(), Delivery::Reliable);
    Ok(open.wait_for_answer().await)
}

fn agent_request_refusal(why: AgentRequestError) -> Refusal {
    match why {
        AgentRequestError::SameAgent => Refusal::BadParams(why.to_string()),
        AgentRequestError::Cycle => Refusal::Denied(Box::new(Denial::AskCycle(why.to_string()))),
        AgentRequestError::TooDeep => Refusal::Denied(Box::new(Denial::AskDepth(why.to_string()))),
        AgentRequestError::TooMany => Refusal::Overloaded {
            what: "the list of agents that are being asked".into(),
        },
    }
}
