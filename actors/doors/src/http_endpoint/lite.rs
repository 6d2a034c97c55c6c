//! The HTTP binding of MCP-lite (§4): one POST lists or calls. Access is checked as at `/mcp`.

mod events;
pub(super) mod openapi;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Request as HttpRequest, Response, StatusCode};
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::dialect::Version;
use mgp_protocol::ids::{AgentId, SetName};
use mgp_protocol::jsonrpc::{self, Malformed, Message, RequestId};
use mgp_protocol::lite::error::{LiteError, LiteErrorKind};
use mgp_protocol::lite::preferences::Preferences;
use mgp_protocol::lite::{BASE, LiteEndpoint, tool_list};
use mgp_protocol::mcp::{Method as _, tools};
use mgp_runtime::trace::Trace;
use mgp_transports::http::body::{ReplyBody, RequestBody};
use mgp_transports::sse;
use serde_json::value::RawValue;
use tokio::time::Instant;

use self::events::LiteEvents;
use super::headers::{self, accept_weight};
use super::post::read_message;
use super::responses::{json_response, refusal_response};
use super::{HttpEndpoint, stream_response};
use crate::lite::call::{LiteCall, LiteEvent, LiteOutcome, LiteWait, RunningLiteCall};
use crate::lite::{Lite, LiteCaller};
use crate::oauth::SET_PREFIX;
use mgp_callers::request::render_answer_parts;

/// The headers for preferences (RFC 7240): those of the caller, and those that were applied.
const PREFER: HeaderName = HeaderName::from_static("prefer");
const APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Parses a path below [`BASE`], where `p/<set>/` is the view of a set, and the aliases at the root.
pub(super) fn parse_path(path: &str) -> Option<(LiteEndpoint, CatalogView)> {
    let below = match path.strip_prefix(BASE) {
        Some(below) => below.strip_prefix('/')?,
        None => {
            let endpoint = LiteEndpoint::from_name(path.strip_prefix('/')?)?;
            return Some((endpoint, CatalogView::All));
        }
    };
    let (view, name) = match below.strip_prefix(SET_PREFIX) {
        Some(of_set) => {
            let (set, name) = of_set.split_once('/')?;
            (CatalogView::Set(SetName::parse(set).ok()?), name)
        }
        None => (CatalogView::All, below),
    };
    Some((LiteEndpoint::from_name(name)?, view))
}

/// Answers one POST.
pub(super) async fn handle_post(
    (http, lite): (&HttpEndpoint, &Arc<Lite>),
    endpoint: LiteEndpoint,
    request: HttpRequest<RequestBody>,
    caller: LiteCaller,
) -> Response<ReplyBody> {
    let query = request.uri().query().map(str::to_owned);
    let (headers, stream, text) = match read_request(http, request, &caller.agent).await {
        Ok(read) => read,
        Err(response) => return *response,
    };
    match endpoint {
        LiteEndpoint::List => list_tools(lite, query.as_deref(), &text, &caller).await,
        LiteEndpoint::Call => call_tool(lite, &headers, &text, stream, caller).await,
    }
}

/// Reads the headers of a POST, whether its caller wants events, and its whole body as text.
async fn read_request(
    endpoint: &HttpEndpoint,
    request: HttpRequest<RequestBody>,
    agent: &AgentId,
) -> Result<(HeaderMap, bool, ByteString), Box<Response<ReplyBody>>> {
    if !is_utf8_json(request.headers()) {
        return Err(Box::new(refusal_response(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send `Content-Type: application/json`, in UTF-8",
        )));
    }
    if request.headers().contains_key(CONTENT_ENCODING) {
        return Err(Box::new(refusal_response(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send the body as it is: no `Content-Encoding` is read here",
        )));
    }
    let Some(stream) = wants_stream(request.headers()) else {
        return Err(Box::new(refusal_response(
            StatusCode::NOT_ACCEPTABLE,
            "this door answers with `application/json` or `text/event-stream`",
        )));
    };
    let (head, body) = request.into_parts();
    let body = read_message(endpoint, body, agent).await?;
    let text = ByteString::try_from(body).map_err(|_| {
        let why = Malformed::NotJson("the body is not UTF-8".into());
        Box::new(malformed_response(&why))
    })?;
    Ok((head.headers, stream, text))
}

/// Handles §4.2.1: lists the tools, as an object or, with `?format=array`, as an array.
async fn list_tools(
    lite: &Lite,
    query: Option<&str>,
    text: &str,
    caller: &LiteCaller,
) -> Response<ReplyBody> {
    match serde_json::from_str::<&RawValue>(text) {
        Err(error) => return malformed_response(&Malformed::NotJson(error.to_string())),
        Ok(body) if !body.get().starts_with('{') => {
            let why = "the body of a list is an object, `{}`".into();
            return malformed_response(&Malformed::NotAMessage { id: None, why });
        }
        Ok(_) => {}
    }
    let formats = query.unwrap_or_default().split('&');
    let array = match formats
        .filter_map(|pair| pair.strip_prefix("format="))
        .next()
    {
        None | Some("object") => false,
        Some("array") => true,
        Some(_) => {
            let message = "`format` is `object` or `array`";
            return refusal_response(StatusCode::BAD_REQUEST, message);
        }
    };
    match lite.list_tools(caller).await {
        Ok(list) if array => {
            let whole = std::str::from_utf8(&list).unwrap_or_default();
            let array = Bytes::copy_from_slice(tool_list::array_of_list(whole).as_bytes());
            json_response(StatusCode::OK, ReplyBody::full(array))
        }
        Ok(list) => json_response(StatusCode::OK, ReplyBody::full(list)),
        Err(error) => outcome_response("null", &Err(error)),
    }
}

/// Handles §4.2.2: a JSON-RPC request.
async fn call_tool(
    lite: &Arc<Lite>,
    headers: &HeaderMap,
    text: &ByteString,
    stream: bool,
    caller: LiteCaller,
) -> Response<ReplyBody> {
    let (id, method, params, trace) = match jsonrpc::parse_text(text) {
        Ok(Message::Request {
            id,
            method,
            params,
            trace,
        }) => (id, method, params, trace),
        Ok(Message::Notification { .. } | Message::Response { .. }) => {
            let why = "a call is a request, and has an `id`".into();
            return malformed_response(&Malformed::NotAMessage { id: None, why });
        }
        Err(error) => return malformed_response(&error),
    };
    match &*method {
        tools::Call::METHOD => {}
        tools::List::METHOD => {
            let list = lite.list_tools(&caller).await;
            return match list {
                Ok(list) => json_response(
                    StatusCode::OK,
                    ReplyBody::parts(render_answer_parts(
                        id.as_json(),
                        &Ok(list),
                        Version::STATELESS,
                    )),
                ),
                Err(error) => outcome_response(id.as_json(), &Err(error)),
            };
        }
        other => {
            let message = format!("Method not found: {other}");
            let error = LiteError::new(LiteErrorKind::NotFound, message);
            return outcome_response(id.as_json(), &Err(error));
        }
    }
    let asked = (
        params.map_or_else(|| "{}".into(), |params| text.slice_ref(params.get())),
        headers::read_trace(
            headers,
            Trace::from_params(params.map(RawValue::get), trace),
        ),
    );
    let (running, applied) = begin_call(lite, headers, stream, caller, asked);
    let mut response = if stream {
        event_response(lite, running)
    } else {
        finished_response(&id, running).await
    };
    response.headers_mut().extend(applied);
    response
}

/// Starts a call with these params; also returns the applied preferences.
fn begin_call(
    lite: &Arc<Lite>,
    headers: &HeaderMap,
    stream: bool,
    caller: LiteCaller,
    (params, trace): (ByteString, Trace),
) -> (RunningLiteCall, HeaderMap) {
    let prefer = headers.get_all(&PREFER).iter();
    let preferences = Preferences::parse(prefer.filter_map(|value| value.to_str().ok()));
    let (wait, deadline) = wait_options(preferences, stream);
    let running = lite.start_call(LiteCall {
        caller,
        params,
        stream,
        wait,
        deadline,
        trace,
        forwarded: lite.forwarded_headers(headers),
    });
    let applied = preferences.applied_header();
    let applied = applied.and_then(|applied| HeaderValue::from_str(&applied).ok());
    (
        running,
        applied
            .map(|applied| (APPLIED, applied))
            .into_iter()
            .collect(),
    )
}

fn event_response(lite: &Lite, running: RunningLiteCall) -> Response<ReplyBody> {
    let beat = sse::render_named_event("heartbeat", None, b"{}");
    let events = ReplyBody::stream(LiteEvents::new(running));
    stream_response(events.with_heartbeat(lite.heartbeat(), beat))
}

/// How long a caller waits, and its deadline. A stream has keep-alives, so it needs no promise.
fn wait_options(preferences: Preferences, stream: bool) -> (LiteWait, Option<Instant>) {
    let wait = preferences.wait.map(Duration::from_secs);
    match (wait, preferences.respond_sync) {
        (wait, true) => (LiteWait::Forever, wait.map(|wait| Instant::now() + wait)),
        (Some(wait), false) => (LiteWait::After(wait), None),
        (None, false) if preferences.respond_async => (LiteWait::After(Duration::ZERO), None),
        (None, false) if stream => (LiteWait::Forever, None),
        (None, false) => (LiteWait::Default, None),
    }
}

async fn finished_response(id: &RequestId, mut running: RunningLiteCall) -> Response<ReplyBody> {
    loop {
        match running.next().await {
            LiteEvent::Partial(_) => {}
            LiteEvent::Done(outcome) => return outcome_response(id.as_json(), &outcome),
        }
    }
}

fn outcome_response(id: &str, outcome: &LiteOutcome) -> Response<ReplyBody> {
    match outcome {
        Ok(answer) => {
            let parts = render_answer_parts(id, &Ok(answer.result.clone()), Version::STATELESS);
            json_response(StatusCode::OK, ReplyBody::parts(parts))
        }
        Err(error) => {
            let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::OK);
            json_response(
                status,
                ReplyBody::full(jsonrpc::error(id, &error.to_json())),
            )
        }
    }
}

/// LITE-047, LITE-048: a malformed request is answered with 400.
fn malformed_response(error: &Malformed) -> Response<ReplyBody> {
    let frame = error
        .to_frame()
        .unwrap_or_else(|| error.to_frame_without_id());
    json_response(StatusCode::BAD_REQUEST, ReplyBody::full(frame))
}

/// True for `Content-Type: application/json`; a charset must be UTF-8 (§4.1).
fn is_utf8_json(headers: &HeaderMap) -> bool {
    let kind = headers::header_text(headers, &CONTENT_TYPE).unwrap_or_default();
    let charset = kind.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let charset = name.trim().eq_ignore_ascii_case("charset");
        charset.then(|| value.trim().trim_matches('"'))
    });
    headers::is_json(headers) && charset.is_none_or(|named| named.eq_ignore_ascii_case("utf-8"))
}

/// Whether events are wanted rather than JSON (§4.3): by weight, then by the narrower range; if equal JSON,
/// as MCP clients name both. `None` if neither is accepted.
fn wants_stream(headers: &HeaderMap) -> Option<bool> {
    if !headers.contains_key(ACCEPT) {
        return Some(false);
    }
    let json = accept_weight(headers, "application/json");
    let events = accept_weight(headers, "text/event-stream");
    match (json, events) {
        ((0, _), (0, _)) => None,
        (json, events) => Some(events > json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    /// LITE-035 to LITE-039, A-18: every path of an endpoint, below the base and at the root; no other.
    #[test]
    fn paths_map_to_endpoints_and_views() {
        let all = |endpoint| Some((endpoint, CatalogView::All));
        for list in [
            "/mcp-lite/v1/listtools",
            "/mcp-lite/v1/tools",
            "/tools",
            "/listtools",
        ] {
            assert_eq!(parse_path(list), all(LiteEndpoint::List), "{list}");
        }
        for call in [
            "/mcp-lite/v1/calltools",
            "/mcp-lite/v1/rpc",
            "/calltool",
            "/rpc",
        ] {
            assert_eq!(parse_path(call), all(LiteEndpoint::Call), "{call}");
        }
        let set = CatalogView::Set(SetName::parse("reading").unwrap());
        assert_eq!(
            parse_path("/mcp-lite/v1/p/reading/rpc"),
            Some((LiteEndpoint::Call, set))
        );
        for nothing in [
            "/mcp-lite/v1",
            "/mcp-lite/v1/",
            "/mcp-lite/v1/prompts",
            "/mcp-lite/v1/rpc/",
            "/mcp-lite/v1//rpc",
            "/mcp-lite/v1/p/Reading/rpc",
            "/mcp-lite/v1/p/reading",
            "/mcp-lite/v1/p/../rpc",
            "/mcp-lite/v2/rpc",
            "/mcp-lite/rpc",
            "/p/reading/rpc",
            "/prompts",
        ] {
            assert_eq!(parse_path(nothing), None, "{nothing}");
        }
    }

    /// LITE-034, LITE-041: the content type of the body, and the accepted types of the response.
    #[test]
    fn headers_determine_request_and_response_types() {
        let wants_events = |value: &str| wants_stream(&with(ACCEPT, value));
        assert_eq!(wants_stream(&HeaderMap::new()), Some(false));
        for json in [
            "*/*",
            "application/json",
            "application/json, text/event-stream",
            "text/event-stream;q=0.5, application/json",
        ] {
            assert_eq!(wants_events(json), Some(false), "{json}");
        }
        for events in [
            "text/event-stream",
            "text/event-stream, */*",
            "application/json;q=0.1, text/*",
        ] {
            assert_eq!(wants_events(events), Some(true), "{events}");
        }
        for neither in [
            "text/html",
            "*/*;q=0",
            "application/json;q=0, text/event-stream;q=0.000",
        ] {
            assert_eq!(wants_events(neither), None, "{neither}");
        }
        let sends = |value: &str| is_utf8_json(&with(CONTENT_TYPE, value));
        assert!(sends("application/json") && sends("Application/JSON; charset=\"UTF-8\""));
        assert!(!sends("application/json; charset=latin1") && !sends("text/json"));
    }

    /// RFC 7240: the preferences determine when a caller gets a promise, or that it gets none.
    #[test]
    fn preferences_determine_the_promise() {
        let waits = |value: &str, stream| {
            let (wait, deadline) = wait_options(Preferences::parse([value].into_iter()), stream);
            (wait, deadline.is_some())
        };
        assert_eq!(waits("", false), (LiteWait::Default, false));
        assert_eq!(waits("", true), (LiteWait::Forever, false));
        let five = LiteWait::After(Duration::from_secs(5));
        assert_eq!(waits("wait=5", true), (five, false));
        assert_eq!(waits("respond-async, wait=5", false), (five, false));
        assert_eq!(
            waits("respond-async", false),
            (LiteWait::After(Duration::ZERO), false)
        );
        assert_eq!(waits("respond-sync", false), (LiteWait::Forever, false));
        assert_eq!(
            waits("respond-sync, wait=5", false),
            (LiteWait::Forever, true)
        );
    }
}
