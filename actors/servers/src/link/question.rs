//! Questions of a server (sampling, elicitation, roots), passed to the client whose call caused them.

mod attribution;
mod callbacks;
mod consent;
mod input_requests;
mod open;
pub(super) mod origin;
mod url_elicitations;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use mgp_protocol::dialect::Era;
use mgp_protocol::era;
use mgp_protocol::ids::ServerId;
use mgp_protocol::jsonrpc::{ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND};
use mgp_protocol::mcp::meta::{RELATED_CALL, RELATED_TASK};
use mgp_protocol::mcp::{self, ClientCapabilities, elicitation};
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{Splice, member, quoted};
use serde_json::value::RawValue;

use super::{ClientQuestion, Link, from_servers};
use mgp_callers::agent::{ClientAnswer, Unanswered};
use mgp_callers::exchange::Exchange;
use mgp_callers::exchange::rounds::CallRounds;
use mgp_callers::request::{Caller, CallerSession};
use mgp_runtime::event_sink::EventSink;

pub(super) use self::callbacks::{MAX_RESPONSES, ServerCallbacks};
pub(super) use self::input_requests::Permits;
pub(super) use self::open::{MAX_QUESTIONS, Questions};
pub(super) use self::url_elicitations::Elicited;

/// How long a question may wait until its call is known.
pub const ATTRIBUTION: Duration = Duration::from_secs(30);

/// How long a suspended call keeps others from being asked, where it may be the one that asks: half the time
/// after which many clients give up.
pub const SUSPENDED: Duration = Duration::from_secs(15);

/// An error answer that no client was asked for.
pub fn refused(code: i64, message: &str) -> ClientAnswer {
    let error = ErrorObject::new(code, message);
    Err(serde_json::to_vec(&error)
        .expect("an error object is always JSON")
        .into())
}

/// The answer when no client's call caused the question.
pub fn orphaned() -> ClientAnswer {
    refused(
        METHOD_NOT_FOUND,
        "no client's call is under way, so there is nobody to ask",
    )
}

/// The answer when the question names a call that has ended or never was.
pub fn over() -> ClientAnswer {
    refused(
        INVALID_PARAMS,
        &format!("the call that `_meta` names (`{RELATED_CALL}`) is not under way"),
    )
}

/// The answer when the question must name its call and does not.
pub fn unnamed() -> ClientAnswer {
    refused(
        INVALID_PARAMS,
        &format!(
            "the entry of this server says `questions = \"by-call\"`, and the question does not name its \
             call: `_meta` has no `{RELATED_CALL}` with the id of that request"
        ),
    )
}

/// An empty list of roots.
pub fn no_roots() -> ClientAnswer {
    Ok(bytes::Bytes::from_static(br#"{"roots":[]}"#))
}

/// The answer when calls of several clients are under way and none ended in time.
pub fn ambiguous() -> ClientAnswer {
    refused(
        INTERNAL_ERROR,
        &format!(
            "calls of several clients are under way and the question does not say which one it belongs to: \
             `_meta` can name it (`{RELATED_CALL}`)"
        ),
    )
}

/// The question of this method; `None` for what no server may ask a client.
#[must_use]
pub fn read(method: &str) -> Option<ClientQuestion> {
    from_servers::question(method)
}

/// Checks that a client may be sent to a URL.
///
/// # Errors
/// [`Refusal::MissingCapability`] when it did not declare that.
pub(crate) fn can_visit(caller: &Caller, exchange: &Exchange) -> Result<(), Refusal> {
    let (asked, params) = (ClientQuestion::Elicitation, Some(r#"{"mode":"url"}"#));
    match able(&declared(caller, exchange), asked, params) {
        Ok(()) => Ok(()),
        Err(_) => Err(Refusal::MissingCapability {
            required: required(asked, params),
        }),
    }
}

/// The capabilities of the client of a call.
fn declared(caller: &Caller, exchange: &Exchange) -> ClientCapabilities {
    exchange
        .rounds()
        .map_or(caller.capabilities, CallRounds::capabilities)
}

/// Asks the client, if it declared the capability.
pub async fn put(
    link: &Arc<Link>,
    caller: &Arc<Caller>,
    exchange: &Exchange,
    asked: ClientQuestion,
    params: Option<&str>,
) -> ClientAnswer {
    let can = declared(caller, exchange);
    if let Err(missing) = able(&can, asked, params) {
        if caller.can_declare() {
            exchange.lacks(required(asked, params));
        }
        return missing;
    }
    let method = asked.method();
    if let Err(no) = link.consented(&caller.agent, method, params).await {
        return refused(METHOD_NOT_FOUND, &no);
    }
    let params = dressed(&link.server, caller, asked, params);
    let task = exchange.task();
    let params = params.map(|params| task.map_or(params.clone(), |(_, id)| related(&params, id)));
    let answer = match (&caller.session, exchange.rounds()) {
        (CallerSession::Open(_), _) => match caller.standing() {
            Some(agent) => {
                let params = params.as_deref();
                agent
                    .ask(exchange, Some(progress(link)), method, params)
                    .await
            }
            None => Err(Unanswered::Gone),
        },
        (CallerSession::Stateless | CallerSession::AtNode, Some(rounds)) => {
            let params = params.as_deref().map(era::to_modern_question);
            let answer = rounds
                .ask(exchange.cancelled(), method, params.as_deref())
                .await;
            answer.map(|answer| said(link, method, answer))
        }
        (CallerSession::Stateless | CallerSession::AtNode, None) => Err(Unanswered::Gone),
    };
    match answer {
        Ok(Ok(result)) if let Some((own, _)) = task => {
            Ok(related(&String::from_utf8_lossy(&result), own).into())
        }
        Ok(answer) => answer,
        Err(why) => refused(INTERNAL_ERROR, &why.to_string()),
    }
}

/// Sends the progress of the asked client to the server.
pub(crate) fn progress(link: &Arc<Link>) -> EventSink<String> {
    let link = Arc::downgrade(link);
    EventSink::new(move |params: String| {
        if let Some(link) = link.upgrade() {
            link.notify("notifications/progress", Some(&params));
        }
    })
}

/// Asks a client a question of the kernel's own; the caller has checked its capabilities.
pub async fn put_own(
    caller: &Caller,
    exchange: &Exchange,
    asked: ClientQuestion,
    params: &str,
) -> Result<ClientAnswer, Unanswered> {
    let method = asked.method();
    match (&caller.session, exchange.rounds()) {
        (CallerSession::Open(_), _) => match caller.standing() {
            Some(agent) => agent.ask(exchange, None, method, Some(params)).await,
            None => Err(Unanswered::Gone),
        },
        (CallerSession::Stateless | CallerSession::AtNode, Some(rounds)) => {
            let params = era::to_modern_question(params);
            rounds
                .ask(exchange.cancelled(), method, Some(&params))
                .await
        }
        (CallerSession::Stateless | CallerSession::AtNode, None) => Err(Unanswered::Gone),
    }
}

/// Puts the task that a message belongs to under its reader's name for it (2025-11-25, related-task).
fn related(message: &str, name: &str) -> String {
    let meta = member(message, "_meta").and_then(|meta| member(meta, RELATED_TASK));
    let mut splice = Splice::new(message);
    if let Some(task) = meta.and_then(|related| member(related, "taskId")) {
        splice.replace(task, quoted(name));
    }
    splice.finish().into_owned()
}

/// A modern client's answer, in the words of the legacy server that asked.
fn said(link: &Link, method: &str, answer: ClientAnswer) -> ClientAnswer {
    let (Ok(result), Some(peer)) = (&answer, link.peer_in(Era::Legacy)) else {
        return answer;
    };
    let text = String::from_utf8_lossy(result);
    match era::to_legacy_answer(method, &text, peer.version) {
        Some(Cow::Borrowed(_)) => answer,
        Some(Cow::Owned(text)) => Ok(text.into()),
        None => refused(
            INTERNAL_ERROR,
            &format!(
                "the client's answer cannot be said in MCP {}, which this server speaks",
                peer.version
            ),
        ),
    }
}

/// CMCP-088, CMCP-090: a client is never asked for what it did not declare.
fn able(
    can: &ClientCapabilities,
    asked: ClientQuestion,
    params: Option<&str>,
) -> Result<(), ClientAnswer> {
    let ok = match asked {
        ClientQuestion::Sampling => can.sampling && (can.sampling_tools || !has_tools(params)),
        ClientQuestion::Roots => can.roots,
        ClientQuestion::Elicitation => match mcp::read::<elicitation::Create<'_>>(params) {
            Ok(create) if create.mode.as_deref() == Some("url") => can.elicitation_url,
            Ok(_) => can.elicitation_form,
            Err(e) => return Err(refused(INVALID_PARAMS, &e.to_string())),
        },
    };
    if ok {
        return Ok(());
    }
    Err(refused(
        METHOD_NOT_FOUND,
        &format!("the client that called does not support {}", asked.method()),
    ))
}

fn has_tools(params: Option<&str>) -> bool {
    params.is_some_and(|params| member(params, "tools").is_some())
}

/// The capabilities a question needs, as a `ClientCapabilities` object.
fn required(asked: ClientQuestion, params: Option<&str>) -> Box<RawValue> {
    let text = match asked {
        ClientQuestion::Sampling if has_tools(params) => r#"{"sampling":{"tools":{}}}"#,
        ClientQuestion::Sampling => r#"{"sampling":{}}"#,
        ClientQuestion::Roots => r#"{"roots":{}}"#,
        ClientQuestion::Elicitation
            if params.and_then(|p| member(p, "mode")) == Some("\"url\"") =>
        {
            r#"{"elicitation":{"url":{}}}"#
        }
        ClientQuestion::Elicitation => r#"{"elicitation":{"form":{}}}"#,
    };
    RawValue::from_string(text.into()).expect("literals are JSON")
}

/// In a view of several servers, names the one that asks for the person to see; a form without a schema
/// gets the empty schema (CMCP-089).
fn dressed(
    server: &ServerId,
    caller: &Caller,
    asked: ClientQuestion,
    params: Option<&str>,
) -> Option<String> {
    let params = &*era::without_call(params?);
    if asked != ClientQuestion::Elicitation {
        return Some(params.to_owned());
    }
    let mut splice = Splice::new(params);
    if caller.view.is_merged()
        && let Some(raw) = member(params, "message")
        && let Ok(message) = serde_json::from_str::<String>(raw)
    {
        splice.replace(raw, quoted(&format!("[{server}] {message}")));
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
    use crate::link::scripted::Scripted;

    /// A client that declares with each request what it can is told what it lacks, and its call ends. For an agent with a
    /// session, here or at another node, the server reads that it cannot be asked, and goes on.
    #[tokio::test]
    async fn a_server_reads_that_an_agent_with_a_session_cannot_be_asked() {
        let mut it = Scripted::legacy("{}");
        let nothing = ClientCapabilities::default();
        let (exchange, calling) = it.call_of(1, CallerSession::AtNode, nothing);
        let call = it.next().await;
        it.ask_with("q", &json!({RELATED_CALL: call["id"]}));
        let answer = it.next().await;
        assert_eq!(answer["id"], "q");
        assert_eq!(answer["error"]["code"], METHOD_NOT_FOUND, "{answer}");
        assert!(exchange.lacking().is_none());
        it.answer(&call, "result", &json!({"content": []}));
        calling.await.unwrap().unwrap();
        let (exchange, calling) = it.call_of(2, CallerSession::Stateless, nothing);
        let call = it.next().await;
        it.ask_with("q", &json!({RELATED_CALL: call["id"]}));
        let ended = calling.await.unwrap().unwrap_err();
        assert!(matches!(ended, Refusal::Cancelled), "{ended}");
        let lacks = exchange.lacking().map(RawValue::get);
        assert_eq!(lacks, Some(r#"{"elicitation":{"form":{}}}"#));
    }
}
