//! Callbacks of a server (sampling, elicitation, roots), forwarded to the client whose call caused them.

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
use mgp_callers::request::{Caller, CallerSession};
use mgp_callers::{CallRounds, InFlightCall};
use mgp_runtime::EventSink;

pub(super) use self::input_requests::AnswerPermits;
pub(super) use self::mgp_callbacks::{MAX_RESPONSES, MgpCallbacks};
pub(super) use self::open_callbacks::{MAX_CALLBACKS, OpenCallbacks};
pub(super) use self::url_elicitations::UrlElicitations;

/// How long a callback may wait until its call is identified.
pub(crate) const ATTRIBUTION_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a suspended call, which may be the origin of a callback, blocks other clients: half the time after
/// which many clients give up.
pub(crate) const SUSPENSION_HOLD: Duration = Duration::from_secs(15);

/// An error answer that the kernel gives in place of a client.
pub(crate) fn rejection(code: i64, message: &str) -> CallbackResult {
    let error = ErrorObject::new(code, message);
    Err(serde_json::to_vec(&error)
        .expect("an error object is always JSON")
        .into())
}

/// The answer to a callback that no client's call caused.
pub(crate) fn no_call_rejection() -> CallbackResult {
    rejection(
        METHOD_NOT_FOUND,
        "no client's call is under way, so there is nobody to ask",
    )
}

/// The answer to a callback that names an ended or unknown call.
pub(crate) fn call_ended_rejection() -> CallbackResult {
    rejection(
        INVALID_PARAMS,
        &format!("the call that `_meta` names (`{RELATED_CALL}`) is not under way"),
    )
}

/// The answer to a callback that must name its call and does not.
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

/// The answer when several clients have in-flight calls and none ended in time.
pub(crate) fn ambiguous_call_rejection() -> CallbackResult {
    rejection(
        INTERNAL_ERROR,
        &format!(
            "calls of several clients are under way and the question does not say which one it belongs to: \
             `_meta` can name it (`{RELATED_CALL}`)"
        ),
    )
}

/// The callback of this method; `None` if servers may not send it to clients.
#[must_use]
pub(crate) fn callback_for_method(method: &str) -> Option<Callback> {
    server_methods::find_callback(method)
}

/// Checks that the client supports URL elicitations.
///
/// # Errors
/// [`Refusal::MissingCapability`] if it did not declare them.
pub(crate) fn check_url_support(caller: &Caller, in_flight: &InFlightCall) -> Result<(), Refusal> {
    let (callback, params) = (Callback::Elicitation, Some(r#"{"mode":"url"}"#));
    match check_capability(&client_capabilities(caller, in_flight), callback, params) {
        Ok(()) => Ok(()),
        Err(_) => Err(Refusal::MissingCapability {
            required: required_capabilities(callback, params),
        }),
    }
}

/// The capabilities of a call's client.
fn client_capabilities(caller: &Caller, in_flight: &InFlightCall) -> ClientCapabilities {
    in_flight
        .rounds()
        .map_or(caller.capabilities, CallRounds::capabilities)
}

/// Sends a callback to the client, if it declared the capability.
pub(crate) async fn ask_client(
    link: &Arc<Link>,
    caller: &Arc<Caller>,
    in_flight: &InFlightCall,
    callback: Callback,
    params: Option<&str>,
) -> CallbackResult {
    let can = client_capabilities(caller, in_flight);
    if let Err(missing) = check_capability(&can, callback, params) {
        if caller.can_declare() {
            in_flight.cancel_for_capabilities(required_capabilities(callback, params));
        }
        return missing;
    }
    let method = callback.method();
    if let Err(rejected) = link.obtain_consent(&caller.agent, method, params).await {
        return rejection(METHOD_NOT_FOUND, &rejected);
    }
    let params = add_server_name(&link.server, caller, callback, params);
    let task = in_flight.task();
    let params = params
        .map(|params| task.map_or(params.clone(), |(_, id)| rename_related_task(&params, id)));
    let answer = match (&caller.session, in_flight.rounds()) {
        (CallerSession::Open(_), _) => match caller.live_connection() {
            Some(agent) => {
                let params = params.as_deref();
                agent
                    .send_callback(in_flight, Some(forward_progress(link)), method, params)
                    .await
            }
            None => Err(CallbackError::Disconnected),
        },
        (CallerSession::Stateless | CallerSession::RemoteSession, Some(rounds)) => {
            let params = params.as_deref().map(versions::to_stateless_callback);
            let answer = rounds
                .send_callback(in_flight.wait_until_cancelled(), method, params.as_deref())
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

/// A sink that forwards the client's progress to the server.
pub(crate) fn forward_progress(link: &Arc<Link>) -> EventSink<String> {
    let link = Arc::downgrade(link);
    EventSink::new(move |params: String| {
        if let Some(link) = link.upgrade() {
            link.notify("notifications/progress", Some(&params));
        }
    })
}

/// Sends a callback of the kernel itself to a client; the caller has checked the client's capabilities.
pub async fn ask_client_for_kernel(
    caller: &Caller,
    in_flight: &InFlightCall,
    callback: Callback,
    params: &str,
) -> Result<CallbackResult, CallbackError> {
    let method = callback.method();
    match (&caller.session, in_flight.rounds()) {
        (CallerSession::Open(_), _) => match caller.live_connection() {
            Some(agent) => {
                agent
                    .send_callback(in_flight, None, method, Some(params))
                    .await
            }
            None => Err(CallbackError::Disconnected),
        },
        (CallerSession::Stateless | CallerSession::RemoteSession, Some(rounds)) => {
            let params = versions::to_stateless_callback(params);
            rounds
                .send_callback(in_flight.wait_until_cancelled(), method, Some(&params))
                .await
        }
        (CallerSession::Stateless | CallerSession::RemoteSession, None) => {
            Err(CallbackError::Disconnected)
        }
    }
}

/// Replaces the task id in a message's `related-task` with the one its reader knows (2025-11-25).
fn rename_related_task(message: &str, name: &str) -> String {
    let meta = member(message, "_meta").and_then(|meta| member(meta, RELATED_TASK));
    let mut splice = Splice::new(message);
    if let Some(task) = meta.and_then(|related| member(related, "taskId")) {
        splice.replace(task, quote(name));
    }
    splice.finish().into_owned()
}

/// Converts a stateless client's answer to the format of the legacy server.
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
                "the client's answer cannot be converted to MCP {}, which this server speaks",
                peer.version
            ),
        ),
    }
}

/// Checks that the client declared the capability that a callback needs (CMCP-088, CMCP-090).
fn check_capability(
    can: &ClientCapabilities,
    callback: Callback,
    params: Option<&str>,
) -> Result<(), CallbackResult> {
    let ok = match callback {
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
        &format!(
            "the client that called does not support {}",
            callback.method()
        ),
    ))
}

fn has_tools(params: Option<&str>) -> bool {
    params.is_some_and(|params| member(params, "tools").is_some())
}

/// The capabilities a callback needs, as a `ClientCapabilities` object.
fn required_capabilities(callback: Callback, params: Option<&str>) -> Box<RawValue> {
    let text = match callback {
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

/// Adds the server's name to the message shown to the person, if the client's view has several servers. A form
/// without a schema gets an empty one (CMCP-089).
fn add_server_name(
    server: &ServerId,
    caller: &Caller,
    callback: Callback,
    params: Option<&str>,
) -> Option<String> {
    let params = &*versions::strip_related_call(params?);
    if callback != Callback::Elicitation {
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

    /// A stateless client without the capability gets an error, and its call ends. For an agent with a session,
    /// here or at another node, the server gets the error and continues.
    #[tokio::test]
    async fn missing_capability_is_reported_to_server_for_clients_with_session() {
        let mut server = ScriptedServer::legacy("{}");
        let nothing = ClientCapabilities::default();
        let (in_flight, calling) = server.call_as(1, CallerSession::RemoteSession, nothing);
        let call = server.next_message().await;
        server.request_form_with("q", &json!({RELATED_CALL: call["id"]}));
        let answer = server.next_message().await;
        assert_eq!(answer["id"], "q");
        assert_eq!(answer["error"]["code"], METHOD_NOT_FOUND, "{answer}");
        assert!(in_flight.missing_capabilities().is_none());
        server.answer(&call, "result", &json!({"content": []}));
        calling.await.unwrap().unwrap();
        let (in_flight, calling) = server.call_as(2, CallerSession::Stateless, nothing);
        let call = server.next_message().await;
        server.request_form_with("q", &json!({RELATED_CALL: call["id"]}));
        let ended = calling.await.unwrap().unwrap_err();
        assert!(matches!(ended, Refusal::Cancelled), "{ended}");
        let lacks = in_flight.missing_capabilities().map(RawValue::get);
        assert_eq!(lacks, Some(r#"{"elicitation":{"form":{}}}"#));
    }
}
