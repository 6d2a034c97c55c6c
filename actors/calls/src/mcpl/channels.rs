//! `channels/*`, of agents that are MCPL hosts (MCPL §14), and publishing as a tool for others who may.

use std::sync::Arc;

use mgp_mcpl::{AfterVerdict, ChannelError, HookOrigin, OutgoingCompletion};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::content::Content;
use mgp_protocol::mgp;
use mgp_protocol::refusal::Refusal;

use crate::Context;
use crate::answer::json_outcome;
use crate::checks::access;
use mgp_callers::request::{Caller, Outcome, Request};

/// Whether a server is open to a caller as a whole: a grant of one of its tools, or a set that has one, opens no
/// channel.
fn visible_servers_filter<'a>(
    cx: &'a Context,
    caller: &'a Caller,
) -> impl Fn(&ServerId) -> bool + 'a {
    move |server| caller.view.includes(server) && access::is_server_open(cx, caller, server)
}

/// `channels/list`.
///
/// # Errors
/// None at present; the type is that of every answer.
pub async fn list(cx: &Context, request: &Request) -> Outcome {
    let caller = &request.caller;
    Ok(cx
        .channels
        .list(caller, visible_servers_filter(cx, caller))
        .into())
}

/// `channels/open`.
///
/// # Errors
/// -32024, or invalid params.
pub async fn open(cx: &Context, request: &Request) -> Outcome {
    let caller = &request.caller;
    cx.policies.count_call(caller)?;
    let opened = cx.channels.open(
        caller,
        visible_servers_filter(cx, caller),
        request.params.as_deref(),
    );
    Ok(opened.await?.into())
}

/// `channels/close`.
///
/// # Errors
/// Those of MCPL §14.6, or the server's own.
pub async fn close(cx: &Context, request: &Request) -> Outcome {
    let caller = &request.caller;
    cx.policies.count_call(caller)?;
    let closed = cx.channels.close(
        caller,
        visible_servers_filter(cx, caller),
        request.params.as_deref(),
    );
    closed.await.map_err(|refused| match refused {
        ChannelError::Mcpl(error) => Refusal::from(error),
        ChannelError::Kernel(refusal) => refusal,
    })
}

/// `channels/publish` as a request: the answer comes from the server.
///
/// # Errors
/// Those of MCPL §14.6, or the server's own.
pub async fn publish(cx: &Context, request: &Request) -> Outcome {
    publish_as_tool(cx, request, request.params.as_deref()).await
}

/// The same as a tool of the kernel.
pub(crate) async fn publish_as_tool(
    cx: &Context,
    request: &Request,
    params: Option<&str>,
) -> Outcome {
    let caller = &request.caller;
    cx.policies.count_call(caller)?;
    let publishing =
        cx.channels
            .prepare_publish(caller, visible_servers_filter(cx, caller), params)?;
    json_outcome(&cx.channels.publish(caller, publishing).await?)
}

/// `channels/publish` as a notification.
pub fn handle_publish(cx: &Context, caller: &Caller, params: Option<&str>) {
    let publishing =
        cx.channels
            .prepare_publish(caller, visible_servers_filter(cx, caller), params);
    let done = cx
        .policies
        .count_call(caller)
        .and_then(|()| Ok(publishing?))
        .and_then(|publishing| cx.channels.publish_without_wait(caller, &publishing));
    log_failed_notification(caller, "channels/publish", done);
}

/// `channels/outgoing/chunk`. While a server behind the inference has to be waited for, parts are not told: the whole is.
pub fn handle_outgoing_chunk(cx: &Context, caller: &Caller, params: Option<&str>) {
    if hooked_origin(cx, caller).is_some() {
        return;
    }
    let told = cx
        .channels
        .outgoing_chunk(caller, visible_servers_filter(cx, caller), params);
    log_failed_notification(caller, "channels/outgoing/chunk", told.map_err(Into::into));
}

/// `channels/outgoing/complete`: what the servers behind the inference make of it, once they have answered (MCPL §10.5).
pub fn handle_outgoing_complete(cx: &Context, caller: &Arc<Caller>, params: Option<&str>) {
    let done = cx
        .channels
        .prepare_completion(caller, visible_servers_filter(cx, caller), params);
    let told = done.map(|completing| match hooked_origin(cx, caller) {
        None => cx.channels.deliver_completion(caller, completing),
        Some(origin) => send_after_hooks(cx, caller, &origin, completing),
    });
    log_failed_notification(
        caller,
        "channels/outgoing/complete",
        told.map_err(Into::into),
    );
}

fn send_after_hooks(
    cx: &Context,
    caller: &Arc<Caller>,
    origin: &HookOrigin,
    mut whole: OutgoingCompletion,
) {
    let (channels, caller) = (cx.channels.clone(), caller.clone());
    let inference = whole.inference.clone();
    cx.hooks.on_verdict(origin, &inference, move |verdict| {
        match verdict {
            AfterVerdict::Unchanged => {}
            AfterVerdict::Modified(text) => whole.content = Content::text(&text),
            AfterVerdict::Withheld(why) => {
                tracing::info!(agent = %caller.agent, %why, "not told to who observes the channel");
                return;
            }
        }
        channels.deliver_completion(&caller, whole);
    });
}

/// The origin of a caller's inferences, when a server behind them has to be waited for.
fn hooked_origin(cx: &Context, caller: &Caller) -> Option<HookOrigin> {
    let agent = cx.mcpl_agents.get(caller.connection)?;
    let origin = HookOrigin::Agent(agent);
    cx.hooks.should_wait_after(&origin).then_some(origin)
}

/// A notification has no answer: what became of it stands in the log.
fn log_failed_notification(caller: &Caller, method: &str, done: Result<(), Refusal>) {
    if let Err(why) = done {
        tracing::info!(agent = %caller.agent, method, %why, "not taken");
    }
}

/// The tool is there for the agents that the operator gave it to.
pub(crate) fn tool_definition(cx: &Context, caller: &Caller) -> Option<&'static str> {
    let has = cx.channels.rules().has_tool(&caller.agent);
    has.then_some(mgp::channels::Publish::METHOD)
}

/// True when this tool is `mgp.channels.publish`, for who has it.
pub(crate) fn is_tool(cx: &Context, caller: &Caller, name: &str) -> bool {
    mgp::matches_method(mgp::channels::Publish::METHOD, name)
        && tool_definition(cx, caller).is_some()
}
