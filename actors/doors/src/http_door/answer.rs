//! HTTP answers that are not MCP results.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use mgp_protocol::jsonrpc::{self, ErrorObject, INTERNAL_ERROR, INVALID_REQUEST, RequestId};
use mgp_protocol::refusal::Refusal;
use mgp_transports::http::body::ReplyBody;

pub(super) fn json(status: StatusCode, body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn plain(status: StatusCode, text: &'static str) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::full(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// A refusal as a JSON-RPC error without id, so that clients can show its message.
pub(super) fn refusal(status: StatusCode, words: &str) -> Response<ReplyBody> {
    refusal_of(None, status, words)
}

/// The same for a request whose id could be read.
pub(super) fn refusal_of(
    id: Option<&RequestId>,
    status: StatusCode,
    words: &str,
) -> Response<ReplyBody> {
    under(id, (status, INVALID_REQUEST), words)
}

/// The kernel is at a limit: the client should retry after a second at the earliest. `id` of the
/// request, if it could be read.
pub(super) fn overloaded(id: Option<&RequestId>, words: &str) -> Response<ReplyBody> {
    let code = (StatusCode::SERVICE_UNAVAILABLE, INTERNAL_ERROR);
    let mut response = under(id, code, words);
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// The handler panicked.
pub(super) fn failed(why: &Refusal) -> Response<ReplyBody> {
    let code = (StatusCode::INTERNAL_SERVER_ERROR, INTERNAL_ERROR);
    under(None, code, &why.to_string())
}

/// The session is unknown, has ended, or belongs to somebody else: the client must start a new one.
pub(super) fn unknown_session() -> Response<ReplyBody> {
    let words = "Session not found; begin a new one with `initialize`";
    under(None, (StatusCode::NOT_FOUND, -32001), words)
}

fn under(id: Option<&RequestId>, code: (StatusCode, i64), words: &str) -> Response<ReplyBody> {
    let (status, code) = code;
    let error = ErrorObject::new(code, words);
    let error = serde_json::to_string(&error).expect("an error object is always JSON");
    let id = id.map_or("null", RequestId::as_json);
    json(status, ReplyBody::full(jsonrpc::error(id, &error)))
}
