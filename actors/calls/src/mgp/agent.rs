//! `mgp/agent/ask` (later drafts), as a method and as a tool of the kernel: an agent asks another one, which
//! is connected, agreed to callbacks, and agreed in the configuration to answer it.

use std::sync::Arc;
use std::time::Duration;

use mgp_engine::callers::agent_asks::NotAskable;
use mgp_engine::callers::callbacks::{
    CallbackAnswer, CallbackForm, NotOpened, OpenCallback, Patience,
};
use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc;
use mgp_protocol::mcp::{self, Method};
use mgp_protocol::mgp::agent::{Ask, Asked};
use mgp_protocol::mgp::callback::{self, CallbackKind};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::spells;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::quoted;

use crate::Context;
use crate::answer::json;
use crate::audit::{self, CallFacts};
use crate::checks::access;
use mgp_callers::agent::Agent;
use mgp_callers::exchange::Delivery;
use mgp_callers::request::{Caller, Outcome, Request};
use mgp_runtime::time::{moment, sleep_for_answer};

/// Longest prompt with what goes with it, in bytes.
const PROMPT_MAX: usize = 256 << 10;

/// True when this tool is `mgp.agent.ask`, for who may ask.
pub(super) fn is_tool(caller: &Caller, name: &str) -> bool {
    let agreed = caller.mgp.features().contains(Features::CALLBACKS);
    (caller.operator || agreed) && spells(Ask::METHOD, name)
}

/// It is listed for who agreed to callbacks.
pub(super) fn listed(caller: &Caller) -> Option<&'static str> {
    let agreed = caller.mgp.features().contains(Features::CALLBACKS);
    agreed.then_some(Ask::METHOD)
}

/// As a method; in the audit log like the call of the tool.
///
/// # Errors
/// Why the other agent is not asked, or does not answer.
pub async fn ask(cx: &Context, request: &Request) -> Outcome {
    cx.policies.rates.call(&request.caller.agent)?;
    let params = request.params.as_deref();
    let made = async |facts: Arc<CallFacts>| {
        facts.asks_for(Ask::METHOD, request, params);
        answered(cx, request, params).await
    };
    audit::audited(cx, request, made).await
}

/// What the method answers, whichever way it was called.
pub(super) async fn answered(cx: &Context, request: &Request, params: Option<&str>) -> Outcome {
    let ask: Ask = mcp::read(params)?;
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
    // In one piece for all reasons: who is connected is nobody's business.
    let unasked = || {
        Refusal::Gone(format!(
            "{target} cannot be asked: it is not connected, takes no callbacks, or does not answer you \
             (`answers` in [agents.*] of the configuration)"
        ))
    };
    let agreed = match caller.operator {
        true => cx.answering.agreed(&target),
        false => cx.answering.answers(&target, &caller.agent),
    };
    let _under_way = cx
        .directory
        .agent_asks
        .begin(&caller.agent, &target)
        .map_err(refused)?;
    // Another agent is no part of a set.
    let agreed = agreed && !access::is_narrowed(cx, caller);
    let agent = cx.directory.askable(&target).filter(|_| agreed);
    let agent = agent.ok_or_else(unasked)?;
    let patience = Patience::of(ask.timeout_ms).lasts;
    tokio::select! {
        answer = put(cx, request, &agent, &prompt, patience) => match answer? {
            CallbackAnswer::Said(response) => json(&Asked {
                target_agent_id: target.to_string(),
                response: serde_json::from_str(&response).unwrap_or_default(),
            }),
            CallbackAnswer::Declined => Err(Refusal::Forbidden(format!("{target} declined to answer"))),
        },
        () = sleep_for_answer(patience) => Err(Refusal::TooLate(format!(
            "{target} did not answer within {} ms", patience.as_millis()
        ))),
        () = request.exchange.cancelled() => Err(Refusal::Cancelled),
    }
}

/// Puts the question as a callback.
async fn put(
    cx: &Context,
    request: &Request,
    agent: &Arc<Agent>,
    prompt: &str,
    patience: Duration,
) -> Result<CallbackAnswer, Refusal> {
    let form = CallbackForm::new(CallbackKind::Input, None);
    let form = form.map_err(|unfit| Refusal::BadParams(unfit.to_string()))?;
    let (asker, since) = (&request.caller, moment());
    let callback = OpenCallback {
        party: agent.connection,
        within: (asker.connection, request.exchange.began()),
        form,
        cascades: true,
        asker: asker.agent.to_string(),
        request: None,
        message: prompt.to_owned(),
        since,
        until: since + patience,
    };
    let mut open = cx
        .directory
        .callbacks
        .ask(callback)
        .map_err(|why| match why {
            NotOpened::TooDeep => Refusal::Forbidden(why.to_string()),
            NotOpened::TooMany => Refusal::Overloaded {
                what: "the list of callbacks that wait for that agent".into(),
            },
        })?;
    let params = format!(
        r#"{{"callback_id":{},"request_id":null,"agent_id":{},"type":"input","message":{},"timeout_ms":{}}}"#,
        quoted(open.id()),
        quoted(asker.agent.as_str()),
        quoted(prompt),
        patience.as_millis()
    );
    let frame = jsonrpc::notification(callback::Request::METHOD, Some(&params));
    agent.tell(frame.into(), Delivery::Reliable);
    Ok(open.answered().await)
}

fn refused(why: NotAskable) -> Refusal {
    match why {
        NotAskable::Itself => Refusal::BadParams(why.to_string()),
        NotAskable::Circle | NotAskable::TooDeep => Refusal::Forbidden(why.to_string()),
        NotAskable::TooMany => Refusal::Overloaded {
            what: "the list of agents that are being asked".into(),
        },
    }
}
