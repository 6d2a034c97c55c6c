//! HTTP answers that are not MCP results.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use mgp_protocol::jsonrpc::{self, ErrorObject, INTERNAL_ERROR, INVALID_REQUEST, RequestId};
use mgp_protocol::refusal::Refusal;
use mgp_transports::http::body::ReplyBody;

pub(super) fn json_response(status: StatusCode, body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn text_response(status: StatusCode, text: &'static str) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::full(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// A refusal as a JSON-RPC error without id, so that clients can show its message.
pub(super) fn refusal_response(status: StatusCode, message: &str) -> Response<ReplyBody> {
    refusal_response_with_id(None, status, message)
}

/// A refusal as a JSON-RPC error for a request whose id could be read.
pub(super) fn refusal_response_with_id(
    id: Option<&RequestId>,
    status: StatusCode,
    message: &str,
) -> Response<ReplyBody> {
    error_response(id, (status, INVALID_REQUEST), message)
}

/// The response at a limit of the kernel: the client should retry after a second at the earliest. `id` of
/// the request, if it could be read.
pub(super) fn overloaded_response(id: Option<&RequestId>, message: &str) -> Response<ReplyBody> {
    let code = (StatusCode::SERVICE_UNAVAILABLE, INTERNAL_ERROR);
    let mut response = error_response(id, code, message);
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// The response after a panic of the handler.
pub(super) fn failure_response(refusal: &Refusal) -> Response<ReplyBody> {
    let code = (StatusCode::INTERNAL_SERVER_ERROR, INTERNAL_ERROR);
    error_response(None, code, &refusal.to_string())
}

/// The response for a session that is unknown, has ended, or belongs to another agent: the client must
/// start a new one.
pub(super) fn unknown_session_response() -> Response<ReplyBody> {
    let message = "Session not found; begin a new one with `initialize`";
    error_response(None, (StatusCode::NOT_FOUND, -32001), message)
}

fn error_response(
    id: Option<&RequestId>,
    code: (StatusCode, i64),
    message: &str,
) -> Response<ReplyBody> {
    let (status, code) = code;
    let error = ErrorObject::new(code, message);
    let error = serde_json::to_string(&error).expect("an error object is always JSON");
    let id = id.map_or("null", RequestId::as_json);
    json_response(status, ReplyBody::full(jsonrpc::error(id, &error)))
}
