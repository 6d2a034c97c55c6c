//! gRPC answers as response bodies, and statuses with error details.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Body, Frame};
use mgp_grpc::ErrorDetails;
use mgp_grpc::tonic::body::Body as RpcBody;
use mgp_grpc::tonic::{Code, Status};
use mgp_json::members;
use mgp_protocol::lite::error::{LiteError, LiteErrorKind};
use mgp_transports::http::body::{AbortTrailers, ReplyBody};

/// The domain of the error reasons.
const DOMAIN: &str = "mcplite";

/// The longest message of a status, in bytes. Message and details are sent in the trailers, of which common
/// clients accept 8 KiB in total; a byte of the message may take three there, one of the details four
/// thirds.
const MESSAGE: usize = 768;

/// The most bytes of names and values in an `ErrorDetails`.
const METADATA: usize = 2048;

/// The status of a request that is rejected before any call.
pub(super) fn new_status(code: Code, reason: &str, message: &str) -> Status {
    new_error_details(reason, HashMap::new()).to_status(code, truncate(message, MESSAGE).into())
}

/// The status of a failed call, in the class that HTTP uses for it (§5.5, §7.1).
pub(super) fn error_status(error: &LiteError) -> Status {
    let (code, reason) = match error.kind {
        LiteErrorKind::InvalidRequest => (Code::InvalidArgument, "INVALID_REQUEST"),
        LiteErrorKind::NotFound => (Code::NotFound, "TOOL_NOT_FOUND"),
        LiteErrorKind::InvalidParams => (Code::InvalidArgument, "INVALID_PARAMS"),
        LiteErrorKind::Timeout => (Code::DeadlineExceeded, "TIMEOUT"),
        LiteErrorKind::Internal => (Code::Internal, "INTERNAL_ERROR"),
    };
    let data = error.data.as_ref().map(|data| data.get());
    let mut metadata = error_metadata(data.unwrap_or("{}"));
    let message = match metadata.get("requested_tool") {
        Some(name) => format!("{}: {name}", error.message),
        None => error.message.clone(),
    };
    metadata.insert("json_rpc_code".into(), error.code.to_string());
    new_error_details(reason, metadata).to_status(code, truncate(&message, MESSAGE).into())
}

fn new_error_details(reason: &str, metadata: HashMap<String, String>) -> ErrorDetails {
    ErrorDetails {
        reason: reason.into(),
        domain: DOMAIN.into(),
        metadata,
    }
}

/// Renders the members of an error's data, up to the limit: strings as they are, others as JSON text; of a
/// list the first items.
fn error_metadata(data: &str) -> HashMap<String, String> {
    let mut remaining = METADATA;
    let mut out = HashMap::new();
    let mut all = members(data).unwrap_or_default();
    // Sorted by length, so that a long list does not displace short members.
    all.sort_by_key(|(_, value)| value.get().len());
    for (name, value) in all {
        remaining = remaining.saturating_sub(name.len());
        let text = fit_value(value.get(), remaining);
        remaining = remaining.saturating_sub(text.len());
        if !text.is_empty() {
            out.insert(name.into_owned(), text);
        }
    }
    out
}

fn fit_value(value: &str, capacity: usize) -> String {
    if let Ok(text) = serde_json::from_str::<String>(value) {
        return truncate(&text, capacity).into();
    }
    if value.len() <= capacity {
        return value.into();
    }
    let items: Vec<&serde_json::value::RawValue> = serde_json::from_str(value).unwrap_or_default();
    let mut out = String::from("[");
    for item in items {
        if out.len() + item.get().len() + 2 > capacity {
            break;
        }
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(item.get());
    }
    match out.len() {
        1 => String::new(),
        _ => out + "]",
    }
}

fn truncate(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

/// Converts the response of a service for the endpoint.
pub(super) fn to_reply(response: Response<RpcBody>) -> Response<ReplyBody> {
    let cut = AbortTrailers {
        canceled: || render_trailers(&credentials_ended_status()),
        closing: || render_trailers(&Status::unavailable("the kernel is stopping")),
    };
    response.map(|body| ReplyBody::with_trailers(TrailerBody(body), cut))
}

/// The status of a request whose credential ended while it was in flight.
pub(super) fn credentials_ended_status() -> Status {
    let message = "the credentials expired or were revoked during the request";
    new_status(Code::Unauthenticated, "UNAUTHENTICATED", message)
}

fn render_trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // Fails only for characters that no status contains: they are escaped.
    let _ = status.add_header(&mut trailers);
    trailers
}

/// A body that reports errors in its trailers.
struct TrailerBody(RpcBody);

impl Body for TrailerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = std::task::ready!(Pin::new(&mut self.0).poll_frame(cx));
        Poll::Ready(frame.map(|frame| match frame {
            Ok(frame) => Ok(frame),
            Err(status) => {
                self.0 = RpcBody::empty();
                Ok(Frame::trailers(render_trailers(&status)))
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(error: &LiteError) -> (Status, HashMap<String, String>) {
        let status = error_status(error);
        let info = ErrorDetails::from_status(&status).unwrap();
        assert_eq!(info.domain, DOMAIN);
        (status, info.metadata)
    }

    /// LITE-062: the message of A.5, and the details of HTTP.
    #[test]
    fn unknown_tool_error_lists_the_available_tools() {
        let error = LiteError::tool_not_found("x", &["redeem", "y"], Some("y"));
        let (status, metadata) = status_of(&error);
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(status.message(), "Tool not found: x");
        assert_eq!(metadata["available_tools"], r#"["redeem","y"]"#);
        assert_eq!(metadata["suggestion"], "Did you mean 'y'?");
        assert_eq!(metadata["json_rpc_code"], "-32601");
    }

    /// Common clients accept 8 KiB of trailers, and discard longer ones.
    #[test]
    fn status_fits_into_the_trailers_of_common_clients() {
        let names: Vec<String> = (0..50)
            .map(|n| format!("é{}{n}", "long_".repeat(40)))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let error = LiteError::tool_not_found(&"é".repeat(5000), &names, None);
        let (status, metadata) = status_of(&error);
        let trailers = render_trailers(&status);
        let bytes = trailers
            .iter()
            .map(|(name, value)| 32 + name.as_str().len() + value.len());
        assert!(bytes.sum::<usize>() < 7 << 10);
        assert!(metadata["requested_tool"].len() <= METADATA);
        let few = LiteError::tool_not_found("x", &names, None);
        let listed: Vec<String> =
            serde_json::from_str(&status_of(&few).1["available_tools"]).unwrap();
        assert!(!listed.is_empty() && listed.len() < 50);
    }
}
