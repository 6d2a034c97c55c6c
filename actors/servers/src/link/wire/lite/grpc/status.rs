//! Converts a gRPC status to a refusal (§5.5).

use std::error::Error;
use std::sync::Arc;

use mgp_grpc::ErrorDetails;
use mgp_grpc::tonic::{Code, Status};
use mgp_protocol::jsonrpc::{ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND};
use mgp_protocol::refusal::Refusal;
use mgp_transports::http::client::ClientError;

use crate::link::Link;
use crate::link::wire::http::unsent_refusal;

/// The most characters of a server's text that are quoted.
const QUOTED_CHARS_MAX: usize = 500;

/// The refusal of a request that ended with this status.
pub(super) fn refusal_from_status(link: &Arc<Link>, status: &Status) -> Refusal {
    if let Some(error) = client_error(status) {
        return match (error, link.has_promises()) {
            (ClientError::Dial(why), true) => link.unreachable_refusal(&why.to_string()),
            (error, _) => unsent_refusal(link, error),
        };
    }
    let message = quote(status.message());
    match status.code() {
        Code::InvalidArgument => server_error_refusal(INVALID_PARAMS, message, status, link),
        Code::NotFound => server_error_refusal(METHOD_NOT_FOUND, message, status, link),
        // No status proves that the call was not executed.
        Code::Unauthenticated | Code::PermissionDenied => link.invalid_answer_refusal(&format!(
            "it answered {} ({message}); check `headers` of this server in mgp.toml",
            code_name(status.code())
        )),
        Code::OutOfRange if message.contains("length too large") => link.too_large_refusal(),
        Code::Unimplemented => link.invalid_answer_refusal(&format!(
            "it has no such service or method ({message}): `transport = \"grpc\"` is for servers of mcplite.MCPLite"
        )),
        Code::DeadlineExceeded | Code::Cancelled | Code::Unavailable | Code::Aborted => {
            link.lost_refusal(&format!("{}: {message}", code_name(status.code())))
        }
        Code::Ok
        | Code::Unknown
        | Code::Internal
        | Code::DataLoss
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange => {
            let message = format!("{}: {message}", code_name(status.code()));
            server_error_refusal(INTERNAL_ERROR, message, status, link)
        }
    }
}

/// The server's own error, as a JSON-RPC error.
fn server_error_refusal(code: i64, message: String, status: &Status, link: &Link) -> Refusal {
    let mut error = ErrorObject::new(code, message);
    if let Some(info) = ErrorDetails::from_status(status) {
        let data = serde_json::json!({
            "reason": info.reason, "domain": info.domain, "metadata": info.metadata,
        });
        error = error.with_data(&data);
    }
    match serde_json::value::to_raw_value(&error) {
        Ok(error) => Refusal::Peer(error),
        Err(_) => link.invalid_answer_refusal("its error cannot be read"),
    }
}

/// The transport error behind a status, if the server sent nothing.
fn client_error(status: &Status) -> Option<&ClientError> {
    let mut cause: Option<&(dyn Error + 'static)> = status.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<ClientError>() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}

fn quote(text: &str) -> String {
    let printable = text.chars().filter(|c| !c.is_control());
    printable.take(QUOTED_CHARS_MAX).collect()
}

/// The name of a code as in the gRPC document.
fn code_name(code: Code) -> String {
    let camel = format!("{code:?}");
    let mut out = String::new();
    for (at, letter) in camel.char_indices() {
        if at > 0 && letter.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(letter.to_ascii_uppercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_names_match_document() {
        assert_eq!(code_name(Code::InvalidArgument), "INVALID_ARGUMENT");
        assert_eq!(code_name(Code::Internal), "INTERNAL");
    }
}
