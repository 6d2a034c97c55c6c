//! What every method needs to read its params and to write its answer.

use bytes::Bytes;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::quoted;
use serde::Serialize;
use serde_json::value::RawValue;

use mgp_callers::request::{Caller, Outcome, Request};

/// An answer of the kernel's own.
pub(crate) fn json(answer: &impl Serialize) -> Outcome {
    let written = serde_json::to_vec(answer).map(Bytes::from);
    written.map_err(|error| Refusal::Broken(error.to_string()))
}

/// The same as what a tool of the kernel answers: structured, and as text.
pub(crate) fn structured(caller: &Caller, answer: &[u8]) -> Bytes {
    let answer = String::from_utf8_lossy(answer);
    let complete = match caller.version.is_legacy() {
        true => "",
        false => r#","resultType":"complete""#,
    };
    format!(
        r#"{{"content":[{{"type":"text","text":{}}}],"structuredContent":{answer}{complete}}}"#,
        quoted(&answer)
    )
    .into()
}

/// A JSON string's text; borrowed where it has no escapes.
pub(crate) fn text(raw: &RawValue, what: &str) -> Result<String, Refusal> {
    serde_json::from_str(raw.get())
        .map_err(|_| Refusal::BadParams(format!("`{what}` must be a string")))
}

pub(crate) fn required(request: &Request) -> Result<&str, Refusal> {
    request
        .params
        .as_deref()
        .ok_or_else(|| Refusal::BadParams("`params` is missing".into()))
}

/// The answer to a request that has nothing to say.
#[must_use]
pub fn nothing() -> Bytes {
    Bytes::from_static(b"{}")
}

/// What the kernel says of itself, as an `Implementation` object.
pub(crate) fn kernel_info() -> String {
    format!(
        r#"{{"name":"mgp","title":"MGP kernel","version":{}}}"#,
        quoted(env!("CARGO_PKG_VERSION"))
    )
}
