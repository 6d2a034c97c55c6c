//! What a status of gRPC means to a caller (§5.5).

use std::error::Error;
use std::sync::Arc;

use mgp_grpc::error_details::ErrorDetails;
use mgp_grpc::tonic::{Code, Status};
use mgp_protocol::jsonrpc::{ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND};
use mgp_protocol::refusal::Refusal;
use mgp_transports::http::client::ClientError;

use crate::link::Link;
use crate::link::wire::http::unsent;

/// Most characters of a server's words that are repeated.
const QUOTED: usize = 500;

/// The refusal of a request that ended with this status.
pub(super) fn refused(link: &Arc<Link>, status: &Status) -> Refusal {
    if let Some(error) = of_client(status) {
        return match (error, link.holds_promises()) {
            (ClientError::Dial(why), true) => link.unreached(&why.to_string()),
            (error, _) => unsent(link, error),
        };
    }
    let said = words(status.message());
    match status.code() {
        Code::InvalidArgument => said_by_it(INVALID_PARAMS, said, status, link),
        Code::NotFound => said_by_it(METHOD_NOT_FOUND, said, status, link),
        // No status tells for certain that the call was not carried out.
        Code::Unauthenticated | Code::PermissionDenied => link.faulty(&format!(
            "it answered {} ({said}); check `headers` of this server in mgp.toml",
            name(status.code())
        )),
        Code::OutOfRange if said.contains("length too large") => link.too_large(),
        Code::Unimplemented => link.faulty(&format!(
            "it has no such service or method ({said}): `transport = \"grpc\"` is for servers of mcplite.MCPLite"
        )),
        Code::DeadlineExceeded | Code::Cancelled | Code::Unavailable | Code::Aborted => {
            link.lost(&format!("{}: {said}", name(status.code())))
        }
        Code::Ok
        | Code::Unknown
        | Code::Internal
        | Code::DataLoss
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange => {
            let said = format!("{}: {said}", name(status.code()));
            said_by_it(INTERNAL_ERROR, said, status, link)
        }
    }
}

/// The server's own error, in the words of JSON-RPC.
fn said_by_it(code: i64, message: String, status: &Status, link: &Link) -> Refusal {
    let mut error = ErrorObject::new(code, message);
    if let Some(info) = ErrorDetails::of(status) {
        let data = serde_json::json!({
            "reason": info.reason, "domain": info.domain, "metadata": info.metadata,
        });
        error = error.with_data(&data);
    }
    match serde_json::value::to_raw_value(&error) {
        Ok(error) => Refusal::Peer(error),
        Err(_) => link.faulty("its error cannot be read"),
    }
}

/// What went wrong before the server said anything.
fn of_client(status: &Status) -> Option<&ClientError> {
    let mut cause: Option<&(dyn Error + 'static)> = status.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<ClientError>() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}

fn words(text: &str) -> String {
    let shown = text.chars().filter(|c| !c.is_control());
    shown.take(QUOTED).collect()
}

/// As the document writes it.
fn name(code: Code) -> String {
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
    fn codes_have_the_names_of_the_document() {
        assert_eq!(name(Code::InvalidArgument), "INVALID_ARGUMENT");
        assert_eq!(name(Code::Internal), "INTERNAL");
    }
}
