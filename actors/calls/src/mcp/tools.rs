//! `tools/call`: of a tool of a server, or of one of the kernel's own.

mod failover;
mod retries;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::calls::outcome::after_answer;
use mgp_engine::calls::telemetry::refusal_reasons::RefusalReason;
use mgp_engine::tools::catalog::{CatalogTool, ListKind};
use mgp_protocol::mcp::{self, tools};
use mgp_protocol::mgp::tools::meta::MetaTool;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::member;
use serde_json::value::RawValue;

use self::retries::{Next, Tries};
use crate::answer::{required, structured, text};
use crate::audit::{self, CallFacts, CallPart};
use crate::checks::arrival::{self, named_item};
use crate::checks::{Check, ToolCall, access, schema};
use crate::mcp::tasks;
use crate::mcpl::call::CheckedCall;
use crate::mgp::kernel_tool::{self, KernelTool};
use crate::mgp::tools::session;
use crate::{Context, cut_results, mcpl, mgp};
use mgp_callers::request::{Answering, Caller, Outcome, Request};
use mgp_runtime::time::moment;
use mgp_servers::link::FinalCheck;
use mgp_servers::upstream::{Mirrored, Outgoing, StreamWish};

/// How long a call whose tool has changed waits for the server's tools to be fetched again.
const FETCHED_AGAIN: Duration = Duration::from_millis(500);

/// Calls a tool: checks the arguments before the call is sent, and a structured result when it comes
/// back.
///
/// # Errors
/// Any refusal of a call.
pub async fn call(cx: &Context, request: &Request) -> Outcome {
    let admitted = AtomicBool::new(false);
    let made = async |facts: Arc<CallFacts>| {
        let generation = cx.shown.load().catalog.generation();
        match call_once(cx, request, &facts, &admitted).await {
            // The headers were made from an older definition of the tool; the server has done nothing yet.
            Err(Refusal::Peer(error))
                if is_mismatch(&error)
                    && reads_headers(cx, &facts)
                    && fetched_again(cx, generation).await =>
            {
                call_once(cx, request, &facts, &admitted).await
            }
            outcome => outcome,
        }
    };
    let under_way = mgp::stream::begun(cx, request);
    let outcome = audit::audited(cx, request, made).await;
    if under_way.is_some() {
        mgp::stream::ended(request, &outcome).await;
    }
    // The audit log records the denial; the caller may not learn of it.
    let shown = admitted.load(Ordering::Relaxed);
    outcome.map_err(|refusal| access::denied(cx, &request.caller, refusal, shown))
}

/// `mgp/tools/call`: calls a tool that search returned as if it had been in the caller's list.
///
/// # Errors
/// [`Refusal::BadParams`]; any refusal of a call.
pub async fn call_found(cx: &Context, request: &Request) -> Outcome {
    let found = mcp::read(request.params.as_deref())?;
    let found = mgp::tools::called(request, found)?;
    Box::pin(call(cx, &found)).await
}

/// True when a newer catalog is published in time.
async fn fetched_again(cx: &Context, generation: u64) -> bool {
    let published = newer(cx, generation);
    tokio::time::timeout(FETCHED_AGAIN, published).await.is_ok()
}

/// Resolves when a newer catalog is published.
async fn newer(cx: &Context, generation: u64) {
    loop {
        let shown = cx.shown.load();
        if shown.catalog.generation() > generation {
            return;
        }
        let replaced = shown.replaced.clone();
        drop(shown);
        replaced.cancelled_owned().await;
    }
}

async fn call_once(
    cx: &Context,
    request: &Request,
    facts: &CallFacts,
    admitted: &AtomicBool,
) -> Outcome {
    let params = required(request)?;
    let call: tools::Call<'_> = mcp::read(Some(params))?;
    let name = text(call.name, "name")?;
    let token = mcp::Meta::read(call.meta)?.progress_token;
    facts.asks_for(&name, request, call.arguments.map(RawValue::get));
    let arguments = call.arguments.map_or("{}", RawValue::get);
    if let Some(tool) = kernel_tool::meta_tool(&request.caller, &name) {
        let answer = by_meta_tool(cx, request, tool, arguments, facts, admitted);
        return Box::pin(answer).await;
    }
    cx.policies.rates.call(&request.caller.agent)?;
    if let Some(tool) = KernelTool::named(cx, &request.caller, &name) {
        return Box::pin(tool.answer(cx, request, call.arguments)).await;
    }
    let tool = match cx.tool(&request.caller.view, &name) {
        Some(tool) => tool,
        None => Box::pin(arriving(cx, request, &name)).await?,
    };
    if let Some(params) = mcpl::call::without_own(cx, &tool.server, params) {
        let again = Request {
            caller: request.caller.clone(),
            exchange: request.exchange.clone(),
            method: request.method.clone(),
            params: Some(params.into_owned().into()),
            trace: request.trace.clone(),
        };
        return Box::pin(call_once(cx, &again, facts, admitted)).await;
    }
    let wanted = WantedCall {
        call: &call,
        name: &name,
        params,
        arguments,
        token,
    };
    if tool.replica.is_some() && request.caller.view.is_merged() {
        let called = failover::call(cx, request, facts, admitted, &wanted, &tool);
        return Box::pin(called).await;
    }
    call_at(cx, request, facts, admitted, &wanted, &tool, false).await
}

/// What a caller wants.
struct WantedCall<'a> {
    call: &'a tools::Call<'a>,
    /// The tool's name as the caller knows it.
    name: &'a str,
    params: &'a str,
    arguments: &'a str,
    token: Option<&'a RawValue>,
}

/// Calls the tool at this place. `moves`: there is another one for a call that is lost here.
async fn call_at(
    cx: &Context,
    request: &Request,
    facts: &CallFacts,
    admitted: &AtomicBool,
    wanted: &WantedCall<'_>,
    tool: &Arc<CatalogTool>,
    moves: bool,
) -> Outcome {
    let WantedCall {
        call,
        name,
        params,
        arguments,
        token,
    } = *wanted;
    facts.is_of(tool);
    told_of(request, tool);
    let checked = ToolCall::new(cx, &request.caller, name, tool);
    let began = moment();
    let mut checks = request.trace.part("checks");
    let passed = checked.passes(request, call.arguments).await;
    if let (Some(checks), Err((_, refusal))) = (&mut checks, &passed) {
        checks.failed(Some(RefusalReason::of(refusal).as_str()));
    }
    drop(checks);
    let began = facts.times.took(CallPart::Checks, began);
    if let Err((Check::Access, unknown)) = passed {
        return Err(Box::pin(unseen(cx, request, name, unknown)).await);
    }
    admitted.store(true, Ordering::Relaxed);
    passed.map_err(|(_, refusal)| refusal)?;
    let mcpl = mcpl::call::before(cx, request, facts, tool, arguments).await?;
    let began = match &mcpl {
        Some(_) => facts.times.took(CallPart::Checks, began),
        None => began,
    };
    let checked = CheckedCall {
        cx,
        checked: &checked,
        request,
        mcpl: mcpl.as_ref(),
    };
    let under = (&cx.agents, &cx.streams.rooms);
    let wish = StreamWish::of(under, request, params, token);
    let outgoing = Outgoing {
        tool: Some(tool),
        final_check: Some(&checked),
        method: "tools/call",
        params,
        of_mgp: call.trace_id || call.mgp,
        mcpl: mcpl.as_ref().map(|call| &call.members),
        edit: (call.name.get(), &tool.own_name_json),
        token,
        wish: wish.as_ref(),
        mirrored: Mirrored {
            name: Some(&tool.own_name),
            arguments: Some((&tool.param_headers, arguments)),
        },
    };
    let upstream = cx.upstream(&tool.server);
    mgp::events::started(cx, request, tool);
    let mut tries = Tries::default();
    let outcome = loop {
        let outcome = upstream.send(request, outgoing).await;
        if moves && matches!(outcome, Err(Refusal::Lost { .. })) {
            break outcome;
        }
        match retries::next(cx, request, &upstream, &outgoing, &mut tries, outcome).await {
            Next::Again => {}
            Next::Done(outcome) => break outcome,
        }
    };
    let began = facts.times.took(CallPart::Server, began);
    let result = outcome?;
    let _answer = request.trace.part("answer");
    let answer = prepare_result(cx, request, facts, (name, tool), mcpl, result).await;
    let answer = answer.map_err(|refusal| after_answer(refusal, request.trace.id.as_str()))?;
    session::used(cx, &request.caller, tool);
    facts.times.took(CallPart::Answer, began);
    Ok(answer)
}

/// What the caller is given of a result.
async fn prepare_result(
    cx: &Context,
    request: &Request,
    facts: &CallFacts,
    (name, tool): (&str, &Arc<CatalogTool>),
    mcpl: Option<mcpl::call::McplCall>,
    result: Bytes,
) -> Outcome {
    let result = match mcpl {
        Some(call) => mcpl::call::after(cx, request, call, result).await?,
        None => result,
    };
    if let Some(task) = tasks::announced(cx, request, tool, &result)? {
        facts.goes_on(&task);
        return Ok(task);
    }
    let result = schema::result(&cx.policies.schemas, name, tool, result).await?;
    Ok(cut_results::fitting(cx, &request.caller, tool, result))
}

/// Says in the span of a sampled call which tool it is of: names, and never what it is called with.
fn told_of(request: &Request, tool: &CatalogTool) {
    if let Some(span) = &request.trace.span {
        span.name(&format!("tools/call {}", tool.own_name));
        span.set("gen_ai.operation.name", "execute_tool");
        span.set("gen_ai.tool.name", &*tool.own_name);
        span.set("mgp.server.id", tool.server.as_str());
    }
}

/// Repeats the checks of a call that waited for its client.
///
/// # Errors
/// What a new call of the same would be answered.
pub fn still(cx: &Context, caller: &Caller, params: &str) -> Result<(), Refusal> {
    let call: tools::Call<'_> = mcp::read(Some(params))?;
    let name = mgp::tools::meant(caller, &call)?;
    let Some(tool) = cx.tool(&caller.view, &name) else {
        return Err(arrival::absent(cx, caller, name));
    };
    let again = |tool: &Arc<CatalogTool>| ToolCall::new(cx, caller, &name, tool).still();
    let shown = cx.shown.load();
    let mut places = shown.catalog.replicas(&tool).iter();
    match again(&tool) {
        // It may have gone to another one of several; right before it goes on its own place is asked again.
        Err(_) if places.any(|tool| again(tool).is_ok()) => Ok(()),
        checked => checked.map_err(|refusal| access::denied(cx, caller, refusal, true)),
    }
}

/// Waits for a starting server that may have the tool of that name.
async fn arriving(
    cx: &Context,
    request: &Request,
    name: &str,
) -> Result<Arc<CatalogTool>, Refusal> {
    let look = || cx.tool(&request.caller.view, name);
    let named = named_item(request, ListKind::Tools, name);
    let found = arrival::arrived(cx, request, named, look).await?;
    found.ok_or_else(|| arrival::absent(cx, &request.caller, name.to_owned()))
}

/// Refuses a closed tool like a name that does not exist, after the same wait for servers that are starting.
async fn unseen(cx: &Context, request: &Request, name: &str, unknown: Refusal) -> Refusal {
    let named = named_item(request, ListKind::Tools, name);
    match arrival::arrived(cx, request, named, || None::<()>).await {
        Ok(_) => unknown,
        Err(stop) => stop,
    }
}

/// A call through a tool that finds others (MGP §16). A found tool is called as if it had been listed: the
/// audit event is about that tool, and it counts as one call.
async fn by_meta_tool(
    cx: &Context,
    request: &Request,
    tool: MetaTool,
    arguments: &str,
    facts: &CallFacts,
    admitted: &AtomicBool,
) -> Outcome {
    if tool == MetaTool::Call {
        let call = mgp::tools::called(request, mcp::read(Some(arguments))?)?;
        return call_once(cx, &call, facts, admitted).await;
    }
    cx.policies.rates.call(&request.caller.agent)?;
    mgp::tools::by_tool(cx, request, tool, arguments, facts).await
}

/// Whether the server of the tool is one whose requests have headers that may differ: no other one may say so.
fn reads_headers(cx: &Context, facts: &CallFacts) -> bool {
    let tool = facts.called();
    tool.is_some_and(|tool| cx.upstream(&tool.server).reads_headers())
}

fn is_mismatch(error: &RawValue) -> bool {
    member(error.get(), "code") == Some("-32020")
}

/// Answers a call of one of the kernel's tools, which `answer` handles.
///
/// # Errors
/// What the method can end with, or that the call cannot be written down.
pub async fn answer_as_tool(cx: &Context, request: &Request, answer: Answering) -> Outcome {
    let facts = async |facts: Arc<CallFacts>| {
        let call: tools::Call<'_> = mcp::read(request.params.as_deref())?;
        let arguments = call.arguments.map(RawValue::get);
        facts.asks_for(&text(call.name, "name")?, request, arguments);
        Ok(structured(&request.caller, &answer.await?))
    };
    audit::audited(cx, request, facts).await
}
