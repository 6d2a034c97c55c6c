//! Questions of a server (sampling, elicitation, roots), passed to the client whose call caused them.

mod attribution;
mod consent;
mod input_requests;
mod mgp_callbacks;
mod open_callbacks;
pub(super) mod origin;
mod url_elicitations;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use mgp_json::{Splice, member, quote};
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc::{ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND};
use mgp_protocol::mcp::meta::{RELATED_CALL, RELATED_TASK};
use mgp_protocol::mcp::{self, ClientCapabilities, elicitation};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::versions;
use serde_json::value::RawValue;

use super::{Callback, Link, server_methods};
use mgp_callers::agent::{CallbackError, CallbackResult};
use mgp_callers::in_flight_call::InFlightCall;
use mgp_callers::in_flight_call::rounds::CallRounds;
use mgp_callers::request::{Caller, CallerSession};
use mgp_runtime::event_sink::EventSink;

pub(super) use self::input_requests::AnswerPermits;
pub(super) use self::mgp_callbacks::{MAX_RESPONSES, MgpCallbacks};
pub(super) use self::open_callbacks::{MAX_CALLBACKS, OpenCallbacks};
pub(super) use self::url_elicitations::UrlElicitations;

/// How long a question may wait until its call is known.
pub(crate) const ATTRIBUTION_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a suspended call keeps others from being asked, where it may be the one that asks: half the time
/// after which many clients give up.
pub(crate) const SUSPENSION_HOLD: Duration = Duration::from_secs(15);

/// An error answer that no client was asked for.
pub(crate) fn rejection(code: i64, message: &str) -> CallbackResult {
    let error = ErrorObject::new(code, message);
    Err(serde_json::to_vec(&error)
        .expect("an error object is always JSON")
        .into())
}

/// The answer when no client's call caused the question.
pub(crate) fn no_call_rejection() -> CallbackResult {
    rejection(
        METHOD_NOT_FOUND,
        "no client's call is under way, so there is nobody to ask",
    )
}

/// The answer when the question names a call that has ended or never was.
pub(crate) fn call_ended_rejection() -> CallbackResult {
    rejection(
        INVALID_PARAMS,
        &format!("the call that `_meta` names (`{RELATED_CALL}`) is not under way"),
    )
}

/// The answer when the question must name its call and does not.
pub(crate) fn missing_call_rejection() -> CallbackResult {
    rejection(
        INVALID_PARAMS,
        &format!(
            "the entry of this server says `questions = \"by-call\"`, and the question does not name its \
             call: `_meta` has no `{RELATED_CALL}` with the id of that request"
        ),
    )
}

/// An empty list of roots.
pub(crate) fn empty_roots() -> CallbackResult {
    Ok(bytes::Bytes::from_static(br#"{"roots":[]}"#))
}

/// The answer when calls of several clients are under way and none ended in time.
pub(crate) fn ambiguous_call_rejection() -> CallbackResult {
    rejection(
        INTERNAL_ERROR,
        &format!(
            "calls of several clients are under way and the question does not say which one it belongs to: \
             `_meta` can name it (`{RELATED_CALL}`)"
        ),
    )
}

/// The question of this method; `None` for what no server may ask a client.
#[must_use]
pub(crate) fn callback_for_method(method: &str) -> Option<Callback> {
    server_methods::find_callback(method)
}

/// Checks that a client may be sent to a URL.
///
/// # Errors
/// [`Refusal::MissingCapability`] when it did not declare that.
pub(crate) fn check_url_support(caller: &Caller, exchange: &InFlightCall) -> Result<(), Refusal> {
    let (asked, params) = (Callback::Elicitation, Some(r#"{"mode":"url"}"#));
    match check_capability(&client_capabilities(caller, exchange), asked, params) {
        Ok(()) => Ok(()),
        Err(_) => Err(Refusal::MissingCapability {
            required: required_capabilities(asked, params),
        }),
    }
}

/// The capabilities of the client of a call.
fn client_capabilities(caller: &Caller, exchange: &InFlightCall) -> ClientCapabilities {
    exchange
        .rounds()
        .map_or(caller.capabilities, CallRounds::capabilities)
}

/// Asks the client, if it declared the capability.
pub(crate) async fn ask_client(
    link: &Arc<Link>,
    caller: &Arc<Caller>,
    exchange: &InFlightCall,
    asked: Callback,
    params: Option<&str>,
) -> CallbackResult {
    let can = client_capabilities(caller, exchange);
    if let Err(missing) = check_capability(&can, asked, params) {
        if caller.can_declare() {
            exchange.cancel_for_capabilities(required_capabilities(asked, params));
        }
        return missing;
    }
    let method = asked.method();
    if let Err(no) = link.obtain_consent(&caller.agent, method, params).await {
        return rejection(METHOD_NOT_FOUND, &no);
    }
    let params = add_server_name(&link.server, caller, asked, params);
    let task = exchange.task();
    let params = params
        .map(|params| task.map_or(params.clone(), |(_, id)| rename_related_task(&params, id)));
    let answer = match (&caller.session, exchange.rounds()) {
        (CallerSession::Open(_), _) => match caller.live_connection() {
            Some(agent) => {
                let params = params.as_deref();
                agent
                    .send_callback(exchange, Some(forward_progress(link)), method, params)
                    .await
            }
            None => Err(CallbackError::Disconnected),
        },
        (CallerSession::Stateless | CallerSession::RemoteSession, Some(rounds)) => {
            let params = params.as_deref().map(versions::to_stateless_callback);
            let answer = rounds
                .send_callback(exchange.wait_until_cancelled(), method, params.as_deref())
                .await;
            answer.map(|answer| to_legacy_answer(link, method, answer))
        }
        (CallerSession::Stateless | CallerSession::RemoteSession, None) => {
            Err(CallbackError::Disconnected)
        }
    };
    match answer {
        Ok(Ok(result)) if let Some((own, _)) = task => {
            Ok(rename_related_task(&String::from_utf8_lossy(&result), own).into())
        }
        Ok(answer) => answer,
        Err(why) => rejection(INTERNAL_ERROR, &why.to_string()),
    }
}

/// Sends the progress of the asked client to the server.
pub(crate) fn forward_progress(link: &Arc<Link>) -> EventSink<String> {
    let link = Arc::downgrade(link);
    EventSink::new(move |params: String| {
        if let Some(link) = link.upgrade() {
            link.notify("notifications/progress", Some(&params));
        }
    })
}

/// Asks a client a question of the kernel's own; the caller has checked its capabilities.
pub async fn ask_client_for_kernel(
    caller: &Caller,
    exchange: &InFlightCall,
    asked: Callback,
    params: &str,
) -> Result<CallbackResult, CallbackError> {
    let method = asked.method();
    match (&caller.session, exchange.rounds()) {
        (CallerSession::Open(_), _) => match caller.live_connection() {
            Some(agent) => {
                agent
                    .send_callback(exchange, None, method, Some(params))
                    .await
            }
            None => Err(CallbackError::Disconnected),
        },
        (CallerSession::Stateless | CallerSession::RemoteSession, Some(rounds)) => {
            let params = versions::to_stateless_callback(params);
            rounds
                .send_callback(exchange.wait_until_cancelled(), method, Some(&params))
                .await
        }
        (CallerSession::Stateless | CallerSession::RemoteSession, None) => {
            Err(CallbackError::Disconnected)
        }
    }
}

/// Puts the task that a message belongs to under its reader's name for it (2025-11-25, related-task).
fn rename_related_task(message: &str, name: &str) -> String {
    let meta = member(message, "_meta").and_then(|meta| member(meta, RELATED_TASK));
    let mut splice = Splice::new(message);
    if let Some(task) = meta.and_then(|related| member(related, "taskId")) {
        splice.replace(task, quote(name));
    }
    splice.finish().into_owned()
}

/// A modern client's answer, in the words of the legacy server that asked.
fn to_legacy_answer(link: &Link, method: &str, answer: CallbackResult) -> CallbackResult {
    let (Ok(result), Some(peer)) = (&answer, link.peer_for(ProtocolFamily::Legacy)) else {
        return answer;
    };
    let text = String::from_utf8_lossy(result);
    match versions::to_legacy_callback_result(method, &text, peer.version) {
        Some(Cow::Borrowed(_)) => answer,
        Some(Cow::Owned(text)) => Ok(text.into()),
        None => rejection(
            INTERNAL_ERROR,
            &format!(
                "the client's answer cannot be said in MCP {}, which this server speaks",
                peer.version
            ),
        ),
    }
}

/// CMCP-088, CMCP-090: a client is never asked for what it did not declare.
fn check_capability(
    can: &ClientCapabilities,
    asked: Callback,
    params: Option<&str>,
) -> Result<(), CallbackResult> {
    let ok = match asked {
        Callback::Sampling => can.sampling && (can.sampling_tools || !has_tools(params)),
        Callback::Roots => can.roots,
        Callback::Elicitation => match mcp::parse_params::<elicitation::Create<'_>>(params) {
            Ok(create) if create.mode.as_deref() == Some("url") => can.elicitation_url,
            Ok(_) => can.elicitation_form,
            Err(e) => return Err(rejection(INVALID_PARAMS, &e.to_string())),
        },
    };
    if ok {
        return Ok(());
    }
    Err(rejection(
        METHOD_NOT_FOUND,
        &format!("the client that called does not support {}", asked.method()),
    ))
}

fn has_tools(params: Option<&str>) -> bool {
    params.is_some_and(|params| member(params, "tools").is_some())
}

/// The capabilities a question needs, as a `ClientCapabilities` object.
fn required_capabilities(asked: Callback, params: Option<&str>) -> Box<RawValue> {
    let text = match asked {
        Callback::Sampling if has_tools(params) => r#"{"sampling":{"tools":{}}}"#,
        Callback::Sampling => r#"{"sampling":{}}"#,
        Callback::Roots => r#"{"roots":{}}"#,
        Callback::Elicitation if params.and_then(|p| member(p, "mode")) == Some("\"url\"") => {
            r#"{"elicitation":{"url":{}}}"#
        }
        Callback::Elicitation => r#"{"elicitation":{"form":{}}}"#,
    };
    RawValue::from_string(text.into()).expect("literals are JSON")
}

/// In a view of several servers, names the one that asks for the person to see; a form without a schema
/// gets the empty schema (CMCP-089).
fn add_server_name(
    server: &ServerId,
    caller: &Caller,
    asked: Callback,
    params: Option<&str>,
) -> Option<String> {
    let params = &*versions::strip_related_call(params?);
    if asked != Callback::Elicitation {
        return Some(params.to_owned());
    }
    let mut splice = Splice::new(params);
    if caller.view.is_merged()
        && let Some(raw) = member(params, "message")
        && let Ok(message) = serde_json::from_str::<String>(raw)
    {
        splice.replace(raw, quote(&format!("[{server}] {message}")));
    }
    let url = member(params, "mode") == Some("\"url\"");
    if !url && member(params, "requestedSchema").is_none() {
        splice.insert_member(
            params,
            "requestedSchema",
            r#"{"type":"object","properties":{}}"#,
        );
    }
    Some(splice.finish().into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::link::scripted::ScriptedServer;

    /// A client that declares with each request what it can is told what it lacks, and its call ends. For an agent with a
    /// session, here or at another node, the server reads that it cannot be asked, and goes on.
    #[tokio::test]
    async fn a_server_reads_that_an_agent_with_a_session_cannot_be_asked() {
        let mut it = ScriptedServer::legacy("{}");
        let nothing = ClientCapabilities::default();
        let (exchange, calling) = it.call_as(1, CallerSession::RemoteSession, nothing);
        let call = it.next_message().await;
        it.request_form_with("q", &json!({RELATED_CALL: call["id"]}));
        let answer = it.next_message().await;
        assert_eq!(answer["id"], "q");
        assert_eq!(answer["error"]["code"], METHOD_NOT_FOUND, "{answer}");
        assert!(exchange.missing_capabilities().is_none());
        it.answer(&call, "result", &json!({"content": []}));
        calling.await.unwrap().unwrap();
        let (exchange, calling) = it.call_as(2, CallerSession::Stateless, nothing);
        let call = it.next_message().await;
        it.request_form_with("q", &json!({RELATED_CALL: call["id"]}));
        let ended = calling.await.unwrap().unwrap_err();
        assert!(matches!(ended, Refusal::Cancelled), "{ended}");
        let lacks = exchange.missing_capabilities().map(RawValue::get);
        assert_eq!(lacks, Some(r#"{"elicitation":{"form":{}}}"#));
    }
}
