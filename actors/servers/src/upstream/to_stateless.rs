//! Calls of legacy clients to stateless servers: the kernel handles the rounds of `input_required`, which legacy
//! clients do not know (MCP 2026-07-28, multi round-trip requests).

use std::sync::Arc;

use futures_util::future::join_all;
use mgp_engine::servers::log_levels::LogLevel;
use mgp_json::{member, render_object};
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::federation::hello::LifeId;
use mgp_protocol::jsonrpc::METHOD_NOT_FOUND;
use mgp_protocol::mcp::ClientCapabilities;
use mgp_protocol::mcp::extensions::with_extensions;
use mgp_protocol::mcp::meta::TASKS;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::versions::{self, CallerMeta};
use serde_json::value::RawValue;

use super::tasks::{add_related_task, is_task_requested, strip_task};
use super::{Outgoing, send_translated, translate_refusal};
use crate::link::callback;
use crate::link::{Link, Wire};
use crate::negotiation;
use mgp_callers::agent::CallbackResult;
use mgp_callers::negotiation::render_kernel_info;
use mgp_callers::request::server_input_required::{
    InputRequest, InputRequired, MAX_ROUNDS, parse_input_required, render_next_round,
};
use mgp_callers::request::{Outcome, Request};
use mgp_runtime::ids::new_session_id;

/// The most callbacks in one round; a person answers one at a time.
const MAX_INPUT_REQUESTS: usize = 64;

/// Calls a stateless server for a legacy client, and sends the server's callbacks to the client.
pub(super) async fn send_to_stateless(
    request: &Request,
    link: &Arc<Link>,
    outgoing: Outgoing<'_>,
) -> Outcome {
    let caller = &request.caller;
    let mut own = outgoing.splice_params(None).finish();
    let as_task = is_task_requested(request, link, &own);
    if as_task {
        own = strip_task(&own).into();
    }
    let first = to_stateless_params(request, link, &own, as_task);
    let mut params = first.clone();
    let run = owner_run(link);
    for _ in 0..MAX_ROUNDS {
        let result =
            send_translated(request, link, outgoing, ProtocolFamily::Stateless, &params).await;
        let (version, method) = (caller.version, outgoing.method);
        let result = result.map_err(|refusal| translate_refusal(refusal, version, method))?;
        let text = String::from_utf8_lossy(&result);
        if as_task && member(&text, "resultType") == Some("\"task\"") {
            return Ok(result);
        }
        let Some(needs) = parse_input_required(&text) else {
            return Ok(match versions::to_legacy_result(&text, caller.version) {
                std::borrow::Cow::Borrowed(_) => result,
                std::borrow::Cow::Owned(text) => text.into(),
            });
        };
        // Dropping a callback cancels it at the client.
        let (responses, _) = tokio::select! {
            biased;
            answers = ask_client(request, link, &needs) => answers?,
            why = wait_until_owner_lost(link, run) => return Err(link.lost_refusal(&why)),
        };
        params = render_next_round(&first, &responses, needs.request_state);
    }
    Err(link.invalid_answer_refusal(&format!(
        "it asked for more input {MAX_ROUNDS} times in one call"
    )))
}

/// The run id of the owner's node at the start of the call, for a server on another node.
fn owner_run(link: &Link) -> Option<LifeId> {
    match link.wire() {
        Wire::Node(node) => node.linked_run(),
        Wire::Child(_) | Wire::Http(_) | Wire::Sse(_) | Wire::Lite(_) => None,
    }
}

/// Resolves when the server's state of the call is lost with its node. A server connected to this kernel may
/// continue after a restart, because the answer carries the state.
async fn wait_until_owner_lost(link: &Link, run: Option<LifeId>) -> String {
    match (link.wire(), run) {
        (Wire::Node(node), Some(run)) => node.wait_until_run_lost(run).await,
        _ => std::future::pending().await,
    }
}

/// Converts a legacy client's params for a stateless server; with `tasks` they declare support for tasks.
pub(super) fn to_stateless_params(
    request: &Request,
    link: &Link,
    params: &str,
    tasks: bool,
) -> String {
    let caller = &request.caller;
    let capabilities = render_capabilities(&caller.capabilities, tasks);
    let extensions = caller.extensions.as_deref().unwrap_or("{}");
    let capabilities = with_extensions(&capabilities, extensions);
    let capabilities = link.limits.consents.allowed_capabilities(&capabilities);
    let mgp = link.mgp_for(ProtocolFamily::Stateless).is_active();
    // The owner of a server on another node delays answers for late log messages, which is unnecessary for
    // clients that requested none.
    let level = if matches!(link.wire(), Wire::Node(_)) {
        caller.requested_log_level(&request.call)
    } else {
        caller.log_level(&request.call)
    };
    let stamp = CallerMeta {
        client_info: &render_kernel_info(),
        capabilities: &negotiation::declare_capabilities(
            &capabilities,
            ProtocolFamily::Stateless,
            mgp,
        ),
        log_level: level.map(LogLevel::as_str),
    };
    versions::to_stateless_params(Some(params), &stamp)
}

/// Sends all callbacks of a round to the client at once; returns the `inputResponses` object and its keys.
pub(super) async fn ask_client(
    request: &Request,
    link: &Arc<Link>,
    needs: &InputRequired<'_>,
) -> Result<(String, Vec<String>), Refusal> {
    let keys = needs
        .input_requests
        .keys()
        .take(MAX_INPUT_REQUESTS)
        .cloned();
    let requests = needs.input_requests.iter().take(MAX_INPUT_REQUESTS);
    let requests = requests.map(|(key, input)| async move {
        let answer = ask_one_request(request, link, input).await?;
        Ok((key, answer))
    });
    let answers: Result<Vec<_>, Refusal> = join_all(requests).await.into_iter().collect();
    Ok((render_object(answers?), keys.collect()))
}

async fn ask_one_request(
    request: &Request,
    link: &Arc<Link>,
    input: &InputRequest<'_>,
) -> Result<String, Refusal> {
    let (caller, in_flight) = (&request.caller, &request.call);
    let Some(callback_kind) = callback::callback_for_method(&input.method) else {
        return Err(link.invalid_answer_refusal(&format!(
            "it requires {}, which is not a callback that clients support",
            input.method
        )));
    };
    let params = input.params.map(RawValue::get);
    let id = new_session_id();
    let params = versions::to_legacy_callback(&input.method, params, caller.version, id.as_str());
    let params = params.map(|params| match in_flight.task() {
        Some((_, id)) => add_related_task(&params, id),
        None => params.to_string(),
    });
    let answer = match params {
        Some(params) => {
            callback::ask_client(link, caller, in_flight, callback_kind, Some(&params)).await
        }
        None => callback::rejection(
            METHOD_NOT_FOUND,
            &format!("a client of {} cannot be asked this", caller.version),
        ),
    };
    to_input_response(&input.method, answer)
}

/// Converts a client's answer to the stateless family, where `inputResponses` contain no errors.
fn to_input_response(method: &str, answer: CallbackResult) -> Result<String, Refusal> {
    match (answer, method) {
        (Ok(result), _) => Ok(String::from_utf8_lossy(&result).into_owned()),
        (Err(_), "elicitation/create") => Ok(r#"{"action":"cancel"}"#.into()),
        (Err(_), "roots/list") => Ok(r#"{"roots":[]}"#.into()),
        (Err(error), _) => {
            let error = String::from_utf8_lossy(&error).into_owned();
            // The client's error, not the server's: what the server did until its callback is unknown.
            Err(RawValue::from_string(error).map_or(Refusal::Cancelled, Refusal::Unattributed))
        }
    }
}

/// Converts a legacy client's capabilities for a stateless server.
fn render_capabilities(can: &ClientCapabilities, tasks: bool) -> String {
    let mut out = Vec::new();
    if tasks {
        out.push(format!(r#""extensions":{{"{TASKS}":{{}}}}"#));
    }
    if can.roots {
        out.push(r#""roots":{}"#.to_owned());
    }
    if can.sampling {
        let tools = if can.sampling_tools {
            r#""tools":{}"#
        } else {
            ""
        };
        out.push(format!(r#""sampling":{{{tools}}}"#));
    }
    let modes: Vec<&str> = [
        (can.elicitation_form, r#""form":{}"#),
        (can.elicitation_url, r#""url":{}"#),
    ]
    .into_iter()
    .filter_map(|(can, text)| can.then_some(text))
    .collect();
    if !modes.is_empty() {
        out.push(format!(r#""elicitation":{{{}}}"#, modes.join(",")));
    }
    format!("{{{}}}", out.join(","))
}
