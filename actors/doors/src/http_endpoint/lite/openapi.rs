//! The OpenAPI binding (decision 65): the document, and tool calls by path, with the arguments as body. The
//! HTTP status replaces the envelope.

use std::sync::Arc;

use http::header::{
    CACHE_CONTROL, ETAG, HOST, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, RETRY_AFTER, VARY,
};
use http::{Method, Request as HttpRequest, Response, StatusCode};
use mgp_engine::tools::catalog::CatalogView;
use mgp_json::{member, quote};
use mgp_protocol::ids::SetName;
use mgp_protocol::jsonrpc::{self, Malformed};
use mgp_protocol::lite::error::{LiteError, LiteErrorKind};
use mgp_protocol::lite::openapi::{CONTINUATION, parse_path_segment};
use mgp_protocol::lite::{BASE, ResponseType};
use mgp_runtime::trace::Trace;
use mgp_transports::http::body::{ReplyBody, RequestBody};
use serde_json::value::RawValue;

use super::{begin_call, event_response, malformed_response, read_request};
use crate::http_endpoint::headers::read_trace;
use crate::http_endpoint::responses::{json_response, refusal_response};
use crate::http_endpoint::{HttpEndpoint, empty_response, method_not_allowed};
use crate::lite::call::{LiteEvent, LiteOutcome, RunningLiteCall};
use crate::lite::{Lite, LiteCaller};
use crate::oauth::SET_PREFIX;

/// The document's path, below that of its view.
const DOCUMENT: &str = "openapi.json";

/// The path prefix of a tool.
const TOOLS: &str = "tools/";

/// The target of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http_endpoint) enum ApiPath {
    /// The document.
    Document,
    /// A tool, by its name in the path.
    Tool,
}

/// Parses a path below [`BASE`]. The existence of the tool is not checked yet.
pub(in crate::http_endpoint) fn parse_path(path: &str) -> Option<(ApiPath, CatalogView)> {
    let (view, name) = split_view(path)?;
    let target = match name {
        DOCUMENT => ApiPath::Document,
        tool => tool.starts_with(TOOLS).then_some(ApiPath::Tool)?,
    };
    Some((target, view))
}

/// Splits a path into its view and the rest.
fn split_view(path: &str) -> Option<(CatalogView, &str)> {
    let below = path.strip_prefix(BASE)?.strip_prefix('/')?;
    match below.strip_prefix(SET_PREFIX) {
        Some(of_set) => {
            let (set, name) = of_set.split_once('/')?;
            Some((CatalogView::Set(SetName::parse(set).ok()?), name))
        }
        None => Some((CatalogView::All, below)),
    }
}

/// Answers a request for the document or a tool.
pub(in crate::http_endpoint) async fn handle(
    (endpoint, lite): (&HttpEndpoint, &Arc<Lite>),
    target: ApiPath,
    request: HttpRequest<RequestBody>,
    caller: LiteCaller,
) -> Response<ReplyBody> {
    match (target, request.method()) {
        (ApiPath::Document, &Method::GET | &Method::HEAD) => {
            serve_document((endpoint, lite), &request, &caller).await
        }
        (ApiPath::Document, _) => method_not_allowed("GET, HEAD"),
        (ApiPath::Tool, &Method::POST) => call_tool((endpoint, lite), request, caller).await,
        (ApiPath::Tool, _) => method_not_allowed("POST"),
    }
}

async fn serve_document(
    (endpoint, lite): (&HttpEndpoint, &Lite),
    request: &HttpRequest<RequestBody>,
    caller: &LiteCaller,
) -> Response<ReplyBody> {
    let Some(server) = server_url(endpoint, request, &caller.view) else {
        return refusal_response(StatusCode::BAD_REQUEST, "`Host` is missing");
    };
    let token = endpoint.auth.requires_token();
    let source = match lite.api_source(caller, (server, token)).await {
        Ok(source) => source,
        Err(error) => return error_response(&error),
    };
    let tag = HeaderValue::from_str(source.tag()).expect("it is made of digits");
    let known = request.headers().get_all(IF_NONE_MATCH).iter();
    let mut known = known.filter_map(|value| value.to_str().ok());
    let mut response = if known.any(|known| has_tag(known, source.tag())) {
        empty_response(StatusCode::NOT_MODIFIED)
    } else {
        match lite.api_text(source).await {
            Ok(text) => json_response(StatusCode::OK, ReplyBody::full(text)),
            Err(error) => return error_response(&error),
        }
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, tag);
    // Specific to the reader, and revalidated each time.
    let private = HeaderValue::from_static("private, no-cache");
    headers.insert(CACHE_CONTROL, private);
    headers.insert(VARY, HeaderValue::from_static("authorization, host"));
    response
}

/// The base URL of the document's paths: the host of the request, which the endpoint has checked.
fn server_url(
    endpoint: &HttpEndpoint,
    request: &HttpRequest<RequestBody>,
    view: &CatalogView,
) -> Option<String> {
    let named = request.headers().get(HOST).map(|host| host.to_str().ok());
    // In HTTP/2 the host is in the pseudo-header of the request.
    let host =
        named.unwrap_or_else(|| request.uri().authority().map(http::uri::Authority::as_str))?;
    let scheme = if endpoint.secure { "https" } else { "http" };
    let set = match view {
        CatalogView::Set(set) => format!("/{SET_PREFIX}{set}"),
        CatalogView::All | CatalogView::One(_) => String::new(),
    };
    Some(format!("{scheme}://{host}{BASE}{set}"))
}

/// True if a value of `If-None-Match` (RFC 9110, 13.1.2) contains this tag; compared weakly, as specified
/// there.
fn has_tag(value: &str, tag: &str) -> bool {
    let mut listed = value.split(',').map(str::trim);
    listed.any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

/// Calls a tool by its path.
async fn call_tool(
    (endpoint, lite): (&HttpEndpoint, &Arc<Lite>),
    request: HttpRequest<RequestBody>,
    caller: LiteCaller,
) -> Response<ReplyBody> {
    let name = split_view(request.uri().path()).and_then(|(_, name)| name.strip_prefix(TOOLS));
    let Some(name) = name.and_then(parse_path_segment) else {
        let message = "Tool not found: its name in the path is malformed";
        return error_response(&LiteError::new(LiteErrorKind::NotFound, message));
    };
    let (headers, stream, text) = match read_request(endpoint, request, &caller.agent).await {
        Ok(read) => read,
        Err(response) => return *response,
    };
    // One complete value, so that no part of it can become a member beside the arguments.
    let arguments = match serde_json::from_str::<&RawValue>(&text) {
        Ok(arguments) => arguments.get(),
        Err(error) => return malformed_response(&Malformed::NotJson(error.to_string())),
    };
    if !arguments.starts_with('{') {
        let message = "Invalid params: the body is the object of the tool's arguments";
        return error_response(&LiteError::new(LiteErrorKind::InvalidParams, message));
    }
    let params = call_params(&name, arguments, continuation(&headers));
    let asked = (params.into(), read_trace(&headers, Trace::generate()));
    let (running, applied) = begin_call(lite, &headers, stream, caller, asked);
    let mut response = if stream {
        event_response(lite, running)
    } else {
        finished_response(running).await
    };
    response.headers_mut().extend(applied);
    response
}

/// Renders the params of a `tools/call` (§4.2.2).
fn call_params(name: &str, arguments: &str, continuation: Option<&str>) -> String {
    let meta = continuation.map(|token| format!(r#","_meta":{{"continuation":{}}}"#, quote(token)));
    let meta = meta.unwrap_or_default();
    format!(
        r#"{{"name":{},"arguments":{arguments}{meta}}}"#,
        quote(name)
    )
}

/// The continuation of a suspended call in the headers.
fn continuation(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(HeaderName::from_bytes(CONTINUATION.as_bytes()).ok()?)?
        .to_str()
        .ok()
}

async fn finished_response(mut running: RunningLiteCall) -> Response<ReplyBody> {
    loop {
        match running.next().await {
            LiteEvent::Partial(_) => {}
            LiteEvent::Done(outcome) => return outcome_response(outcome),
        }
    }
}

fn outcome_response(outcome: LiteOutcome) -> Response<ReplyBody> {
    match outcome {
        Ok(answer) => {
            let status = match answer.response_type {
                ResponseType::Promise | ResponseType::Elicitation | ResponseType::MoreResource => {
                    StatusCode::ACCEPTED
                }
                ResponseType::Answer | ResponseType::Failure => StatusCode::OK,
            };
            json_response(status, ReplyBody::full(answer.result))
        }
        Err(error) => error_response(&error),
    }
}

/// An error with the HTTP status of its kind. The body is that of the envelope, as at all other endpoints.
fn error_response(error: &LiteError) -> Response<ReplyBody> {
    let again = error
        .data
        .as_deref()
        .and_then(|data| member(data.get(), "retryAfterMs"));
    let again: Option<u64> = again.and_then(|ms| ms.parse().ok());
    let status = match error.kind {
        LiteErrorKind::InvalidRequest | LiteErrorKind::InvalidParams => StatusCode::BAD_REQUEST,
        LiteErrorKind::NotFound => StatusCode::NOT_FOUND,
        LiteErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        LiteErrorKind::Internal if again.is_some() => StatusCode::SERVICE_UNAVAILABLE,
        LiteErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = json_response(
        status,
        ReplyBody::full(jsonrpc::error("null", &error.to_json())),
    );
    if let Some(ms) = again {
        let secs = HeaderValue::from(ms.div_ceil(1000).max(1));
        response.headers_mut().insert(RETRY_AFTER, secs);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_map_to_the_document_and_tools_of_a_view() {
        let all = |target| Some((target, CatalogView::All));
        assert_eq!(
            parse_path("/mcp-lite/v1/openapi.json"),
            all(ApiPath::Document)
        );
        assert_eq!(
            parse_path("/mcp-lite/v1/tools/it__echo"),
            all(ApiPath::Tool)
        );
        let set = CatalogView::Set(SetName::parse("few").unwrap());
        let document = Some((ApiPath::Document, set));
        assert_eq!(parse_path("/mcp-lite/v1/p/few/openapi.json"), document);
        for other in [
            "/openapi.json",
            "/mcp-lite/v1/tools",
            "/mcp-lite/v1/openapi.json/",
            "/mcp-lite/v1/p/Few/openapi.json",
            "/mcp-lite/v1/p/few",
            "/tools/it__echo",
        ] {
            assert_eq!(parse_path(other), None, "{other}");
        }
    }

    /// RFC 9110, 13.1.2.
    #[test]
    fn entity_tags_are_compared_weakly() {
        let tag = "\"abc\"";
        for known in ["\"abc\"", "W/\"abc\"", "\"x\", \"abc\"", "*"] {
            assert!(has_tag(known, tag), "{known}");
        }
        for other in ["", "abc", "\"ab\"", "\"abc", "w/\"abc\""] {
            assert!(!has_tag(other, tag), "{other}");
        }
    }

    #[test]
    fn name_and_continuation_are_rendered_as_strings() {
        let made = call_params(r#"a","x":"#, r#"{"a":1}"#, Some(r#""}"#));
        let read: serde_json::Value = serde_json::from_str(&made).unwrap();
        assert_eq!(read["name"], r#"a","x":"#);
        assert_eq!(read["_meta"]["continuation"], r#""}"#);
        assert_eq!(read.as_object().unwrap().len(), 3);
    }
}
