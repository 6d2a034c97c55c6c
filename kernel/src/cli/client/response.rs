//! Parses the kernel's responses.

use mgp_protocol::jsonrpc::ErrorObject;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::failure::Failure;

/// Parses a result.
pub(in crate::cli) fn parse_result<'a, T: Deserialize<'a>>(
    answer: &'a RawValue,
) -> Result<T, Failure> {
    let other = |e| Failure::Other(format!("the kernel answered something else: {e}"));
    serde_json::from_str(answer.get()).map_err(other)
}

/// The `error` of a response as a failure.
pub(in crate::cli) fn parse_error(error: &RawValue) -> Failure {
    match serde_json::from_str::<ErrorObject>(error.get()) {
        Ok(error) => Failure::ErrorResponse {
            code: error.code,
            message: error.message,
            data: error.data.and_then(|d| serde_json::from_str(d.get()).ok()),
        },
        Err(_) => Failure::Other(format!("the kernel answered {}", error.get())),
    }
}
