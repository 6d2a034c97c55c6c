//! `tools/call`: of a tool of a server, or of one of the kernel's own.

mod failover;
mod retries;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mgp_engine::calls::outcome::{mark_answered, mark_dispatched};
use mgp_engine::tools::catalog::{CatalogTool, ListKind};
use mgp_json::member;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{self, tools};
use mgp_protocol::mgp::tools::meta::MetaTool;
use mgp_protocol::refusal::{PeerRejection, Refusal};
use serde_json::value::RawValue;

use self::retries::{NextStep, RetryState};
use crate::answer::{parse_string, require_params, to_tool_result};
use crate::audit::{self, CallPart, PendingCallRecord};
use crate::checks::unlisted_names::{self, named_item};
use crate::checks::{Check, ToolCallChecks, access, schema};
use crate::mcp::apps::visible_app_uris;
use crate::mcp::tasks;
use crate::mcpl::call::CheckedCall;
use crate::mgp::kernel_tool::{self, KernelTool};
use crate::mgp::tools::session;
use crate::result_names::ResultNames;
use crate::{Context, mcpl, mgp, result_pages};
use mgp_callers::request::{AnswerFuture, Caller, Outcome, Request};
use mgp_runtime::time::monotonic_now;
use mgp_servers::link::FinalCheck;
use mgp_servers::upstream::{HeaderParams, Outgoing, StreamOptions};

/// How long a call whose tool has changed waits for the server's tools to be fetched again.
const REFETCH_TIMEOUT: Duration = Duration::from_millis(500);

/// Calls a tool: checks the arguments before the call is sent, and a structured result when it comes
/// back.
///
/// # Errors
/// Any refusal of a call.
pub async fn call(cx: &Context, request: &Request) -> Outcome {
    let made = async |facts: Arc<PendingCallRecord>| {
        let generation = cx.catalog.load().catalog.generation();
        match call_once(cx, request, &facts).await {
            // The headers were made from an older definition of the tool; the server has done nothing yet.
            Err(Refusal::Peer(error))
                if is_header_mismatch(&error)
                    && has_header_params(cx, &facts)
                    && wait_for_refetch(cx, generation).await =>
            {
                Box::pin(call_once(cx, request, &facts)).await
            }
            outcome => outcome,
        }
    };
    let under_way = mgp::stream::register_call(cx, request);
    let outcome = audit::run_audited(cx, request, made).await;
    count_bytes(cx, request, &outcome);
    if under_way.is_some() {
        mgp::stream::finish_stream(request, &outcome).await;
    }
    // The audit log records the denial; the caller must not learn of it.
    let shown = request.call.is_admitted();
    outcome.map_err(|refusal| {
        let refusal = access::denied_refusal(cx, &request.caller, refusal, shown);
        if request.caller.mgp.has_tool_rejections() {
            refusal.into_tool_rejection()
        } else {
            refusal
        }
    })
}

/// Counts the arguments and the result of a call that was let through, for the budgets of groups.
fn count_bytes(cx: &Context, request: &Request, outcome: &Outcome) {
    if request.call.is_admitted() {
        let arguments = request.params.as_ref().map_or(0, |params| params.len());
        let result = outcome.as_ref().map_or(0, Bytes::len);
        cx.policies.count_bytes(&request.caller, arguments + result);
    }
}

/// `mgp/tools/call`: calls a tool that search returned as if it had been in the caller's list.
///
/// # Errors
/// [`Refusal::BadParams`]; any refusal of a call.
pub async fn call_found_tool(cx: &Context, request: &Request) -> Outcome {
    let found = mcp::parse_params(request.params.as_deref())?;
    let found = mgp::tools::to_direct_call(cx, request, found)?;
    Box::pin(call(cx, &found)).await
}

/// True when a newer catalog is published in time.
async fn wait_for_refetch(cx: &Context, generation: u64) -> bool {
    let published = wait_for_newer_catalog(cx, generation);
    tokio::time::timeout(REFETCH_TIMEOUT, published)
        .await
        .is_ok()
}

/// Resolves when a newer catalog is published.
async fn wait_for_newer_catalog(cx: &Context, generation: u64) {
    loop {
        let shown = cx.catalog.load();
        if shown.catalog.generation() > generation {
            return;
        }
        let replaced = shown.replaced.clone();
        drop(shown);
        replaced.cancelled_owned().await;
    }
}

async fn call_once(cx: &Context, request: &Request, facts: &PendingCallRecord) -> Outcome {
    let params = require_params(request)?;
    let call: tools::Call<'_> = mcp::parse_accepted_params(Some(params))?;
    let name = parse_string(call.name, "name")?;
    let token = mcp::Meta::parse(call.meta)?.progress_token;
    facts.set_request(&name, request, call.arguments.map(RawValue::get));
    let arguments = call.arguments.map_or("{}", RawValue::get);
    if let Some(tool) = kernel_tool::meta_tool(&request.caller, &name) {
        let answer = call_meta_tool(cx, request, tool, arguments, facts);
        return Box::pin(answer).await;
    }
    cx.policies.count_call(&request.caller)?;
    if let Some(tool) = KernelTool::from_name(cx, &request.caller, &name) {
        return Box::pin(tool.answer(cx, request, call.arguments)).await;
    }
    let tool = match cx.tool(&request.caller.view, &name) {
        Some(tool) => tool,
        None => Box::pin(wait_for_starting_server(cx, request, &name)).await?,
    };
    if let Some(params) = mcpl::call::strip_mcpl_members(cx, &tool.server, params) {
        let again = Request {
            caller: request.caller.clone(),
            call: request.call.clone(),
            method: request.method.clone(),
            params: Some(params.into_owned().into()),
            trace: request.trace.clone(),
        };
        return Box::pin(call_once(cx, &again, facts)).await;
    }
    let wanted = RequestedCall {
        call: &call,
        name: &name,
        params,
        arguments,
        token,
    };
    if tool.replica.is_some() && request.caller.view.is_merged() {
        let called = failover::call_with_failover(cx, request, facts, &wanted, &tool);
        return Box::pin(called).await;
    }
    call_at(cx, request, facts, &wanted, &tool, false).await
}

/// What a caller wants.
struct RequestedCall<'a> {
    call: &'a tools::Call<'a>,
    /// The tool's name as the caller knows it.
    name: &'a str,
    params: &'a str,
    arguments: &'a str,
    token: Option<&'a RawValue>,
}

/// Calls the tool at this replica. `moves`: another replica can take a call that is lost here.
async fn call_at(
    cx: &Context,
    request: &Request,
    facts: &PendingCallRecord,
    wanted: &RequestedCall<'_>,
    tool: &Arc<CatalogTool>,
    moves: bool,
) -> Outcome {
    let RequestedCall {
        call,
        name,
        params,
        arguments,
        token,
    } = *wanted;
    facts.set_tool(tool);
    name_span(request, tool);
    let checked = ToolCallChecks::new(cx, &request.caller, name, tool, arguments)
        .limited(facts.effect_limit());
    let began = monotonic_now();
    let mut checks = request.trace.start_child_span("checks");
    let passed = checked.run(request, call.arguments).await;
    if let (Some(checks), Err((_, refusal))) = (&mut checks, &passed) {
        checks.set_error(Some(refusal.spec().reason.as_str()));
    }
    drop(checks);
    let began = facts.times.record(CallPart::Checks, began);
    if let Err((Check::Access, unknown)) = passed {
        return Err(Box::pin(reject_as_unknown_tool(cx, request, name, unknown)).await);
    }
    request.call.admit();
    passed.map_err(|(_, refusal)| refusal)?;
    request.call.pass_checks();
    let mcpl = mcpl::call::prepare_call(cx, request, facts, tool, arguments).await?;
    let began = match &mcpl {
        Some(_) => facts.times.record(CallPart::Checks, began),
        None => began,
    };
    let checked = CheckedCall {
        cx,
        checks: &checked,
        request,
        mcpl: mcpl.as_ref(),
    };
    let under = (&cx.agents, &cx.streams.budgets);
    let wish = StreamOptions::from_request(under, request, params, token);
    let outgoing = Outgoing {
        tool: Some(tool),
        final_check: Some(&checked),
        method: "tools/call",
        params,
        may_hold_mgp: call.trace_id || call.mgp,
        mcpl: mcpl.as_ref().map(|call| &call.members),
        edit: (call.name.get(), &tool.own_name_json),
        token,
        stream_options: wish.as_ref(),
        header_params: HeaderParams {
            name: Some(&tool.own_name),
            arguments: Some((&tool.param_headers, arguments)),
        },
    };
    let upstream = cx.upstream(&tool.server);
    mgp::events::publish_call_started(cx, request, tool);
    let mut tries = RetryState::default();
    let outcome = loop {
        let outcome = upstream.send(request, outgoing).await;
        if moves && matches!(outcome, Err(Refusal::ServerLost { .. })) {
            break outcome;
        }
        match retries::decide_next_step(cx, request, &upstream, &outgoing, &mut tries, outcome)
            .await
        {
            NextStep::Retry => {}
            NextStep::Done(outcome) => break outcome,
        }
    };
    let began = facts.times.record(CallPart::Server, began);
    // An earlier attempt may have been read by the server, whatever ended the last one.
    let result = outcome.map_err(|refusal| {
        if request.call.has_reached() {
            mark_dispatched(refusal, &tool.server)
        } else {
            refusal
        }
    })?;
    let _answer = request.trace.start_child_span("answer");
    let answer = prepare_result(cx, request, facts, (name, tool), mcpl, result).await;
    let answer = answer.map_err(|refusal| mark_answered(refusal, request.trace.id.as_str()))?;
    session::record_use(cx, &request.caller, tool);
    facts.times.record(CallPart::Answer, began);
    Ok(answer)
}

/// The part of a result that the caller gets.
async fn prepare_result(
    cx: &Context,
    request: &Request,
    facts: &PendingCallRecord,
    (name, tool): (&str, &Arc<CatalogTool>),
    mcpl: Option<mcpl::call::McplCall>,
    result: Bytes,
) -> Outcome {
    let result = match mcpl {
        Some(call) => mcpl::call::finish_result(cx, request, call, result).await?,
        None => result,
    };
    let names = ResultNames::find(&result);
    let is_error = names.is_error && audit::is_error_result(&result);
    if names.task_id
        && let Some(task) = tasks::rename_created_task(cx, request, tool, &result)?
    {
        facts.continues_as(&task);
        return Ok(task);
    }
    let guarded = request.call.guard_report();
    let schemas = &cx.policies.schemas;
    let result = schema::check_result(schemas, name, tool, names, result, guarded.as_ref()).await?;
    facts.set_error_result(is_error);
    if is_error && speaks_rejections(cx, &tool.server) {
        facts.set_rejection(PeerRejection::find(&result));
    }
    let result = visible_app_uris(&request.caller, &tool.server, result);
    Ok(result_pages::first_page(cx, &request.caller, tool, result))
}

/// Whether the server announces a version of MGP with tool rejections.
fn speaks_rejections(cx: &Context, server: &ServerId) -> bool {
    let servers = cx.servers.load();
    let link = servers.get(server).and_then(|server| server.link());
    link.is_some_and(|link| link.mgp().has_tool_rejections())
}

/// Records the tool's name in the span of a sampled call, never its arguments.
fn name_span(request: &Request, tool: &CatalogTool) {
    if let Some(span) = &request.trace.span {
        span.set_name(&format!("tools/call {}", tool.own_name));
        span.set_attribute("gen_ai.operation.name", "execute_tool");
        span.set_attribute("gen_ai.tool.name", &*tool.own_name);
        span.set_attribute("mgp.server.id", tool.server.as_str());
    }
}

/// Repeats the checks of a call that waited for its client.
///
/// # Errors
/// What a new call of the same would be answered.
pub fn recheck(cx: &Context, caller: &Caller, params: &str) -> Result<(), Refusal> {
    let call: tools::Call<'_> = mcp::parse_params(Some(params))?;
    let called = mgp::tools::called_tool(caller, &call)?;
    let Some(tool) = cx.tool(&caller.view, &called.name) else {
        return Err(unlisted_names::absent_refusal(cx, caller, called.name));
    };
    let again = |tool: &Arc<CatalogTool>| {
        let checks = ToolCallChecks::new(cx, caller, &called.name, tool, called.arguments);
        checks.limited(called.limit).recheck()
    };
    let shown = cx.catalog.load();
    let mut places = shown.catalog.replicas(&tool).iter();
    match again(&tool) {
        // It may have moved to another replica; its own replica is checked again right before the call is sent.
        Err(_) if places.any(|tool| again(tool).is_ok()) => Ok(()),
        checked => checked.map_err(|refusal| access::denied_refusal(cx, caller, refusal, true)),
    }
}

/// Waits for a starting server that may have the tool of that name.
async fn wait_for_starting_server(
    cx: &Context,
    request: &Request,
    name: &str,
) -> Result<Arc<CatalogTool>, Refusal> {
    let look = || cx.tool(&request.caller.view, name);
    let named = named_item(request, ListKind::Tools, name);
    let found = unlisted_names::wait_for_item(cx, request, named, look).await?;
    found.ok_or_else(|| unlisted_names::absent_refusal(cx, &request.caller, name.to_owned()))
}

/// Refuses a closed tool like a name that does not exist, after the same wait for servers that are starting.
async fn reject_as_unknown_tool(
    cx: &Context,
    request: &Request,
    name: &str,
    unknown: Refusal,
) -> Refusal {
    let named = named_item(request, ListKind::Tools, name);
    match unlisted_names::wait_for_item(cx, request, named, || None::<()>).await {
        Ok(_) => unknown,
        Err(stop) => stop,
    }
}

/// A call through a tool that finds others (MGP §16). A found tool is called as if it had been listed: the
/// audit event is about that tool, and it counts as one call.
async fn call_meta_tool(
    cx: &Context,
    request: &Request,
    tool: MetaTool,
    arguments: &str,
    facts: &PendingCallRecord,
) -> Outcome {
    if let Some(limit) = mgp::tools::effect_limit(tool) {
        if let Some(limit) = limit {
            facts.limit_effect(limit);
        }
        let call = mgp::tools::to_direct_call(cx, request, mcp::parse_params(Some(arguments))?)?;
        return call_once(cx, &call, facts).await;
    }
    cx.policies.count_call(&request.caller)?;
    mgp::tools::call_as_tool(cx, request, tool, arguments, facts).await
}

/// Whether the server of the tool is one whose requests have headers that may differ: no other one may say so.
fn has_header_params(cx: &Context, facts: &PendingCallRecord) -> bool {
    let tool = facts.called_tool();
    tool.is_some_and(|tool| cx.upstream(&tool.server).has_header_params())
}

fn is_header_mismatch(error: &RawValue) -> bool {
    member(error.get(), "code") == Some("-32020")
}

/// Answers a call of one of the kernel's tools, which `answer` handles.
///
/// # Errors
/// What the method can end with, or that the call cannot be written down.
pub async fn answer_as_tool(cx: &Context, request: &Request, answer: AnswerFuture) -> Outcome {
    let facts = async |facts: Arc<PendingCallRecord>| {
        let call: tools::Call<'_> = mcp::parse_params(request.params.as_deref())?;
        let arguments = call.arguments.map(RawValue::get);
        facts.set_request(&parse_string(call.name, "name")?, request, arguments);
        Ok(to_tool_result(&request.caller, &answer.await?))
    };
    audit::run_audited(cx, request, facts).await
}
