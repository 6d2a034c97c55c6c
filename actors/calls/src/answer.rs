//! Helpers for all methods: reading params and writing answers.

use bytes::Bytes;
use mgp_json::quote;
use mgp_protocol::refusal::Refusal;
use serde::Serialize;
use serde_json::value::RawValue;

use mgp_callers::request::{Caller, Outcome, Request};

/// An answer the kernel makes itself, as JSON.
pub(crate) fn json_outcome(answer: &impl Serialize) -> Outcome {
    let written = serde_json::to_vec(answer).map(Bytes::from);
    written.map_err(|error| Refusal::Internal(error.to_string()))
}

/// A result with members that the kernel makes itself, as its caller reads it. For a stateless client it states that
/// the result is complete. `more` holds further members, each with a leading comma.
pub(crate) fn complete_result(
    caller: &Caller,
    result: Bytes,
    more: impl FnOnce() -> String,
) -> Bytes {
    if caller.version.is_legacy() {
        return result;
    }
    let open = result.strip_suffix(b"}").unwrap_or(&result);
    let complete: &[u8] = br#","resultType":"complete""#;
    [open, complete, more().as_bytes(), b"}"].concat().into()
}

/// The same answer as the result of one of the kernel's tools: as structured content and as text.
pub(crate) fn to_tool_result(caller: &Caller, answer: &[u8]) -> Bytes {
    let answer = String::from_utf8_lossy(answer);
    let result = format!(
        r#"{{"content":[{{"type":"text","text":{}}}],"structuredContent":{answer}}}"#,
        quote(&answer)
    );
    complete_result(caller, result.into(), String::new)
}

/// The text of a JSON string; borrowed where it has no escapes. `what` names it in the error.
pub(crate) fn parse_string(raw: &RawValue, what: &str) -> Result<String, Refusal> {
    serde_json::from_str(raw.get())
        .map_err(|_| Refusal::BadParams(format!("`{what}` must be a string")))
}

pub(crate) fn require_params(request: &Request) -> Result<&str, Refusal> {
    request
        .params
        .as_deref()
        .ok_or_else(|| Refusal::BadParams("`params` is missing".into()))
}

/// The empty result, `{}`.
#[must_use]
pub fn empty_result() -> Bytes {
    Bytes::from_static(b"{}")
}
