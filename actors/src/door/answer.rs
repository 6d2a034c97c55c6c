//! HTTP answers that are no MCP results.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use mgp_protocol::jsonrpc::{ErrorObject, INTERNAL_ERROR, INVALID_REQUEST};
use mgp_transports::http::body::Reply;

pub(super) fn json(status: StatusCode, body: Reply) -> Response<Reply> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn plain(status: StatusCode, text: &'static str) -> Response<Reply> {
    let mut response = Response::new(Reply::full(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// A refusal of the door itself: a JSON-RPC error without id, so that clients can show its words.
pub(super) fn refusal(status: StatusCode, words: &str) -> Response<Reply> {
    coded(status, INVALID_REQUEST, words)
}

/// The kernel holds all it may right now: the client tries again, soonest after a second.
pub(super) fn overloaded(words: &str) -> Response<Reply> {
    let mut response = coded(StatusCode::SERVICE_UNAVAILABLE, INTERNAL_ERROR, words);
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// The session is unknown, has ended, or is somebody else's: the client starts anew.
pub(super) fn unknown_session() -> Response<Reply> {
    coded(
        StatusCode::NOT_FOUND,
        -32001,
        "Session not found; begin a new one with `initialize`",
    )
}

fn coded(status: StatusCode, code: i64, words: &str) -> Response<Reply> {
    let error = ErrorObject::new(code, words);
    let error = serde_json::to_string(&error).expect("an error object is always JSON");
    json(
        status,
        Reply::full(mgp_protocol::jsonrpc::error("null", &error)),
    )
}
